"""EigenGame on whole images: seeds, chunks, divergence."""

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.experiments.le_lan_2023.images import ImageSource
from rlreps.experiments.le_lan_2023.pixels import RuleUpdates
from rlreps.streaming import Eigengame
from rlreps.training import train_population

DATA = jnp.asarray(np.random.default_rng(0).normal(size=(50, 6)) * [4, 3, 2, 1, 1, 1], jnp.float32)
RULE = Eigengame(6, 2, learning_rate=0.02)


def fit(rule=RULE, **options):
    """Return the history, and the components of each seed."""
    result = train_population(
        RuleUpdates(rule, 10),
        ImageSource(DATA),
        own_numbers=False,
        evaluate=lambda state, _: {"first": rule.components(state)[0, 0]},
        **{"steps": 60, "seeds": (0, 5), "evaluate_every": 20, "checkpoint_every": 20} | options,
    )
    return result.history, jax.vmap(rule.components)(result.state.params)


def test_a_seeds_history_is_the_same_alone_and_in_chunks_of_any_length():
    _, together = fit()
    assert together.shape == (2, 6, 2)
    assert not np.allclose(together[0], together[1])
    _, alone = fit(seeds=(5,), evaluate_every=12, checkpoint_every=12)
    np.testing.assert_allclose(alone[0], together[1], atol=1e-6)


def test_a_seed_that_diverges_is_counted_and_the_others_go_on():
    class Grows:
        def init(self, key):
            return jnp.full((6, 2), jax.random.uniform(key, (), minval=-1.0))

        def update(self, state, batch):
            # Positive numbers overflow within a few updates, negative ones stay.
            return jnp.where(state > 0.0, state * 1e20, state)

        def components(self, state):
            return state

    history, components = fit(rule=Grows(), seeds=range(6))
    started = np.asarray(history[0]["first"])
    assert 0 < np.sum(started > 0.0) < 6
    assert not any(history[0]["diverged"])
    assert history[-1]["diverged"] == (started > 0.0).tolist()
    ended = np.where(started > 0.0, 0.0, started)
    np.testing.assert_array_equal(components[:, 0, 0], ended.astype(np.float32))
