import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.streaming.base import StreamingRule, one_row_at_a_time
from rlreps.streaming.implicit_krasulina import implicit_krasulina
from rlreps.streaming.passes import Runs, stream_passes
from rlreps.streaming.schedules import power_decay

FEATURES, K, ROWS = 5, 2, 24


def rows(count=ROWS, seed=0):
    return np.random.default_rng(seed).normal(size=(count, FEATURES)).astype(np.float32)


def recorder(rate):
    """A rule that sums the first entry of all rows and the mean squares of its batches."""

    def update(state, batch):
        total, squares, step = state
        return total + jnp.sum(batch[:, 0]), squares + jnp.mean(batch[:, 0]) ** 2, step + 1

    return StreamingRule(
        lambda key: (rate * 0.0, rate * 0.0, jnp.zeros((), jnp.int32)),
        update,
        one_row_at_a_time(update, FEATURES),
        lambda state: jnp.stack([state[0], state[1], state[2].astype(jnp.float32)])[:, None],
        lambda states, weights: states,
    )


def krasulina_at(rate):
    return implicit_krasulina(FEATURES, K, learning_rate=power_decay(rate, 0.8))


def sizes(components):
    return float(np.abs(components).sum())


def test_every_row_is_seen_once_a_pass():
    data = rows()
    found = stream_passes(
        recorder,
        data,
        Runs([3], [1.0]),
        evaluate=lambda c: float(c[0, 0]),
        evaluate_every=24,
        passes=2,
    )
    np.testing.assert_allclose(
        found.figures[:, 0], np.asarray([0.0, 1.0, 2.0]) * data[:, 0].sum(), rtol=1e-5
    )
    assert found.rows_seen.tolist() == [0, 24, 48]
    assert (np.diff(found.seconds) > 0.0).all()


def test_batches_are_updates_of_as_many_rows():
    found = stream_passes(
        recorder, rows(), Runs([3], [1.0]), evaluate=sizes, evaluate_every=12, rows_per_update=4
    )
    assert found.components[0, 2, 0] == 6


def test_orders_differ_between_seeds_and_passes_and_come_again():
    runs = Runs([3, 4, 3], [1.0, 1.0, 1.0])
    first, second = runs.orders(0, 50), runs.orders(1, 50)
    assert (np.sort(first, axis=1) == np.arange(50)).all()
    assert (first[0] == first[2]).all()
    assert (first[0] != first[1]).any()
    assert (first[0] != second[0]).any()
    np.testing.assert_array_equal(first, runs.orders(0, 50))


def test_runs_together_end_where_each_ends_alone():
    together = stream_passes(
        krasulina_at, rows(), Runs([0, 1, 0], [1.0, 1.0, 10.0]), evaluate=sizes, evaluate_every=8
    )
    for index, (seed, rate) in enumerate([(0, 1.0), (1, 1.0), (0, 10.0)]):
        alone = stream_passes(
            krasulina_at, rows(), Runs([seed], [rate]), evaluate=sizes, evaluate_every=8
        )
        np.testing.assert_allclose(together.components[index], alone.components[0], atol=1e-5)
        np.testing.assert_allclose(together.figures[:, index], alone.figures[:, 0], atol=1e-4)


def test_the_interval_between_evaluations_does_not_change_the_end():
    ends = [
        stream_passes(
            krasulina_at, rows(), Runs([0], [1.0]), evaluate=sizes, evaluate_every=every
        ).components
        for every in (4, 24)
    ]
    np.testing.assert_allclose(*ends, atol=1e-5)


def test_runs_are_shared_out_over_devices():
    devices = jax.local_devices(backend="cpu")
    found = stream_passes(
        krasulina_at,
        rows(),
        Runs([0, 1], [1.0, 1.0]),
        evaluate=sizes,
        evaluate_every=24,
        devices=devices,
    )
    alone = stream_passes(
        krasulina_at, rows(), Runs([0, 1], [1.0, 1.0]), evaluate=sizes, evaluate_every=24
    )
    np.testing.assert_allclose(found.components, alone.components, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"evaluate_every": 25}, r"expected evaluate_every in \[1, 24\].*got 25"),
        ({"evaluate_every": 3, "rows_per_update": 4}, r"evaluate_every in \[4, 24\].*got 3"),
        ({"passes": 0}, "expected passes >= 1, got 0"),
        ({"rows_per_update": 0}, "expected rows_per_update >= 1, got 0"),
        ({"runs": Runs([], [])}, "expected runs >= 1, got 0"),
        ({"runs": Runs([1, 2], [1.0])}, "a learning rate for each of the 2 seeds"),
    ],
)
def test_counts_that_do_not_fit_are_refused(options, message):
    settings = {"runs": Runs([0], [1.0]), "evaluate": sizes, "evaluate_every": 8, **options}
    with pytest.raises(InputError, match=message):
        stream_passes(krasulina_at, rows(), **settings)
