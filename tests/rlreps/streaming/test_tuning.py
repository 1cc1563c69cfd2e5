"""The choice of a streaming rule's learning rate, and times of rows."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits

from rlreps.streaming import tuning
from rlreps.streaming.tuning import TunedRule
from rlreps.subspace.reconstruction import exact_components


@pytest.fixture(scope="module")
def digits():
    images = load_digits().images[:600] / 16
    return exact_components(images.reshape(600, 64).astype(np.float32))


class KnownBest(TunedRule):
    """A rule whose components are the worse, the further γ and η0 are from 0.8 and the best."""

    exact, others, best = None, None, 100.0

    def build(self, features, k, power):
        best, exact, others = self.best, self.exact, self.others

        class Rule:
            def __init__(self, rate):
                self.rate = rate

            def init(self, key):
                return jnp.zeros((), jnp.int32)

            def update(self, step, batch):
                return step + 1

            update_each = update

            def components(self, step):
                turn = jnp.abs(jnp.log(self.rate / best)) / 10.0 + abs(power - 0.8)
                found = jnp.cos(turn) * exact + jnp.sin(turn) * others
                return jnp.where((self.rate < 1e6) & (step > 0), found, jnp.nan)

        return Rule


def test_the_pair_of_least_loss_on_the_part_is_chosen(digits, monkeypatch):
    streamed = []
    real = tuning.run_passes
    monkeypatch.setattr(
        tuning, "run_passes", lambda *a, **o: streamed.append((a, o)) or real(*a, **o)
    )
    monkeypatch.setattr(KnownBest, "exact", jnp.asarray(digits.basis[:, :3], jnp.float32))
    monkeypatch.setattr(KnownBest, "others", jnp.asarray(digits.basis[:, 3:6], jnp.float32))
    chosen_on = {"fraction": 0.25, "seed": 3}
    rates = (0.1, 100.0, 1e7)
    options = {"rule": "oja", "rows_per_update": 50}
    contender = KnownBest(**options, powers=(0.5, 0.8), learning_rates=rates)
    found = contender.choose_rates(digits.rows, 3, **chosen_on)
    assert (found["power"], found["learning_rate"], found["all_diverged"]) == (0.8, 100.0, False)
    assert np.isnan(found["tuning_losses"]).tolist() == [[False, False, True]] * 2
    (_, ((_, part, runs), passed)) = streamed
    assert len({row.tobytes() for row in part}) == len(part) == 150
    assert (list(runs.seeds), passed["rows_per_update"]) == ([3, 3, 3], 50)
    span = digits.basis[:, :3]
    residuals = part - part @ span @ span.T
    expected = np.mean(np.sum(residuals**2, axis=1))
    assert found["tuning_losses"][1][1] == pytest.approx(expected, rel=1e-4)
    diverging = KnownBest(**options, powers=(0.8,), learning_rates=(1e7, 1e6))
    lost = diverging.choose_rates(digits.rows, 3, **chosen_on)
    assert (lost["learning_rate"], lost["all_diverged"]) == (1e6, True)
    incremental = TunedRule(rule="incremental_pca", powers=(), learning_rates=())
    untuned = incremental.choose_rates(digits.rows, 3, **chosen_on)
    assert (untuned["learning_rate"], untuned["power"]) == (None, None)
