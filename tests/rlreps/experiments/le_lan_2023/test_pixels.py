import jax
import jax.numpy as jnp
import numpy as np

from rlreps.experiments.le_lan_2023.pixels import fit_stream
from rlreps.streaming import Eigengame

DATA = jnp.asarray(np.random.default_rng(0).normal(size=(50, 6)) * [4, 3, 2, 1, 1, 1], jnp.float32)
RULE = Eigengame(6, 2, learning_rate=0.02)


def draw(data, key):
    return data[jax.random.randint(key, (10,), 0, len(data))]


def evaluate(components):
    return {"first": components[0, 0]}


def fit(folder=None, *, rule=RULE, steps=60, **options):
    options = {"seeds": (0, 5), "evaluate_every": 20, "checkpoint_every": 20, **options}
    return fit_stream(rule, DATA, draw, steps=steps, evaluate=evaluate, folder=folder, **options)


def test_a_seeds_history_is_the_same_alone_and_in_chunks_of_any_length(run_folder):
    folder = run_folder()
    together = fit(folder)
    assert [record["step"] for record in together.history] == [0, 20, 40, 60]
    assert folder.read_metrics() == together.history
    assert together.state.shape == (2, 6, 2)
    assert all(record["diverged"] == [False, False] for record in together.history)
    assert together.history[-1]["first"] == together.state[:, 0, 0].tolist()
    assert not np.allclose(together.state[0], together.state[1])
    alone = fit(seeds=(5,), evaluate_every=12, checkpoint_every=12).state
    np.testing.assert_allclose(alone[0], together.state[1], atol=1e-6)


def test_a_seed_that_diverges_is_counted_and_the_others_go_on():
    class Grows:
        def init(self, key):
            return jnp.full((6, 2), jax.random.uniform(key, (), minval=-1.0))

        def update(self, state, batch):
            # Positive numbers overflow within a few updates, negative ones stay.
            return jnp.where(state > 0.0, state * 1e20, state)

        def components(self, state):
            return state

    result = fit(rule=Grows(), seeds=range(6))
    started = np.asarray(result.history[0]["first"])
    assert 0 < np.sum(started > 0.0) < 6
    assert not any(result.history[0]["diverged"])
    assert result.history[-1]["diverged"] == (started > 0.0).tolist()
    ended = np.where(started > 0.0, 0.0, started)
    np.testing.assert_array_equal(result.state[:, 0, 0], ended.astype(np.float32))
