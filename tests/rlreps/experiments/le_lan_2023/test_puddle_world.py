"""The PuddleWorld experiment: masked members, claims and refusals; its smoke preset."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import MLP
from rlreps.errors import InputError
from rlreps.experiments.harness import Run
from rlreps.experiments.le_lan_2023 import puddle_world
from rlreps.experiments.le_lan_2023.puddle_world import EXPERIMENT, PRESETS, Group, Method
from rlreps.losses import DanskinChunked, DanskinLissa, Explicit, LargeBatch
from rlreps.runs.checkpoints import Checkpoints
from rlreps.sources.matrix import matrix_source
from rlreps.successor.measure import MonteCarlo
from rlreps.training import Optimizer
from rlreps.workflows.train import TrainingConfig, make_learner

SMOKE = PRESETS["smoke"]
STATES, TASKS, LARGEST, D, HIDDEN = 40, 30, 6, 3, 16
RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((STATES, TASKS)).astype(np.float32)
INPUTS = RNG.random((STATES, 2)).astype(np.float32)
ENCODER = MLP(LARGEST, num_inputs=2, hidden=(HIDDEN,))


def first_features(params):
    """Cut the parameters of an encoder down to those of its first D features."""
    return jax.tree.map(lambda leaf: leaf[..., :D] if leaf.shape[-1] == LARGEST else leaf, params)


ROLES = {"gradient_rows": 8, "weight_rows": 8, "covariance_rows": 8}


@pytest.mark.parametrize(
    "objective",
    [
        DanskinLissa(**ROLES),
        pytest.param(Explicit(), marks=pytest.mark.integration),
        pytest.param(LargeBatch(), marks=pytest.mark.integration),
    ],
    ids=lambda objective: objective.name,
)
def test_a_masked_member_learns_as_an_encoder_of_fewer_features_would(objective):
    config = TrainingConfig(
        encoder=MLP(hidden=(HIDDEN,)),
        objective=objective,
        optimizer=Optimizer(learning_rate=1e-2, schedule="constant"),
        num_features=LARGEST,
        steps=10,
        rows=40,
        tasks=2,
    )
    sizes, seed = {"num_inputs": 2, "num_tasks": TASKS}, jnp.uint32(1)
    masks = puddle_world.masks([D, LARGEST], LARGEST)
    both = puddle_world.masked_learners(make_learner(config, **sizes), masks)
    masked = jax.tree.map(lambda leaf: leaf[0], both)
    alone = make_learner(dataclasses.replace(config, num_features=D), **sizes)

    @jax.jit
    def train(source):
        start = masked.init(seed)
        small = alone.init(seed)._replace(params=first_features(start.params))
        after, expected = (
            learner.chunk(5, state, source, seed)[0].params
            for learner, state in ((masked, start), (alone, small))
        )
        return start.params, after, expected

    start, after, expected = train(matrix_source(MATRIX, INPUTS))
    pairs = zip(*map(jax.tree.leaves, (first_features(after), expected)), strict=True)
    for found, wanted in pairs:
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-5)
    moved = jax.tree.map(lambda new, old: jnp.abs(new - old).max(), after, start)
    assert max(map(float, jax.tree.leaves(moved))) > 1e-3


def test_the_distance_of_a_masked_member_is_that_of_its_own_features():
    key, inputs, dimensions = jax.random.key(0), jnp.asarray(INPUTS), (1, D, LARGEST)
    params = jax.jit(ENCODER.init)(key)
    basis = np.linalg.svd(MATRIX)[0][:, :LARGEST]
    evaluate = jax.jit(puddle_world.masked_evaluation(ENCODER, inputs, jnp.asarray(basis)))
    features = np.asarray(jax.jit(ENCODER.apply)(params, inputs), np.float64)
    for d, mask in zip(dimensions, puddle_world.masks(dimensions, LARGEST), strict=True):
        span, _ = np.linalg.qr(features[:, :d])
        expected = 1.0 - np.sum((span.T @ basis[:, :d]) ** 2) / d
        found = evaluate(params, mask)["subspace_distance"]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        # A member that was reset has no features left, and is as far as can be.
        reset = evaluate(jax.tree.map(np.zeros_like, params), mask)["subspace_distance"]
        assert float(reset) == pytest.approx(1.0)


def test_programs_hold_no_more_members_than_allowed_and_their_runs_are_put_together():
    config = dataclasses.replace(SMOKE, members=3)
    cells = puddle_world.cells(Run(config, None))
    assert [len(cell.members) for cell in cells.values()] == [3, 1] * 3
    drawn = np.ones((4, 5))
    groups = [
        Group(
            np.array([0, 10]),
            np.array([[0.9, d + 0.1 * seed] for d, seed in cell.members]),
            [seed == 1 for _, seed in cell.members],
            drawn if (5, 0) in cell.members else None,
            2.0,
        )
        for cell in list(cells.values())[:2]
    ]
    method = Method.of_groups(config, groups)
    assert {d: ends[:, -1].tolist() for d, ends in method.distances.items()} == {
        2: [2.0, 2.1],
        5: [5.0, 5.1],
    }
    assert (method.diverged, method.seconds) == ({2: 1, 5: 1}, 4.0)
    assert method.features is drawn


def claims_of(ends, spread, steps=10**8):
    """The claims on three runs of each method about their ends."""
    training = dataclasses.replace(SMOKE.training, steps=steps)
    config = dataclasses.replace(SMOKE, training=training)
    runs = spread * np.array([-1.0, 0.0, 1.0])
    methods = {
        name: Method(
            steps=np.array([0, steps]),
            distances={d: np.stack([np.full(3, 0.9), end + runs], axis=1) for d in (2, 5)},
            diverged={2: 0, 5: 0},
            features=np.zeros((4, 5)),
            seconds=1.0,
        )
        for name, end in ends.items()
    }
    return puddle_world.compare_with_paper(config, methods)


@pytest.mark.parametrize(
    ("danskin", "spread", "steps", "holds"),
    [
        (0.1, 0.01, 10**8, True),
        (0.4, 0.01, 10**8, False),
        (0.25, 0.01, 10**8, False),
        (0.19, 0.05, 10**8, None),
        (0.21, 0.05, 10**8, None),
        (0.1, 0.01, 10**8 - 50, None),
    ],
)
def test_the_verdict_on_the_papers_ordering_is_that_of_the_intervals(danskin, spread, steps, holds):
    ends = {"danskin_lissa": danskin, "explicit": 0.3, "large_batch": 0.2}
    claims = claims_of(ends, spread, steps)
    assert [claim.holds for claim in claims] == [holds, holds]
    nearest = f"Danskin-LISSA {danskin:.3f}" if danskin < 0.2 else "large batch 0.200"
    assert claims[0].found.startswith(nearest)


@pytest.mark.parametrize("names", [("danskin_lissa",), ("explicit", "large_batch")])
def test_without_danskin_lissa_and_another_method_there_is_no_verdict(names):
    assert [claim.holds for claim in claims_of(dict.fromkeys(names, 0.2), 0.0)] == [None, None]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"headline_dimension": 3}, "expected headline_dimension to be one of"),
        ({"dimensions": (5, 256)}, r"expected d in \[1, 256\), got 256"),
        ({"objectives": ()}, "at least one objective"),
        ({"objectives": (LargeBatch(), LargeBatch())}, "expected every method once"),
        ({"members": 0}, "expected members >= 1, got 0"),
        ({"objectives": (DanskinChunked(),)}, "expected objectives"),
        ({"objectives": (LargeBatch(precondition=0.01),)}, "expected objectives"),
        ({"objectives": (DanskinLissa(whitening=True),)}, "expected objectives"),
    ],
)
def test_what_makes_no_experiment_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(SMOKE, **changes)


def test_the_paper_preset_is_the_published_protocol():
    paper = PRESETS["paper"]
    training, successor, roles = paper.training, paper.successor, paper.objectives[0]
    assert (training.steps, training.rows, training.tasks) == (10**8, 250, 1)
    assert (training.encoder.name, training.encoder.hidden) == ("mlp", (512, 512))
    assert (training.optimizer.name, training.optimizer.schedule) == ("adam", "constant")
    assert training.optimizer.learning_rate == 1e-4
    assert PRESETS["laptop"].training.optimizer == training.optimizer
    assert (successor.discount, successor.bins, successor.rollouts) == (0.99, 100, 1000)
    assert (roles.gradient_rows, roles.weight_rows, roles.covariance_rows) == (50, 50, 50)


@pytest.mark.integration
def test_a_killed_run_ends_as_one_that_was_not_and_several_programs_find_the_same(
    tmp_path, monkeypatch
):
    config = dataclasses.replace(
        SMOKE,
        objectives=(Explicit(), LargeBatch()),  # The smoke preset has all three.
        successor=MonteCarlo(bins=8, rollouts=20, horizon=60, discount=0.9, block_rows=32),
        training=dataclasses.replace(
            SMOKE.training,
            encoder=MLP(hidden=(16,)),
            steps=40,
            evaluate_every=20,
            checkpoint_every=20,
        ),
    )
    whole = EXPERIMENT.run(config, tmp_path / "whole", progress=False)
    save, saved = Checkpoints.save, []

    def save_then_fail(checkpoints, step, state):
        save(checkpoints, step, state)
        saved.append(step)
        if len(saved) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save_then_fail)
        with pytest.raises(KeyboardInterrupt):
            EXPERIMENT.run(config, tmp_path / "run", progress=False)
    resumed = EXPERIMENT.run(config, tmp_path / "run", progress=False)
    assert resumed["distances"] == whole["distances"]
    for file in (tmp_path / "whole" / "results").iterdir():
        assert (tmp_path / "run" / "results" / file.name).read_bytes() == file.read_bytes()
    split = dataclasses.replace(config, objectives=(LargeBatch(),), members=3)
    split = EXPERIMENT.run(split, tmp_path / "split", progress=False)
    for one, other in zip(whole["distances"][2:], split["distances"], strict=True):
        assert (one["method"], one["d"]) == (other["method"], other["d"])
        assert other["mean"] == pytest.approx(one["mean"], rel=2e-2)


@pytest.mark.experiments
def test_the_smoke_preset_leaves_every_method_and_d_and_resumes_as_it_was(tmp_path):
    summary = EXPERIMENT.run(SMOKE, tmp_path, progress=False)
    expected = {(name, d) for name in puddle_world.MASKABLE for d in (2, 5)}
    assert {(row["method"], row["d"]) for row in summary["distances"]} == expected
    assert all(0.0 < row["mean"] <= 1.0 and row["runs"] == 2 for row in summary["distances"])
    assert all(row["noise_floor"] > 0.0 for row in summary["distances"])
    table = json.loads((tmp_path / "results" / "distance_by_dimension.json").read_text())
    assert table == summary["distances"]
    assert [claim["holds"] for claim in summary["claims"]] == [None] * 2
    ends = {(row["method"], row["d"]): row["mean"] for row in table}
    assert f"{ends['explicit', 2]:.3f}" in summary["claims"][0]["found"]
    assert "1,000,000 times fewer" in (tmp_path / "report.html").read_text()
    for name in ("distance_by_dimension", "curves", "components"):
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "summary.json").unlink()
    assert EXPERIMENT.run(SMOKE, tmp_path, progress=False) == summary
    other = dataclasses.replace(SMOKE, dimensions=(3, 5))
    with pytest.raises(InputError, match=r"expected dimensions=\[2, 5\], got \[3, 5\]"):
        EXPERIMENT.run(other, tmp_path, progress=False)
