"""The choice of a streaming rule's learning rate."""

import numpy as np
from sklearn.datasets import load_digits

from rlreps.experiments.amid_warmuth_2020 import tuning
from rlreps.experiments.amid_warmuth_2020.tuning import Contender
from rlreps.experiments.reconstruction import exact_components

DIGITS = exact_components(np.float32(load_digits().data[:600] / 16))


def test_the_pair_of_least_loss_on_the_part_is_chosen(monkeypatch):
    streamed = []
    real = tuning.run_passes
    monkeypatch.setattr(
        tuning, "run_passes", lambda *a, **o: streamed.append((a, o)) or real(*a, **o)
    )
    # A rate that hardly moves the start, one that learns, and two that diverge.
    contender = Contender(
        rule="sanger", rows_per_update=10, powers=(0.5, 0.8), learning_rates=(1e-9, 0.1, 1e7)
    )
    found = contender.choose_rates(DIGITS.rows, 3, fraction=0.25, seed=3)
    losses = np.asarray(found["tuning_losses"], float)
    assert np.isnan(losses).tolist() == [[False, False, True]] * 2
    assert found["power"] == contender.powers[np.nanargmin(np.nanmin(losses, axis=1))]
    assert (found["learning_rate"], found["all_diverged"]) == (0.1, False)
    (_, ((_, part, seeds, _), passed)) = streamed
    assert len({row.tobytes() for row in part}) == len(part) == 150
    assert (list(seeds), passed["rows_per_update"]) == ([3, 3, 3], 10)
    # No loss is below that of the part's own components, and that of no components is the most.
    residuals = np.linalg.svd(part, compute_uv=False)[3:] ** 2
    assert np.sum(residuals) / 150 < np.nanmin(losses) < np.mean(np.sum(part**2, axis=1))
    diverging = Contender(
        rule="sanger", rows_per_update=10, powers=(0.8,), learning_rates=(1e9, 1e8)
    )
    lost = diverging.choose_rates(DIGITS.rows, 3, fraction=0.25, seed=3)
    assert (lost["learning_rate"], lost["all_diverged"]) == (1e8, True)
