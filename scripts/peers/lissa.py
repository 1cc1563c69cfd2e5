"""Danskin-LISSA on a matrix with known singular values, beside the code of its paper."""

import tempfile
from typing import Any, NamedTuple

import numpy as np

TITLE = "Danskin-LISSA"
WORK = (
    "{updates:,} updates by Danskin-LISSA (Le Lan et al. 2023) of a table of d = {features} "
    "features on a Gaussian matrix of {states} x {states} whose singular values fall from 1,000 to "
    "1 in equal ratios, in single precision: {rows} states for the gradient, {rows} for each "
    "right-hand side and {rows} for each inverse covariance, κ over all states, one task in each "
    "update, plain gradient descent. The authors' function compiles in every call and measures the "
    "features after every thousandth update. Quality is the distance from the leading left "
    "singular subspace: 0 is best."
)
PACKAGES = ("rlreps", "jax", "optax", "clu")
SIZES = {
    "updates": 50_000,  # A multiple of 1,000, since the peer returns the features of such updates.
    "states": 50,
    "features": 10,
    "rows": 5,
    "rate": 1e-3,
    "seed": 0,
}
KAPPA = 1.9


class Matrix(NamedTuple):
    """A matrix [n, n], its left singular vectors [n, n], and initial features [n, d]."""

    entries: np.ndarray
    vectors: np.ndarray
    start: np.ndarray


def prepare(states: int, features: int, seed: int, **_: Any) -> Matrix:
    """Draw a matrix and replace its singular values."""
    rng = np.random.default_rng(seed)
    left, _, right = np.linalg.svd(rng.standard_normal((states, states)))
    entries = (left * np.logspace(3, 0, states)) @ right
    start = rng.standard_normal((states, features))
    return Matrix(entries.astype(np.float32), left, start.astype(np.float32))


def ours(data: Matrix, updates: int, rows: int, rate: float, seed: int, **_: Any) -> Any:
    """Train in one compiled loop."""
    import jax
    import jax.numpy as jnp
    import optax

    from rlreps.encoders import Tabular
    from rlreps.losses import DanskinLissa
    from rlreps.sources.matrix import MatrixSource
    from rlreps.training import Learner

    states, features = data.start.shape
    roles = dict.fromkeys(("gradient_rows", "weight_rows", "covariance_rows"), rows)
    learner = Learner(
        encoder=Tabular(features, num_states=states),
        objective=DanskinLissa(features, kappa0=KAPPA, feature_norm="population", **roles),
        # The peer adds the gradients of its rows, where objectives take their mean.
        optimizer=optax.sgd(rate * rows),
        rows=5 * rows,
        tasks=1,
    )
    source = MatrixSource(jnp.arange(states), jnp.asarray(data.entries), with_population=True)
    chunk = jax.jit(lambda *given: learner.chunk(updates, *given)[0])

    def work() -> np.ndarray:
        state = learner.init(jnp.uint32(seed))._replace(params=jnp.asarray(data.start))
        return np.asarray(chunk(state, source, jnp.uint32(seed)).params)

    return work


def theirs(data: Matrix, updates: int, rows: int, rate: float, seed: int, **_: Any) -> Any:
    """Call the training function of the checkout."""
    import jax
    from aux_tasks.synthetic import run_synthetic

    def work() -> np.ndarray:
        with tempfile.TemporaryDirectory() as folder:
            found = run_synthetic.train(
                workdir=folder,
                initial_step=0,
                chkpt_manager=None,
                Phi=data.start,
                Psi=jax.numpy.asarray(data.entries),
                optimal_subspace=data.vectors[:, : data.start.shape[1]],
                num_epochs=updates,
                learning_rate=rate,
                key=jax.random.PRNGKey(seed),
                method="lissa",
                lissa_kappa=KAPPA,
                optimizer="sgd",
                covariance_batch_size=rows,
                main_batch_size=rows,
                weight_batch_size=rows,
            )
        return np.asarray(found[-1])

    return work


SIDES = {"rlreps Danskin-LISSA": ours, "google-research aux_tasks": theirs}


def quality(data: Matrix, result: np.ndarray, **_: Any) -> dict[str, float]:
    """Return one minus the share of the leading singular vectors in the span of the features."""
    basis = np.linalg.qr(result.astype(np.float64))[0]
    size = basis.shape[1]
    return {"distance": 1.0 - np.sum((basis.T @ data.vectors[:, :size]) ** 2) / size}
