"""An arena with walls from generation to pictures: a cell inside a wall is no state anywhere."""

import jax
import numpy as np
import pytest

from rlreps.app.generation import generate
from rlreps.app.job import run_job
from rlreps.app.jobs.train import Train
from rlreps.app.jobs.train_live import LiveConfig, live_ground_truth
from rlreps.app.plots import draw_components
from rlreps.app.trained_runs import load_encoder
from rlreps.cumulants import Discs
from rlreps.encoders import Tabular
from rlreps.envs import load_arena
from rlreps.runs.folder import RunFolder
from rlreps.sources.live import puddle_world_source
from rlreps.subspace.svd import ExactSVD
from rlreps.successor.measure.grids import Grid
from rlreps.successor.measure.methods import MonteCarlo, Transition
from rlreps.successor.truth.ground_truth import load_ground_truth
from rlreps.successor.truth.store import open_estimates
from rlreps.training.config import TrainingConfig

BINS = 15
WALLS = np.zeros((BINS, BINS), bool)
WALLS[:6, 6:9] = WALLS[9:, 6:9] = True
STATES = BINS**2 - 36
MEASURES = {
    "transition": Transition(arena="two_room", bins=BINS, points=64),
    "monte_carlo": MonteCarlo(arena="two_room", bins=BINS, rollouts=50, horizon=300),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("walls")

    def made(method):
        path = folder / method
        if not path.exists():
            figures = generate(MEASURES[method], path)
            assert figures["computed_rows"] == STATES
        return path

    return made


@pytest.mark.integration
def test_cells_in_walls_hold_nothing_and_the_first_component_tells_the_rooms_apart(stores):
    path, measure = stores("monte_carlo"), MEASURES["monte_carlo"]
    store = open_estimates(path)
    assert store.matrix.shape == (STATES, STATES)
    assert store.verify(measure.row_sum) == []
    inside = ", ".join(f"{row * BINS + 6}-{row * BINS + 8}" for row in range(BINS) if WALLS[row, 6])
    assert store.matrix.settings["wall_cells"] == inside
    truth = load_ground_truth(path, ExactSVD(rank=10))
    centres = Grid(BINS).centres()[~WALLS.ravel()].astype(np.float32)
    np.testing.assert_array_equal(truth.coordinates, centres)
    x = centres[:, 0]
    first = truth.principal.basis[:, 0] * np.sign(truth.principal.basis[0, 0])
    assert np.all(first[x < 0.4] > 0.0)
    assert np.all(first[x > 0.6] < 0.0)
    # All cells of a room have a part of the component, not a few of them.
    assert np.min(np.abs(first[(x < 0.4) | (x > 0.6)])) > 0.2 / np.sqrt(STATES)


@pytest.mark.integration
def test_live_starts_lie_outside_the_walls_and_their_target_has_the_stores_states(stores):
    world = load_arena("two_room")
    source = puddle_world_source(world, Discs(), horizon=2, discount=0.9)
    batch = jax.jit(lambda key: source.sample(key, 500, 1))(jax.random.key(0))
    free = jax.vmap(Grid(1).within(world).is_free)(batch.inputs)
    assert free.all()
    training = TrainingConfig(num_features=3)
    config = LiveConfig(arena="two_room", training=training, target_tasks=4_096)
    truth = live_ground_truth(config, open_estimates(stores("transition")).matrix)
    assert truth.num_states == len(truth.coordinates) == STATES


@pytest.mark.integration
def test_training_evaluation_and_figures_know_the_states_alone(stores, tmp_path):
    config = TrainingConfig(
        encoder=Tabular(),
        num_features=3,
        steps=4,
        rows=32,
        tasks=16,
        evaluate_every=2,
        checkpoint_every=2,
    )
    path = stores("transition")
    summary = run_job(Train(store=path, config=config), tmp_path / "run")
    assert 0.0 < summary["subspace_distance"] <= 1.0
    trained = load_encoder(RunFolder(tmp_path / "run"), load_ground_truth(path))
    assert trained.features().shape == (1, STATES, 3)
    drawn = draw_components(path, tmp_path / "components.png", [tmp_path / "run"], d=3)
    assert drawn.stat().st_size > 0
