"""What learned features buy agents that see codes: tables, budgets, verdicts, smoke preset."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import MLP
from rlreps.experiments import EXPERIMENTS
from rlreps.experiments.ours import mazes
from rlreps.experiments.ours import transfer_opaque as transfer
from rlreps.experiments.ours.agent_arms import ArmRuns
from rlreps.experiments.ours.transfer_opaque import (
    EXACT,
    LABELS,
    LEARNED,
    PRESETS,
    SCRATCH,
    CellFeatures,
    Outcome,
    claims_of,
)

CODES = mazes.observation_of("spiral").table()


def test_a_code_finds_its_cell():
    cells, weights = jax.jit(transfer.of_code)(CODES)
    np.testing.assert_array_equal(cells[:, 0], np.arange(len(CODES)))
    np.testing.assert_array_equal(weights, 1.0)


def test_a_position_is_interpolated_between_the_centres_of_cells():
    centres = (np.arange(mazes.BINS) + 0.5) / mazes.BINS
    x, y = (part.ravel() for part in np.meshgrid(centres, centres))
    # What is bilinear in x and y is met everywhere between the outermost centres.
    table = 2.0 + 3.0 * x - y + 5.0 * x * y
    places = np.random.default_rng(0).uniform(centres[0], centres[-1], (200, 2)).astype(np.float32)
    cells, weights = transfer.of_position(jnp.asarray(places))
    found = np.sum(table[np.asarray(cells)] * np.asarray(weights), axis=1)
    expected = 2.0 + 3.0 * places[:, 0] - places[:, 1] + 5.0 * places[:, 0] * places[:, 1]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], np.float32)
    cells, weights = (np.asarray(part) for part in transfer.of_position(jnp.asarray(corners)))
    assert [int(row[at.argmax()]) for row, at in zip(cells, weights, strict=True)] == [
        0,
        mazes.BINS - 1,
        mazes.BINS**2 - mazes.BINS,
        mazes.BINS**2 - 1,
    ]


def test_a_frozen_table_gets_no_gradient_and_an_embedding_does():
    for frozen in (True, False):
        encoder = CellFeatures(MLP(3, num_inputs=5, hidden=()), transfer.of_code, 5, frozen)
        params = encoder.init(jax.random.key(0))

        def total(params, encoder=encoder):
            return jnp.sum(encoder.apply(params, CODES[7:9]))

        found = np.asarray(jax.grad(total)(params)["table"])
        assert set(np.flatnonzero(found.any(axis=1))) == (set() if frozen else {7, 8})
        features = encoder.apply(params, CODES[7:9])
        layer = params["torso"][0]
        np.testing.assert_allclose(features, params["table"][7:9] @ layer["kernel"], rtol=1e-5)


def test_all_arms_have_the_same_number_of_steps_with_and_without_rewards():
    config = PRESETS["laptop"]
    steps = {label: config.agents("spiral", 0, label).steps for label in LABELS}
    spared = {label for label, count in steps.items() if count == config.base.steps}
    assert spared == {LEARNED, EXACT}
    assert {*steps.values()} == {config.base.steps, config.base.steps + config.free_steps}
    seeds = {config.agents("spiral", 0, label).seed for label in LABELS}
    assert seeds == {0}
    assert config.base.num_seeds >= transfer.FEWEST_AGENTS


def test_mean_returns_are_over_all_steps_and_free_ones_count_as_never_arriving():
    base = PRESETS["laptop"].base
    base = dataclasses.replace(base, steps=8_000, evaluate_every=2_000)
    assert base.dqn.warmup < 2_000
    steps, returns = 2_000.0 * np.arange(5), np.array([[-290.0, -200.0, -100.0, -50.0, -40.0]])
    run = ArmRuns(
        label="", config=base, folder=None, steps=steps, returns=returns, measures={}, seconds=1.0
    )
    assert transfer.over_budget(run, 0) == pytest.approx(-97.5)
    # Evaluations at 2,000 and 4,000 free steps; those at 6,000 and later are the agent's own.
    assert transfer.over_budget(run, 6_000) == pytest.approx((-600.0 - 680.0) / 7)


def outcome(reached, seeds=20):
    """The outcome of agents of which so many reach the threshold, the first ones."""
    flags = (np.arange(seeds) < reached).astype(float)
    return Outcome(flags, -300.0 + 200.0 * flags, -300.0 + 200.0 * flags)


def found(learned, scratch, *, control=0, null=(20, 20), seeds=20):
    """Outcomes of all arms: counts of the arms of learned components and from scratch by maze."""
    arenas = {}
    for arena, ours, theirs in zip(mazes.MAZES, learned, scratch, strict=True):
        arenas[arena] = {label: outcome(control, seeds) for label in LABELS}
        arenas[arena] |= {LEARNED: outcome(ours, seeds), SCRATCH: outcome(theirs, seeds)}
    ours, theirs = null
    arenas[mazes.NULL] = {LEARNED: outcome(ours, seeds), SCRATCH: outcome(theirs, seeds)}
    return arenas


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (found((20, 20, 5), (0, 5, 5)), (True, True, True)),
        # 45 points are too few however significant, and one maze does not do.
        (found((9, 9, 20), (0, 0, 0)), (False, True, True)),
        # What needs no data does as well.
        (found((20, 20, 20), (0, 0, 0), control=20), (True, False, True)),
        # The others were better.
        (found((0, 0, 0), (20, 20, 20)), (False, False, True)),
        (found((20, 20, 20), (0, 0, 0), null=(20, 0)), (True, True, False)),
        # 40 points, and 50 within the interval.
        (found((20, 20, 20), (0, 0, 0), null=(13, 5)), (True, True, None)),
        (found((19, 19, 19), (0, 0, 0), seeds=19), (None, None, None)),
    ],
)
def test_the_goal_is_met_by_two_mazes_of_three(given, expected):
    agents = len(given[mazes.NULL][LEARNED].reached)
    assert tuple(claim.holds for claim in claims_of(given, agents)) == expected


def test_a_run_of_some_mazes_gives_no_verdict():
    some = found((20, 20, 20), (0, 0, 0))
    del some["spiral"]
    assert [claim.holds for claim in claims_of(some, 20)] == [None, None, True]


@pytest.mark.parametrize("missing", transfer.DATA_FREE)
def test_a_run_without_one_of_the_data_free_arms_cannot_tell_what_helps(missing):
    some = found((20, 20, 20), (0, 0, 0))
    for arena in mazes.MAZES:
        del some[arena][missing]
    assert [claim.holds for claim in claims_of(some, 20)] == [True, None, True]


@pytest.mark.integration
def test_thresholds_and_components_are_those_of_the_arenas_exact_model():
    config = PRESETS["laptop"]
    model = mazes.cell_model("five_corridors")
    goal = model.discs(mazes.GOALS[:1])[:, 0]
    steps = np.zeros(model.num_states)
    for _ in range(1_000):
        steps = 1.0 + np.einsum("ast,t->sa", model.to, (1.0 - goal) * steps).min(axis=1)
    best = transfer.optimal_return(config.agents("five_corridors", 0, SCRATCH))
    assert best == pytest.approx(-steps[goal == 0.0].mean(), rel=0.03)
    exact = transfer.exact_table(config, "five_corridors").astype(np.float64)
    gram = exact.T @ exact
    sizes = np.diag(gram)
    np.testing.assert_allclose(gram, np.diag(sizes), atol=1e-3 * sizes[0])
    assert np.mean(np.square(exact)) == pytest.approx(1.0)
    # The fit of one agent spans most of what counts: of the measure, its projection's square.
    chain = np.einsum("sa,ast->st", model.uniform, model.to)
    measure = np.linalg.inv(np.eye(len(chain)) - config.discount * chain) @ chain
    basis, _ = np.linalg.qr(transfer.learned_table(config, "five_corridors", 1_000))
    best_share = np.sum(np.linalg.svd(measure, compute_uv=False)[: config.num_features] ** 2)
    assert np.sum(np.square(basis.T @ measure)) > 0.9 * best_share


# Few steps: fits warn.
@pytest.mark.filterwarnings("ignore::rlreps.errors.FitWarning")
@pytest.mark.experiments
def test_the_smoke_preset_leaves_tables_and_a_figure_and_resumes(
    tmp_path, monkeypatch, files_below, written
):
    experiment, out = EXPERIMENTS["transfer-opaque"].load(), tmp_path / "run"
    config = PRESETS["smoke"]
    summary = experiment.run(config, out, progress=False)
    assert [claim["holds"] for claim in summary["claims"]] == [None, None]
    assert [row["arm"] for row in summary["arms"]] == list(config.labels)
    features = np.load(out / "features" / "five_corridors.npy")
    assert features.shape == (2, mazes.BINS**2, config.num_features)
    assert not np.array_equal(*features)
    for name in ("arms.csv", "arms.json"):
        assert (out / "results" / name).exists()
    assert {file.stem for file in (out / "figures").iterdir()} == {"returns"}
    assert json.loads((out / "summary.json").read_text()) == written(summary)
    # A finished run trains nothing, and one that lost its report no arm again.
    before = files_below(out / "runs")
    monkeypatch.setattr(transfer, "fit", None)
    (out / "summary.json").unlink()
    assert experiment.run(config, out, progress=False)["claims"] == summary["claims"]
    assert files_below(out / "runs") == before
