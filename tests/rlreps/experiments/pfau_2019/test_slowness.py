import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from rlreps.experiments.pfau_2019.slowness import Draw, linear_slow_features, slow_spectra
from rlreps.losses import Batch, Clip

CORRELATIONS = np.asarray([0.98, 0.9, 0.7, 0.4, 0.0])
MIXING = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MixedSignals:
    """Pairs of mixed Gaussian signals, independent of each other and of known correlation."""

    num_tasks = None

    def sample(self, key, num_rows, num_tasks):
        before, noise = jax.random.normal(key, (2, num_rows, 5))
        keep = jnp.asarray(CORRELATIONS, jnp.float32)[None, :]
        after = keep * before + jnp.sqrt(1.0 - keep**2) * noise
        pair = Clip((before @ MIXING + 3.0, after @ MIXING + 3.0))
        return Batch(pair, jnp.zeros((num_rows, 0)))


def test_linear_analysis_finds_the_eigenvalues_of_signals_of_known_correlation():
    learning, test = (Draw(MixedSignals(), jax.random.key(seed), 500, 40) for seed in (0, 1))
    linear = linear_slow_features(lambda inputs: inputs, learning, 3, 5)
    found = slow_spectra(*linear, test)
    np.testing.assert_allclose(found.ordered, 2.0 * (1.0 - CORRELATIONS[:3]), rtol=0.03)
    np.testing.assert_allclose(found.ritz.sum(), found.ordered.sum(), rtol=1e-4)
    # Features have unit variance and mean zero on other draws, up to sampling error.
    np.testing.assert_allclose(np.abs(found.transform), np.eye(4)[:, 1:], atol=0.03)
