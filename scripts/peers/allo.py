"""ALLO in a grid of rooms, beside the code of its paper."""

import contextlib
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TITLE = "ALLO"
WORK = (
    "{updates:,} updates by ALLO (Gomez et al. 2024) of a ReLU network with layers of {width} and "
    "{width} on the same walk through four rooms, {episodes:,} episodes of 50 steps: d = "
    "{features}, {batch} pairs of states in each update with a discount of 0.9, and equal rates. "
    "The code of the paper takes its constraints from another 2 x {batch} states in each update, "
    "rlreps from those of the pairs. Quality is the mean absolute cosine of feature k with "
    "eigenvector k of the walk."
)
PACKAGES = ("rlreps", "jax", "dm-haiku", "optax", "gymnasium")
SIZES = {
    "updates": 5_000,
    "episodes": 4_000,
    "features": 7,
    "batch": 256,
    "width": 128,
    "rate": 1e-3,
    "dual_rate": 1e-2,
    "barrier_rate": 1e-2,
    "seed": 0,
}
DISCOUNT, EPISODE, BARRIER = 0.9, 50, 2.0
MAP = """\
XXXXXXXXXXXXXXXX
X    X         X
X              X
X              X
X    X         X
XX XXXXXX XXXXXX
X       X      X
X       X      X
X       X      X
X       X      X
XXXXXXXXXXXXXXXX
"""


class Walk(NamedTuple):
    """Scaled places of the states [n, 2], the states of each episode, and the exact spectrum."""

    places: np.ndarray
    states: np.ndarray
    eigenvalues: np.ndarray
    eigenvectors: np.ndarray


def prepare(episodes: int, **_: Any) -> Walk:
    """Walk through the rooms at random: a wall stops a step, and episodes start anywhere."""
    free = np.array([[cell != "X" for cell in line] for line in MAP.splitlines()])
    cells, index = np.argwhere(free), np.cumsum(free).reshape(free.shape) - 1
    here = np.arange(len(cells))[:, None]
    moved = tuple((cells[:, None] + [[1, 0], [0, 1], [-1, 0], [0, -1]]).transpose(2, 0, 1))
    following = np.where(free[moved], index[moved], here)
    transition = np.zeros((len(cells), len(cells)))
    np.add.at(transition, (here, following), 0.25)
    values, vectors = np.linalg.eigh(transition)
    rng = np.random.default_rng(0)
    states = [rng.integers(0, len(cells), episodes)]
    for _step in range(EPISODE):
        states.append(following[states[-1], rng.integers(0, 4, episodes)])
    places = (cells / free.shape - 0.5).astype(np.float32)
    return Walk(places, np.stack(states, axis=1), values[::-1], vectors[:, ::-1])


def ours(data: Walk, *, features: int, updates: int, batch: int, width: int, **rates: Any) -> Any:
    """Train in one compiled loop."""
    import jax
    import jax.numpy as jnp

    from rlreps.encoders import MLP
    from rlreps.losses import AugmentedLagrangian
    from rlreps.sources import pair_source
    from rlreps.successor import Transitions
    from rlreps.training import Learner, Optimizer

    encoder = MLP(features, num_inputs=2, hidden=(width, width))
    of_constraints = {name: rates[name] for name in ("dual_rate", "barrier_rate")}
    learner = Learner(
        encoder=encoder,
        objective=AugmentedLagrangian(features, barrier_start=BARRIER, **of_constraints),
        optimizer=Optimizer(learning_rate=rates["rate"]),
        rows=batch,
        tasks=1,
    )
    walked = data.places[data.states]
    count = len(walked) * EPISODE
    steps = Transitions(
        observation=walked[:, :-1].reshape(-1, 2),
        action=np.zeros(count, np.int64),
        next_observation=walked[:, 1:].reshape(-1, 2),
        terminated=np.zeros(count, bool),
        truncated=np.arange(count) % EPISODE == EPISODE - 1,
    )
    source, seed = pair_source(steps, discount=DISCOUNT), jnp.uint32(rates["seed"])
    chunk = jax.jit(lambda *given: learner.chunk(updates, *given)[0])

    def work() -> np.ndarray:
        state = chunk(learner.init(seed), source, seed)
        return np.asarray(encoder.apply(state.params, data.places))

    return work


def theirs(data: Walk, *, features: int, updates: int, batch: int, width: int, **rates: Any) -> Any:
    """Run the trainer of the checkout on the same walk. Options that both sides share are ours."""
    import jax
    import optax
    import src
    import yaml
    from src.agent.agent import Step
    from src.agent.episodic_replay_buffer import EpisodicReplayBuffer
    from src.nets import MLP, generate_hk_module_fn
    from src.trainer import AugmentedLagrangianTrainer

    class Trainer(AugmentedLagrangianTrainer):
        """Keeps what it learns, and leaves its plot of the visited states out."""

        def additional_update_step(self, *given: Any) -> Any:
            self.learned = super().additional_update_step(*given)
            return self.learned

        def plot_visitation_counts(self, timer: Any) -> None:
            pass

    np.random.seed(rates["seed"])  # noqa: NPY002 (their replay draws from it)
    replay = EpisodicReplayBuffer(len(data.states))
    for places in data.places[data.states]:
        replay.add_steps(
            [Step({"xy_agent": place}, 0, step == EPISODE) for step, place in enumerate(places)]
        )
    options = yaml.safe_load((Path(src.__file__).parent / "hyperparam" / "al.yaml").read_text())
    options |= {
        "d": features,
        "batch_size": batch,
        "discount": DISCOUNT,
        "total_train_steps": updates,
        "lr_duals": rates["dual_rate"],
        "lr_barrier_coefs": rates["barrier_rate"],
        "barrier_initial_val": BARRIER,
        "seed": rates["seed"],
        "n_samples": 0,
        "env_name": "rooms",
        "use_wandb": False,
        "do_plot_eigenvectors": False,
        # Neither a report nor a permutation of the features.
        "print_freq": updates + 1,
        "permute_step": updates + 1,
    }
    net = generate_hk_module_fn(MLP, features, [width, width], options["activation"])
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        # The trainer reads its map and, for its reports, the eigenvectors from these places.
        grid = Path("src/env/grid")
        for name in ("txts", "eigval"):
            (grid / name).mkdir(parents=True)
        (grid / "txts" / "rooms.txt").write_text(MAP)
        pairs = {"eigval": data.eigenvalues, "eigvec": data.eigenvectors}
        np.savez(grid / "eigval" / "rooms.npz", **pairs)
        key = jax.random.PRNGKey(rates["seed"])
        given = {"encoder_fn": net, "optimizer": optax.adam(rates["rate"]), "rng_key": key}
        trainer = Trainer(**given, replay_buffer=replay, logger=None, **options)

    def work() -> np.ndarray:
        trainer.train()
        return np.asarray(net.apply(trainer.learned["encoder"], data.places))

    return work


SIDES = {"rlreps ALLO": ours, "laplacian_dual_dynamics": theirs}


def quality(data: Walk, result: np.ndarray, **_: Any) -> dict[str, float]:
    """Return the mean |cosine| of each feature [n, d] with its eigenvector."""
    found = result / np.linalg.norm(result, axis=0)
    true = data.eigenvectors[:, : found.shape[1]]
    return {"cosine": np.mean(np.abs(np.sum(found * true, axis=0)))}
