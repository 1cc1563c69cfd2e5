"""Where the floor of ``SuccessorRepresentation.distance`` comes from, computed exactly.

    python scripts/perfect_fit_distance.py [--bins 20] [--discount 0.95] [--components 10]

The script computes the features of a perfect fit from the chain's transition matrices and compares
them with the ground truth, as ``distance`` does for the features of a fit. A ground truth is the
singular value decomposition of the measure of states from t = 0, minus its column means, with equal
weights for all cells. A fit differs in five ways, which the table adds one by one: means are
removed after the decomposition; sums begin with the first successor; rows are pairs of a state and
an action, whose features are averaged over the actions; states are weighted by how often the data
visit them; and the averages use a policy that is estimated from the data.
"""

import numpy as np
import tyro

from rlreps.envs import load_arena
from rlreps.subspace import nested_distances
from rlreps.successor.measure.grids import Grid
from rlreps.successor.measure.transition_kernels.matrix import action_steps

POINTS = 4096


def floors(
    moves: np.ndarray, discount: float, components: int, steps: int, seed: int = 0
) -> dict[str, float]:
    """Compute the distance of perfect features from the ground truth, adding the differences.

    Args:
        moves: Transition probabilities of each action, [A, n, n]; the policy is uniform.
        discount: γ.
        components: Number d of components to compare, from d + 1 features.
        steps: Length of the data that the policy is estimated from.
        seed: Seed of the actions in those data.
    """
    actions, n, _ = moves.shape
    chain = moves.mean(axis=0)
    values, vectors = np.linalg.eig(chain.T)
    visits = np.abs(vectors[:, np.argmax(values.real)].real)
    visits /= visits.sum()
    alike, uniform = np.full(n, 1.0 / n), np.full((n, actions), 1.0 / actions)
    counts = np.random.default_rng(seed).multinomial(np.rint(steps * visits).astype(int), uniform)
    estimated = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    from_start = np.linalg.inv(np.eye(n) - discount * chain)
    truth = np.linalg.svd(from_start - from_start.mean(axis=0))[0][:, :components]

    def distance(rows: np.ndarray, weights: np.ndarray, policy: np.ndarray) -> float:
        """Compare features of rows [n, a, n]; columns are densities with respect to ``weights``."""
        shares = np.repeat(weights[:, None] / rows.shape[1], rows.shape[1], axis=1).ravel()
        density = np.sqrt(shares)[:, None] * rows.reshape(-1, n) / np.sqrt(weights)
        left, scales, _ = np.linalg.svd(density, full_matrices=False)
        features = (left / np.sqrt(shares)[:, None])[:, : components + 1] * scales[: components + 1]
        shown = np.einsum("sad,sa->sd", features.reshape(n, -1, components + 1), policy)
        basis = np.linalg.svd(shown - shown.mean(axis=0), full_matrices=False)[0]
        return float(nested_distances(basis[:, :components], truth)[-1])

    first = (chain @ from_start)[:, None]
    by_action = np.einsum("ast,tu->sau", moves, from_start)
    one = np.ones((n, 1))
    return {
        "means removed afterwards": distance(from_start[:, None], alike, one),
        "and from the first successor": distance(first, alike, one),
        "and by state and action": distance(by_action, alike, uniform),
        "and weighted by visits": distance(by_action, visits, uniform),
        f"and the policy of {steps:,} steps": distance(by_action, visits, estimated),
    }


def main(bins: int = 20, discount: float = 0.95, components: int = 10) -> None:
    """Print the table for the arena sutton."""
    counts = action_steps(load_arena("sutton"), Grid(bins), points=POINTS, seed=0)
    moves = np.stack([count.toarray() for count in counts])
    moves /= moves.sum(axis=2, keepdims=True)
    for name, floor in floors(moves, discount, components, 30_000).items():
        print(f"{name:35s} {floor:.6f}")


if __name__ == "__main__":
    tyro.cli(main)
