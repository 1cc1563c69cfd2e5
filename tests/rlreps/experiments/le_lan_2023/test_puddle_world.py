"""The PuddleWorld experiment: masked members, claims and refusals; its smoke preset."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import MLP
from rlreps.envs import load_arena
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
    return jax.tree.map(
        lambda leaf: leaf[..., :D] if leaf.shape[-1:] == (LARGEST,) else leaf, params
    )


ROLES = {"gradient_rows": 8, "weight_rows": 8, "covariance_rows": 8}


@pytest.mark.parametrize(
    "objective",
    [
        DanskinLissa(**ROLES),
        pytest.param(
            Explicit(weight_start=1.0, dense_optimizer=True), marks=pytest.mark.integration
        ),
        pytest.param(LargeBatch(weight_rows="all"), marks=pytest.mark.integration),
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
        if isinstance(objective, Explicit):
            # Stored weights are drawn for as many features as there are.
            small = small._replace(objective=first_features(start.objective))
        after, expected = (
            learner.chunk(5, state, source, seed)[0].params
            for learner, state in ((masked, start), (alone, small))
        )
        return start.params, after, expected

    start, after, expected = train(matrix_source(MATRIX, INPUTS, with_population=True))
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


PAPER = dataclasses.replace(PRESETS["paper"], dimensions=(2, 50), headline_dimension=2)
SPREAD = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])


def claims_of(ends, spread=0.01, config=PAPER):
    """The claims on five runs of each method about their ends at d = 2 and 50."""
    methods = {
        config.label_of(name): Method(
            steps=np.array([0, 10**8]),
            distances={
                d: np.stack([np.full(5, 0.9), end + spread * SPREAD], axis=1)
                for d, end in zip((2, 50), pair, strict=True)
            },
            diverged={2: 0, 50: 0},
            features=np.zeros((4, 5)),
            seconds=1.0,
        )
        for name, pair in ends.items()
    }
    return puddle_world.compare_with_paper(config, methods)


FIGURE_4 = {"danskin_lissa": (0.1, 0.2), "explicit": (0.5, 0.6), "large_batch": (0.1, 0.8)}


@pytest.mark.parametrize(
    ("ends", "spread", "holds"),
    [
        ({}, 0.01, [True, True, True]),
        # Seeds are common to all d: what they share is no doubt about a rise.
        ({}, 0.4, [True, None, None]),
        ({"large_batch": (0.1, 0.15)}, 0.01, [False, False, True]),
        ({"large_batch": (0.75, 0.8)}, 0.01, [False, True, True]),
        ({"explicit": (0.5, 0.05)}, 0.01, [True, True, False]),
        ({"explicit": (0.5, 0.21)}, 0.01, [True, True, None]),
        ({"danskin_lissa": (0.1, 0.9)}, 0.01, [False, False, False]),
    ],
)
def test_each_statement_of_the_paper_is_decided_by_intervals_over_five_runs(ends, spread, holds):
    claims = claims_of({**FIGURE_4, **ends}, spread)
    assert [claim.holds for claim in claims] == holds
    lissa, _, _ = claims
    end = ends.get("danskin_lissa", (0.1, 0.2))
    assert f"Danskin-LISSA {end[0]:.3f} (d = 2), {end[1]:.3f} (d = 50); large batch" in lissa.found
    assert "weights from all states" in lissa.found


def test_intervals_are_students_whose_width_five_runs_need():
    # The two intervals are apart by the bootstrap, whose half width is 0.62 of Student's here.
    standard_error = 0.01 * SPREAD.std(ddof=1) / np.sqrt(5)
    for gap, holds in ((2.5, None), (6.0, True)):
        ends = {"explicit": (0.5, 0.2 + gap * standard_error)}
        assert claims_of({**FIGURE_4, **ends})[2].holds is holds


def test_other_settings_than_the_papers_and_missing_methods_decide_nothing():
    changed = {
        "steps": dataclasses.replace(PAPER.training, steps=10**8 - 20_000),
        "states": dataclasses.replace(PAPER.training, states="centres"),
    }
    others = [dataclasses.replace(PAPER, training=training) for training in changed.values()]
    others += [
        dataclasses.replace(PAPER, successor=MonteCarlo(bins=20, centring="rows")),
        dataclasses.replace(PAPER, objectives=(*PAPER.objectives[:2], LargeBatch())),
        PRESETS["trend"],
    ]
    for config in others:
        config = dataclasses.replace(config, dimensions=(2, 50), headline_dimension=2)
        assert [claim.holds for claim in claims_of(FIGURE_4, config=config)] == [None] * 3
    # What changes no run changes no verdict.
    seed = dataclasses.replace(PAPER.training, seed=7, evaluate_every=10, checkpoint_every=10)
    same = dataclasses.replace(PAPER, training=seed, members=2, columns=(10,))
    assert [claim.holds for claim in claims_of(FIGURE_4, config=same)] == [True] * 3
    for missing, expected in (
        ("danskin_lissa", [None, None, None]),
        ("large_batch", [None, None, True]),
    ):
        left = {name: pair for name, pair in FIGURE_4.items() if name != missing}
        assert [claim.holds for claim in claims_of(left)] == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"headline_dimension": 3}, "expected headline_dimension to be one of"),
        ({"dimensions": (5, 256)}, r"expected d in \[1, 256\), got 256"),
        ({"objectives": ()}, "at least one objective"),
        ({"objectives": (LargeBatch(), LargeBatch())}, "expected every method once"),
        ({"columns": (1,)}, "expected other columns than training.tasks, once"),
        ({"columns": (0,)}, "expected columns >= 1, got 0"),
        ({"members": 0}, "expected members >= 1, got 0"),
        ({"objectives": (DanskinChunked(),)}, "expected objectives"),
        ({"objectives": (LargeBatch(precondition=0.01),)}, "expected objectives"),
        ({"objectives": (DanskinLissa(whitening=True),)}, "expected objectives"),
    ],
)
def test_what_makes_no_experiment_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(SMOKE, **changes)


PROTOCOL = {
    # Sec. 5.3 and App. C.3. The text on centring is ambiguous; the authors' code subtracts the
    # means of rows. The text sums from t = 0, where their code does not.
    "successor.name": "monte_carlo",
    "successor.arena": "sutton",
    "successor.bins": 100,
    "successor.rollouts": 1000,
    "successor.horizon": 700,
    "successor.discount": 0.99,
    "successor.count_start": True,
    "successor.centring": "rows",
    "objectives.0.name": "danskin_lissa",
    "objectives.0.gradient_rows": 50,
    "objectives.0.weight_rows": 50,
    "objectives.0.covariance_rows": 50,
    "objectives.0.permutations": 1,
    "objectives.0.whitening": False,
    "objectives.0.kappa0": 1.9,
    "objectives.0.feature_norm": "batch",
    "objectives.1.name": "explicit",
    # The start and the optimizer of stored weights are in the authors' code alone.
    "objectives.1.weight_start": 1.0,
    "objectives.1.dense_optimizer": True,
    "objectives.2.name": "large_batch",
    "objectives.2.weight_rows": "all",
    "objectives.2.ridge": 0.0,
    "objectives.2.precondition": None,
    "objectives.2.leave_one_out": False,
    "training.encoder.name": "mlp",
    "training.encoder.hidden": [512, 512],
    "training.encoder.activation": "relu",
    "training.optimizer.name": "adam",
    "training.optimizer.learning_rate": 1e-4,
    "training.optimizer.schedule": "constant",
    "training.steps": 10**8,
    "training.rows": 250,
    "training.tasks": 1,
    "columns": [],
    "training.states": "uniform",
    "training.num_seeds": 5,
}
SILENT = {
    *("successor.seed", "successor.block_rows", "objectives.1.weight_learning_rate"),
    *("training.seed", "training.evaluate_every", "training.checkpoint_every"),
    *("dimensions", "headline_dimension", "members"),
    # How biases start.
    "training.encoder.bias_scale",
    # Replaced run by run.
    *(f"training.objective.{name}" for name in ("name", "weight_rows", "ridge", "precondition")),
    *("training.objective.leave_one_out", "training.num_features"),
}


def test_the_paper_preset_is_the_published_protocol(check_protocol):
    check_protocol("puddle-world", PROTOCOL, SILENT)
    assert PRESETS["paper"].is_published
    # Where the text says something else, or nothing, and the authors' code decides.
    assert set(puddle_world.DEVIATIONS) - set(PROTOCOL) == {
        "moves inside puddles",
        "means that are removed",
        "start of explicit weights",
    }


def test_the_noise_is_slowed_inside_a_puddle_as_its_deviation_says():
    world, noise = load_arena("sutton"), jax.random.normal(jax.random.key(0), (20_000, 2))
    start = jnp.asarray([0.2, 0.75])
    moves = jax.vmap(lambda each: world.move(start, jnp.int32(1), each) - start)(noise)
    np.testing.assert_allclose(moves.mean(axis=0), [0.025, 0.0], atol=1e-4)
    np.testing.assert_allclose(moves.std(axis=0), 0.005, rtol=0.02)
    assert "0.005 in place of 0.01" in puddle_world.DEVIATIONS["moves inside puddles"]


def test_the_trend_is_the_protocol_but_for_what_its_name_says():
    paper, trend = PRESETS["paper"], PRESETS["trend"]
    smaller = {"steps": 40_000, "num_seeds": 3, "evaluate_every": 1000, "checkpoint_every": 2000}
    published = set(PRESETS["paper"].methods)
    # Beside the paper's methods: our start of the weights, and more columns from either.
    more = "explicit (weights from N(0, 1²), one optimizer for all), 20 columns an update"
    assert set(trend.methods) - published == {"explicit", "explicit, 20 columns an update", more}
    assert {label: run.tasks for label, run in trend.methods.items() if run.tasks > 1} == {
        "explicit, 20 columns an update": 20,
        more: 20,
    }
    assert published < set(trend.methods)
    assert trend == dataclasses.replace(
        paper,
        objectives=trend.objectives,
        columns=trend.columns,
        successor=dataclasses.replace(paper.successor, bins=20),
        training=dataclasses.replace(paper.training, **smaller),
        dimensions=(2, 10, 50),
    )
    # All 400 centres fit the weights there; on the laptop's grid 10,000 would.
    labels = [PRESETS[name].label_of("large_batch") for name in ("trend", "paper", "laptop")]
    assert labels == [
        *["large batch (weights from all states)"] * 2,
        "large batch (weights from the gradient's rows)",
    ]


@pytest.mark.integration
def test_a_killed_run_ends_as_one_that_was_not_and_several_programs_find_the_same(
    tmp_path, monkeypatch
):
    config = dataclasses.replace(
        SMOKE,
        # The smoke preset has all three.
        objectives=(Explicit(), LargeBatch(weight_rows="all")),
        columns=(4,),
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

    def save_then_fail(checkpoints, step, state, **options):
        save(checkpoints, step, state, **options)
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
    several = [row["mean"] for row in whole["distances"][2:4]]
    assert whole["distances"][2]["method"] == "explicit, 4 columns an update"
    assert several != [row["mean"] for row in whole["distances"][:2]]
    split = dataclasses.replace(config, objectives=config.objectives[1:], columns=(), members=3)
    split = EXPERIMENT.run(split, tmp_path / "split", progress=False)
    for one, other in zip(whole["distances"][4:], split["distances"], strict=True):
        assert (one["method"], one["d"]) == (other["method"], other["d"])
        assert other["mean"] == pytest.approx(one["mean"], rel=2e-2)


@pytest.mark.experiments
def test_the_smoke_preset_leaves_every_method_and_d_and_resumes_as_it_was(tmp_path):
    summary = EXPERIMENT.run(SMOKE, tmp_path, progress=False)
    expected = {(label, d) for label in SMOKE.methods for d in (2, 5)}
    assert {(row["method"], row["d"]) for row in summary["distances"]} == expected
    assert all(0.0 < row["mean"] <= 1.0 and row["runs"] == 2 for row in summary["distances"])
    assert all(row["noise_floor"] > 0.0 for row in summary["distances"])
    table = json.loads((tmp_path / "results" / "distance_by_dimension.json").read_text())
    assert table == summary["distances"]
    assert [claim["holds"] for claim in summary["claims"]] == [None] * 3
    ends = {(row["method"], row["d"]): row["mean"] for row in table}
    assert f"{ends[SMOKE.label_of('explicit'), 2]:.3f}" in summary["claims"][2]["found"]
    page = (tmp_path / "report.html").read_text()
    for text in (
        *("1,000,000 times fewer", "16 x 16 cells where the paper", "weights from all states"),
        *("anywhere in the square", "less row means over tasks", "objectives.2.ridge"),
        'href="explore.html"',  # The folder has a store.
    ):
        assert text in page
    for name in ("distance_by_dimension", "curves", "components"):
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "summary.json").unlink()
    assert EXPERIMENT.run(SMOKE, tmp_path, progress=False) == summary
    other = dataclasses.replace(SMOKE, dimensions=(3, 5))
    with pytest.raises(InputError, match=r"expected dimensions=\[2, 5\], got \[3, 5\]"):
        EXPERIMENT.run(other, tmp_path, progress=False)
