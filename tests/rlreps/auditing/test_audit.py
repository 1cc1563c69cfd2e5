"""Audits: measures against oracles, and every known defect planted and named."""

import dataclasses
import json
import re

import jax.numpy as jnp
import numpy as np
import pytest

import rlreps
from rlreps.app.jobs import audit as jobs_audit
from rlreps.app.main import main
from rlreps.auditing.measures import examine, find_aliases, held_out
from rlreps.auditing.recorded import _count_alike as count_alike
from rlreps.auditing.recorded import estimate_truth
from rlreps.errors import InputError
from rlreps.formatting import format_number
from rlreps.subspace import spans_of, standardise
from rlreps.successor import BoxGrid, Transitions, load_ground_truth, save_matrix
from rlreps.worlds import World

STATES, UNITS = 150, 16
GRID = BoxGrid((0.0,), (6.2832,), (STATES,), ("angle",))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The exact measure of a walk on a circle, slow in one third of it."""
    index, chain = np.arange(STATES), np.zeros((STATES, STATES))
    pace = np.where(index < STATES // 3, 0.3, 1.0)
    for step, share in ((-3, 0.2), (1, 0.3), (4, 0.5)):
        chain[index, (index + step) % STATES] += share * pace
    chain[index, index] += 1.0 - pace
    path = tmp_path_factory.mktemp("audit") / "ring"
    save_matrix(path, np.linalg.inv(np.eye(STATES) - 0.95 * chain), GRID)
    return path


@pytest.fixture(scope="module")
def truth(store):
    return load_ground_truth(store)


@pytest.fixture(scope="module")
def maze(tmp_path_factory):
    """The exact measure of a walk in two rooms, transitions of it, and the state of each row."""
    free = np.ones((8, 9), bool)
    free[:, 4] = np.arange(8) == 3
    cells = np.flatnonzero(free)
    places = np.stack(np.divmod(cells, 9)[::-1], axis=1)
    number = {tuple(place): index for index, place in enumerate(places.tolist())}
    moves = np.array(
        [
            [number.get((x + dx, y + dy), number[x, y]) for x, y in places.tolist()]
            for dx, dy in ((1, 0), (0, 1), (-1, 0), (0, -1))
        ]
    )
    chain = np.mean([np.eye(len(cells))[move] for move in moves], axis=0)
    path = tmp_path_factory.mktemp("maze") / "store"
    grid = BoxGrid((0.0, 0.0), (9.0, 8.0), (9, 8), ("x", "y"))
    save_matrix(path, np.linalg.inv(np.eye(len(cells)) - 0.95 * chain), grid, cells=cells)
    random = np.random.default_rng(1)
    actions = random.integers(4, size=(100, 250))
    states = [random.integers(len(cells), size=250)]
    for action in actions:
        states.append(moves[action, states[-1]])
    before, after = (np.ravel(part, order="F") for part in (states[:-1], states[1:]))
    seen = (places + 0.5).astype(np.float32)
    data = Transitions(
        observation=seen[before],
        action=np.ravel(actions, order="F"),
        next_observation=seen[after],
        terminated=np.zeros(len(before), bool),
        truncated=np.arange(1, len(before) + 1) % 100 == 0,
    )
    return load_ground_truth(path), data, before


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture
def sound(truth, random):
    """The leading components, mixed."""
    mixing = np.linalg.qr(random.normal(size=(UNITS, UNITS)))[0]
    return 5.0 * truth.principal.basis[:, :UNITS].astype(np.float64) @ mixing


# Spans.


def rank_of(features):
    return len(spans_of(standardise(features), np.eye(len(features), 1)).factor)


def test_missed_shares_are_those_of_least_squares_with_and_without_an_intercept(truth, sound):
    components = truth.principal.basis[:, :6].astype(np.float64)
    spans = spans_of(standardise(sound + 2.0), components)
    for found, columns in (
        (spans.missed_with_intercept, np.column_stack([sound, np.ones(STATES)])),
        (spans.missed_without_intercept, sound + 2.0),
    ):
        fitted = columns @ np.linalg.lstsq(columns, components, rcond=None)[0]
        missed = np.sum((components - fitted) ** 2, axis=0)
        np.testing.assert_allclose(found, missed, atol=1e-9)


def test_no_shift_or_invertible_map_changes_what_is_captured_with_an_intercept(truth, random):
    features = random.normal(size=(STATES, UNITS)).astype(np.float32)
    mapped = features @ random.normal(size=(UNITS, UNITS)) + 7.0 * random.normal(size=UNITS)
    for measure in (
        lambda given: rlreps.audit(given, truth).findings["features"].components,
        lambda given: truth.distance(given, 10, intercept=True),
    ):
        np.testing.assert_allclose(measure(mapped), measure(features), atol=1e-6)
    assert abs(truth.distance(features + 5.0, 10) - truth.distance(features, 10)) > 1e-4


def test_the_distance_is_one_minus_the_mean_captured_share(truth, sound):
    found = rlreps.audit(sound.astype(np.float32), truth).findings["features"]
    for k in (1, 5, 10):
        distance = truth.distance(sound.astype(np.float32), k, intercept=True)
        assert distance == pytest.approx(1.0 - found.leading(k), abs=1e-5)
        plain = truth.distance(sound.astype(np.float32), k)
        assert plain == pytest.approx(1.0 - found.without_intercept[:k].mean(), abs=1e-5)


SHAPES = {
    "float64 of 1e60": lambda sound: 1e60 * sound,
    "float64 of 1e-60": lambda sound: 1e-60 * sound,
    "float64 far from 0": lambda sound: sound + 1e6,
    "int64 far from 0": lambda sound: np.rint(1e3 * sound).astype(np.int64) + 1_700_000_000,
    "float16": lambda sound: sound.astype(np.float16),
}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("intercept", [False, True])
def test_the_distance_is_exact_for_features_of_any_type_and_size(truth, sound, kind, intercept):
    features = SHAPES[kind](sound[:, :8])
    columns = features.astype(np.float64)
    columns /= np.abs(columns).max()
    if intercept:
        columns = np.column_stack([columns - columns.mean(axis=0), np.ones(STATES)])
    components = truth.principal.basis[:, :5].astype(np.float64)
    fitted = columns @ np.linalg.lstsq(columns, components, rcond=None)[0]
    missed = np.sum((components - fitted) ** 2) / 5
    assert truth.distance(features, 5, intercept=intercept) == pytest.approx(missed, abs=1e-6)


def test_units_beyond_the_rank_add_nothing(truth, sound):
    alike = np.concatenate([sound, sound[:, :4] @ np.ones((4, 3)), np.full((STATES, 1), 1e7)], 1)
    for given in (alike, alike.astype(np.float32)):
        assert rank_of(given) == np.linalg.matrix_rank(sound - sound.mean(axis=0))


@pytest.mark.parametrize("condition", [1e3, 1e9, 1e12])
def test_features_hold_what_their_own_type_tells_from_rounding(truth, random, condition):
    spectrum = np.geomspace(1.0, 1.0 / condition, 10)
    mixing = np.linalg.qr(random.normal(size=(10, 10)))[0]
    features = truth.principal.basis[:, :10].astype(np.float64) * spectrum @ mixing
    found = rlreps.audit(features, truth).findings["features"]
    assert found.leading() == pytest.approx(1.0, abs=1e-4)
    assert found.health.rank == 10
    assert found.health.condition == pytest.approx(condition, rel=1e-2)
    # In single precision all that is below rounding is gone.
    left = np.sum(spectrum > 3.0 * np.finfo(np.float32).eps * np.sqrt(10.0))
    single = rlreps.audit(features.astype(np.float32), truth).findings["features"]
    assert abs(single.health.rank - left) <= 1


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_rounding_of_means_adds_little_rank(sound, random, kind):
    features = sound[:, :3] @ random.normal(size=(3, 40)) + 1e4
    # Beside those few units that vary least.
    assert 3 <= rank_of(features.astype(kind)) <= 5


@pytest.mark.parametrize("factor", [1e200, 1e160, 1e-160, 1e-200, 1e-310])
def test_any_finite_scale_is_a_scale_and_nothing_else(truth, sound, factor):
    some = np.c_[factor * sound[:, :8], sound[:, 8:]]
    found = rlreps.audit({"one": sound, "all": factor * sound, "some": some}, truth).findings
    for label in ("all", "some"):
        assert found[label].leading() == pytest.approx(found["one"].leading())
        names = {each.name for each in found[label].defects}
        assert names <= {"scale", "dormant", "ill-conditioned"}
    spread = factor * np.sqrt(np.mean(sound.var(axis=0)))
    assert found["all"].health.spread == pytest.approx(spread, rel=1e-3)


def test_random_units_capture_by_chance_and_predict_nothing(truth, random):
    components = truth.principal.basis[:, :10].astype(np.float64)
    noise = standardise(random.normal(size=(STATES, 100)))
    shares = 1.0 - spans_of(noise, components).missed_with_intercept
    assert shares.mean() == pytest.approx(100 / (STATES - 1), abs=0.05)
    assert held_out(noise.units, components).mean() < 0.1
    np.testing.assert_allclose(
        held_out(standardise(components[:, :5]).units, components[:, :5]), 1.0, atol=1e-3
    )


def test_brain_floats_are_features(truth, sound):
    single = np.asarray(jnp.asarray(sound, jnp.bfloat16), np.float32)
    expected = rlreps.audit(single, truth).findings["features"].leading()
    found = rlreps.audit(jnp.asarray(sound, jnp.bfloat16), truth).findings["features"]
    assert found.leading() == expected


def test_brain_floats_of_pytorch_are_refused_with_the_remedy(truth):
    class Tensor:  # As torch.zeros(STATES, 2, dtype=torch.bfloat16), which NumPy cannot read.
        def __array__(self, *_, **__):
            raise TypeError("Got unsupported ScalarType BFloat16")

    with pytest.raises(InputError, match=r"unsupported ScalarType BFloat16: .*\.float\(\)"):
        rlreps.audit(Tensor(), truth)


@pytest.mark.parametrize("mean", [1e4, 1e6, 1e7])
def test_a_large_mean_in_single_precision_is_an_offset_and_no_collapse(truth, sound, mean):
    features = (sound + mean).astype(np.float32)
    found = rlreps.audit(features, truth).findings["features"]
    assert [each.name for each in found.defects] == ["offset"]
    assert ("of 16 units vary within" in found.defects[0].found) is (mean == 1e7)
    if mean < 1e7:
        centred = features.astype(np.float64) - features.mean(axis=0, dtype=np.float64)
        span = np.linalg.svd(centred, full_matrices=False)[0]
        components = truth.principal.basis[:, :10].astype(np.float64)
        assert found.leading() == pytest.approx(np.square(span.T @ components).sum() / 10)
        assert found.leading() > 0.98
    # Integers are exact.
    whole = 1_000_000_000 + np.rint(100.0 * sound).astype(np.int64)
    assert rank_of(whole) == UNITS


def test_half_precision_keeps_its_rank(sound):
    assert rank_of(sound.astype(np.float16)) == UNITS


def test_components_of_a_truth_that_is_centred_by_rows_may_be_the_constant(truth, sound):
    constant = np.full((STATES, 1), STATES**-0.5, np.float32)
    basis = np.linalg.qr(np.concatenate([constant, truth.principal.basis[:, :19]], axis=1))[0]
    principal = dataclasses.replace(truth.principal.truncated(20), basis=basis)
    other = dataclasses.replace(truth, principal=principal)
    found = rlreps.audit(sound, other).findings["features"]
    assert found.components[0] == pytest.approx(1.0)
    assert found.without_intercept[0] < 0.5
    assert other.distance(sound, 1, intercept=True) < 1e-6 < other.distance(sound, 1)


# Health.


def of_spectrum(values, random):
    """Centred features [n, p] of given singular values."""
    left = np.linalg.qr(random.normal(size=(STATES, len(values))) - 0.0)[0]
    left = np.linalg.qr(left - left.mean(axis=0))[0]
    return left * values @ np.linalg.qr(random.normal(size=(len(values), len(values))))[0]


def health_of(features):
    given = standardise(features)
    return examine(features, given, spans_of(given, np.eye(len(features), 1)))


def test_ranks_and_the_slope_are_those_of_known_spectra(random):
    health = health_of(of_spectrum(np.full(8, 3.0), random))
    assert health.effective_rank == pytest.approx(8.0)
    assert health.rankme == pytest.approx(8.0, rel=1e-4)
    assert health.stable_rank == pytest.approx(8.0)
    assert health.condition == pytest.approx(1.0)
    powers = np.arange(1, 9) ** -0.75
    health = health_of(of_spectrum(powers, random))
    assert health.alpha == pytest.approx(1.5, rel=1e-6)
    assert health.condition == pytest.approx(8.0**0.75)
    shares = powers / powers.sum()
    assert health.effective_rank == pytest.approx(np.exp(-np.sum(shares * np.log(shares))))
    assert health.stable_rank == pytest.approx(np.sum(powers**2))


def test_aliased_states_are_joined_on_the_map(maze, tmp_path):
    truth, _, _ = maze
    mirrored = np.asarray(truth.observations)
    mirrored = np.stack([np.minimum(mirrored[:, 0], 9.0 - mirrored[:, 0]), mirrored[:, 1]], axis=1)
    found = rlreps.audit({"mirrored": waves(mirrored), "sound": waves(truth.observations)}, truth)
    (axes,) = found.aliases_figure().axes  # None for features without aliased states.
    lines = np.array([line.get_xydata() for line in axes.lines[:-1]])
    assert axes.get_title() == "mirrored"
    assert 20 <= len(lines) <= 40
    np.testing.assert_allclose(lines.sum(axis=1)[:, 0], 9.0, atol=1e-5)
    np.testing.assert_allclose(lines[:, 0, 1], lines[:, 1, 1], atol=1e-5)
    assert "aliases.png" in {path.name for path in found.write(tmp_path)}


def test_dormant_and_repeated_units_are_counted(random):
    active = np.abs(random.normal(size=(STATES, 6)))
    # Dormant: a zero, a constant, and a whisper. Repeated: a multiple, and a negative.
    units = [active, np.zeros((STATES, 1)), np.full((STATES, 1), 3.0), 1e-3 * active[:, :1] ** 2]
    health = health_of(np.concatenate(units, axis=1))
    assert health.dormant == pytest.approx(3 / 9)
    assert health.duplicated == 0.0
    repeated = np.concatenate([active, 5.0 * active[:, :1] + 1.0, -active[:, 1:2]], axis=1)
    assert health_of(repeated).duplicated == pytest.approx(2 / 8)


def test_aliases_are_the_states_that_features_do_not_tell_apart(truth, sound):
    rows = (truth.principal.basis * truth.principal.singular_values).astype(np.float64)[:, :10]
    assert find_aliases(standardise(sound).units, rows)[0] == 0.0
    # Neighbours in the truth may be one in the features.
    alike = sound.copy()
    alike[101] = alike[100]
    assert find_aliases(standardise(alike).units, rows)[0] == 0.0
    merged = sound.copy()
    merged[100:110] = merged[20:30]
    share, found = find_aliases(standardise(merged).units, rows)
    assert share == pytest.approx(20 / STATES)
    assert {frozenset(pair) for pair in found.tolist()} == {
        frozenset((20 + k, 100 + k)) for k in range(10)
    }


@pytest.fixture(scope="module")
def corridor():
    """Twenty cells, four headings, of which two face walls, and actions that do nothing."""
    cell, heading = np.divmod(np.arange(80), 4)
    forward = 4 * np.clip(cell + np.array([1, 0, -1, 0])[heading], 0, 19) + heading
    turns = [4 * cell + (heading + turn) % 4 for turn in (1, -1)]
    steps = np.stack([*turns, forward, *[np.arange(80)] * 4], axis=1)
    world = World.from_arrays(
        next_states=steps,
        rewards=np.zeros((80, 7)),
        coordinates=np.stack([cell, heading], axis=1),
        names=("cell", "heading"),
    )
    chain = np.mean([np.eye(80)[step] for step in steps.T], axis=0)
    measure = np.linalg.inv(np.eye(80) - 0.95 * chain)
    left, values, _ = np.linalg.svd(measure - measure.mean(axis=0))
    return world.truth(discount=0.95), left * values


@pytest.mark.parametrize("units", [5, 32])
def test_exact_leading_components_are_not_aliased(corridor, units):
    truth, rows = corridor
    # Headings that face walls differ in visits of their own, which are in later components.
    facing = np.arange(80).reshape(20, 4)[:, [1, 3]]
    np.testing.assert_allclose(*(rows[facing[:, side], :16] for side in (0, 1)), atol=1e-6)
    for features in (
        truth.principal.basis[:, :units],
        np.tanh(5.0 * truth.principal.basis[:, :units] @ np.eye(units, 64)),
    ):
        found = rlreps.audit(features, truth).findings["features"]
        assert found.aliased == 0.0
        assert "aliased" not in [each.name for each in found.defects]


def test_features_without_the_heading_are_aliased(corridor):
    truth, rows = corridor
    cell = np.arange(80) // 4
    waves = np.cos(np.pi / 20.0 * (cell[:, None] + 0.5) * np.arange(1.0, 13.0))
    found = rlreps.audit(waves, truth).findings["features"]
    assert "aliased" in [each.name for each in found.defects]
    apart = np.linalg.norm(rows[:, None, :10] - rows[None, :, :10], axis=2)
    median = np.median(apart[~np.eye(80, dtype=bool)])
    one = (cell[:, None] == cell) & (apart > 0.2 * median)
    assert found.aliased == one.any(axis=1).mean() > 0.4
    first, second = found.aliases.T
    assert one[first, second].all()


AWKWARD = {
    "condition 1e8": lambda wave, mix: (wave * np.geomspace(1.0, 1e-8, 30) @ mix).astype(
        np.float32
    ),
    "scales": lambda wave, mix: wave * np.where(np.arange(30) % 2, 1e-6, 1e6),
    "twice": lambda wave, mix: np.repeat(wave[:, ::2], 2, axis=1).astype(np.float32),
    "constants": lambda wave, mix: np.c_[wave, np.full((STATES, 2), 0.1), np.zeros(STATES)],
    "rank 5": lambda wave, mix: wave[:, :5] @ mix[:5],
    "more units than states": lambda wave, mix: np.random.default_rng(4).normal(size=(STATES, 200)),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_features_are_measured_as_by_decompositions_of_all_states(truth, random, name):
    components = truth.principal.basis[:, :50].astype(np.float64)
    mixing = np.linalg.qr(random.normal(size=(30, 30)))[0]
    wave = np.c_[10.0 * components[:, :20], random.normal(size=(STATES, 10))]
    features = AWKWARD[name](wave, mixing)
    found = rlreps.audit(features, truth).findings["features"]
    doubles = features.astype(np.float64)
    centred = doubles - doubles.mean(axis=0)
    lengths = np.linalg.norm(centred, axis=0)
    columns = (centred / np.where(lengths > 1e-9, lengths, np.inf))[:, lengths > 1e-9]
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    sizes = np.abs(doubles).mean(axis=0)[lengths > 1e-9] * STATES**0.5 / lengths[lengths > 1e-9]
    least = 10.0 * np.finfo(np.float64).eps * STATES**0.5 * values[0]
    stored = 2.0 * np.sqrt(np.mean(sizes**2))
    rounding = np.finfo(features.dtype).eps * max(stored, 3.0 * np.sqrt(len(sizes)))
    kept = values > max(least, rounding)
    assert found.health.rank == kept.sum()
    span = np.c_[left[:, kept], np.full(STATES, STATES**-0.5)]
    shares = np.sum((span.T @ components) ** 2, axis=0) / np.sum(components**2, axis=0)
    np.testing.assert_allclose(found.components, np.minimum(shares, 1.0), rtol=0.0, atol=1e-9)
    shares = np.linalg.svd(doubles, compute_uv=False)
    shares = shares / shares.sum() + 1e-7
    rankme = np.exp(-np.sum(shares * np.log(shares)))
    assert found.health.rankme == pytest.approx(rankme, rel=1e-9)
    alike = np.triu(np.abs(columns.T @ columns), 1) > 0.999
    assert found.health.duplicated == alike.any(axis=0).sum() / features.shape[1]
    # Ridge regressions of either half by least squares, their penalties by refitting.
    scaled = columns * STATES**0.5
    halves = np.array_split(np.random.default_rng(0).permutation(STATES), 2)
    scores = []
    for train, test in (halves, halves[::-1]):
        ridges = [
            fit_ridge(scaled[train], components[train], 10.0**power) for power in range(-8, 2)
        ]
        best = np.argmin([error for _, error in ridges], axis=0)
        missed = [(components[test] - predict(scaled[test])) ** 2 for predict, _ in ridges]
        spread = np.sum((components[test] - components[test].mean(axis=0)) ** 2, axis=0)
        of_all = 1.0 - np.sum(missed, axis=1) / spread
        scores.append(np.maximum(of_all[best, np.arange(50)], -1.0))
    np.testing.assert_allclose(found.held_out, np.mean(scores, axis=0), rtol=0.0, atol=1e-6)


def fit_ridge(features, targets, share):
    """Return predictions of a ridge regression, and the errors of leaving each row out."""
    centre = features.mean(axis=0)
    size = features.shape[1]
    root = np.sqrt(share) * np.linalg.norm(features - centre, 2)
    rows = np.r_[features - centre, root * np.eye(size)]
    whole = np.c_[rows, np.r_[np.ones(len(features)), np.zeros(size)]]
    zeros = np.zeros((size, targets.shape[1]))
    weights = np.linalg.lstsq(whole, np.r_[targets, zeros], rcond=None)[0]
    leverages = np.sum(np.linalg.qr(whole)[0][: len(features)] ** 2, axis=1)
    missed = targets - whole[: len(features)] @ weights
    error = np.mean((missed / (1.0 - leverages)[:, None]) ** 2, axis=0)
    return lambda given: (given - centre) @ weights[:-1] + weights[-1], error


# Defects.


def planted(truth, sound, random):
    """Name of the defect → features that have it."""
    noise = random.normal(size=sound.shape)
    basis = np.delete(truth.principal.basis[:, :17].astype(np.float64), 4, axis=1)
    mirrored = np.minimum(np.arange(STATES), STATES - 1 - np.arange(STATES))
    return {
        "collapsed": sound[:, :1] * random.normal(size=UNITS) + 1e-4 * noise,
        "low rank": sound[:, :3] @ random.normal(size=(3, UNITS)),
        "offset": sound + 100.0,
        "dormant": sound * (np.arange(UNITS) % 2),
        "aliased": sound[mirrored],
        "missing component": basis @ np.linalg.qr(random.normal(size=(UNITS, UNITS)))[0],
        "scale": 1e6 * sound,
        "duplicated": np.repeat(sound[:, ::2], 2, axis=1),
        "no better than chance": sound[random.permutation(STATES)],
        "overfitted": np.concatenate([sound, random.normal(size=(STATES, 100))], axis=1),
        "ill-conditioned": (
            truth.principal.basis[:, :UNITS].astype(np.float64)
            * np.geomspace(1e-7, 1.0, UNITS)
            @ np.linalg.qr(random.normal(size=(UNITS, UNITS)))[0]
        ),
    }


def test_every_planted_defect_is_named_and_sound_features_have_none(truth, sound, random):
    assert rlreps.audit(sound, truth).findings["features"].defects == []
    for name, features in planted(truth, sound, random).items():
        found = rlreps.audit(features, truth).findings["features"]
        assert name in [each.name for each in found.defects], name


def test_a_large_unit_hides_no_other_unit_and_no_defect(truth, sound, random):
    large = np.r_[1e3, np.ones(UNITS - 1)]

    def names(features):
        return [each.name for each in rlreps.audit(features, truth).findings["features"].defects]

    assert names(sound * large) == ["dormant"]  # By its definition: a share of the mean.
    few = np.r_[np.full(4, 300.0), np.ones(UNITS - 4)]
    assert names(truth.principal.basis[:, :UNITS].astype(np.float64) * few) == ["dormant"]
    cases = planted(truth, sound, random)
    for name in ("missing component", "duplicated", "no better than chance", "low rank"):
        assert name in names(cases[name] * np.r_[1e3, np.ones(cases[name].shape[1] - 1)])
    # Collapse hides only what follows from it.
    assert names(1e6 * cases["collapsed"] + 1e9) == ["collapsed", "offset", "scale"]


@pytest.mark.parametrize("count", [4, 12])
def test_exact_components_of_few_states_are_not_called_chance(count):
    steps = (np.arange(count)[:, None] + np.array([[1, -1]])) % count
    world = World.from_arrays(next_states=steps, rewards=np.zeros((count, 2)))
    truth = world.truth(discount=0.9)
    for units in (count - 2, count - 1):
        found = rlreps.audit(truth.principal.basis[:, :units], truth).findings["features"]
        assert "no better than chance" not in [each.name for each in found.defects]


@pytest.mark.parametrize("units", [1, 2, 3])
def test_single_components_of_small_truths_are_not_called_chance(units, random):
    for states in (12, 16):
        chances = random.dirichlet(np.full(states, 0.3), size=(1, states))
        world = World.from_arrays(probabilities=chances, rewards=np.zeros((states, 1)))
        small = world.truth(discount=0.95)
        exact = small.principal.basis[:, :units] @ random.normal(size=(units, units))
        found = rlreps.audit(exact, small).findings["features"]
        assert "no better than chance" not in [each.name for each in found.defects]
        noise = rlreps.audit(random.normal(size=(states, units)), small).findings["features"]
        assert "no better than chance" in [each.name for each in noise.defects]


def test_chance_counts_what_the_intercept_holds_of_uncentred_components(random):
    states, units = 60, 4
    chances = random.dirichlet(np.full(states, 0.05), size=(1, states))
    world = World.from_arrays(probabilities=chances, rewards=np.zeros((states, 1)))
    plain = world.truth(discount=0.9, centring="rows")
    found = [
        rlreps.audit(random.normal(size=(states, units)), plain).findings["features"]
        for _ in range(40)
    ]
    assert found[0].chance.max() > 0.3
    shares = np.mean([each.components for each in found], axis=0)
    np.testing.assert_allclose(shares[:10], found[0].chance[:10], atol=0.04)
    named = ["no better than chance" in [defect.name for defect in each.defects] for each in found]
    assert np.mean(named) > 0.9


def test_features_that_hold_clearly_more_than_chance_are_not_called_chance(truth, sound, random):
    mixing = random.normal(size=(60, 60))
    features = np.concatenate([1e-6 * sound, random.normal(size=(STATES, 44))], axis=1) @ mixing
    chance = "no better than chance"
    found = rlreps.audit(features, truth).findings["features"]
    # Shares of random spans of this rank, by drawing them.
    components = truth.principal.basis[:, :10].astype(np.float64)
    spans = [np.linalg.qr(random.normal(size=(STATES, 60)))[0] for _ in range(200)]
    drawn = [np.square(span.T @ components).sum() / 10 for span in spans]
    assert found.held_out[:10].mean() < 0.1
    assert found.leading() > max(drawn)
    assert chance not in [each.name for each in found.defects]
    for units in (1, 5, 60):
        names = []
        for _ in range(8):
            found = rlreps.audit(features[random.permutation(STATES), :units], truth)
            names.append([each.name for each in found.findings["features"].defects])
        assert sum(chance in each for each in names) >= 7


@pytest.mark.parametrize("units", [3, 8, 20])
def test_all_lines_state_the_same_share_at_held_out_states(truth, random, units):
    found = rlreps.audit(random.normal(size=(STATES, units)), truth)
    summary, chance = found.lines()[:2]
    assert chance.startswith("no better than chance: ")
    (stated,) = re.findall(r"(-?\d\.\d+) at held-out states$", summary)
    assert re.findall(r"R² (-?\d\.\d+)", chance) == [stated]


def test_components_that_the_truth_does_not_know_are_not_called_missing(truth, sound, random):
    features = planted(truth, sound, random)["missing component"]
    for error, named in ((0.02, True), (0.05, False)):
        other = dataclasses.replace(truth, error=np.full(50, error))
        defects = rlreps.audit(features, other).findings["features"].defects
        assert ("missing component" in [each.name for each in defects]) is named


@pytest.mark.parametrize(("first", "after"), [(5, 14), (8, 14), (7, 12), (4, 7), (3, 14), (9, 11)])
def test_every_component_before_the_held_ones_is_called_missing(truth, random, first, after):
    size = after - first
    features = truth.principal.basis[:, first:after] @ random.normal(size=(size, size))
    defects = rlreps.audit(features, truth).findings["features"].defects
    (said,) = (each.found for each in defects if each.name == "missing component")
    numbers = ", ".join(str(index + 1) for index in range(first))
    assert said.startswith(f"components {numbers} are not in the span")


def test_one_later_component_alone_calls_no_others_missing(truth, random):
    basis = truth.principal.basis
    noise = random.normal(size=(len(basis), 15)) / np.sqrt(len(basis))
    features = np.column_stack([np.asarray(basis)[:, 9], noise]) @ random.normal(size=(16, 16))
    defects = rlreps.audit(features, truth).findings["features"].defects
    assert "missing component" not in [each.name for each in defects]


def test_random_spans_of_most_states_miss_no_component(random):
    states, missing = 16, "missing component"
    chances = random.dirichlet(np.full(states, 0.3), size=(1, states))
    small = World.from_arrays(probabilities=chances, rewards=np.zeros((states, 1))).truth()
    for units in (8, 10, 12):
        found = rlreps.audit(random.normal(size=(states, units)), small).findings["features"]
        assert missing not in [each.name for each in found.defects]


def test_features_of_many_or_few_units_are_not_called_defective_for_their_number(truth, random):
    angle = np.asarray(truth.states, np.float64)[:, :1]
    centres = np.linspace(0.0, 6.2832, 140)[None, :]
    apart = np.abs((angle - centres + np.pi) % (2.0 * np.pi) - np.pi)
    bumps = rlreps.audit(np.exp(-((apart / 0.15) ** 2)), truth).findings["features"]
    assert {each.name for each in bumps.defects} <= {"overfitted"}
    two = of_spectrum(np.array([1.0, 0.8]), random) * 10.0
    assert "collapsed" not in [
        each.name for each in rlreps.audit(two, truth).findings["features"].defects
    ]


def test_the_words_have_the_number_and_what_to_try(truth, sound):
    lines = rlreps.audit({"mine": sound + 100.0, "theirs": sound}, truth).lines()
    assert any(
        line.startswith("mine: offset: the mean is") and "subtract" in line for line in lines
    )
    assert lines[-1] == "theirs: no known defect"


def test_few_labels_suffice_to_the_exact_components_and_not_to_noise(truth, sound):
    values = rlreps.audit(sound, truth).findings["features"].values
    most = {name: scores[1].mean() for name, scores in values.items()}
    assert most["exact components"] > 0.3 > 0.05 > most["noise"]
    assert most["features"] > 0.2


# Inputs.


def test_a_function_sees_the_states_in_the_units_of_the_environment(truth):
    seen = []

    def network(observations):
        seen.append(np.asarray(observations))
        return np.concatenate([np.cos(observations), np.sin(observations)], axis=1)

    rlreps.audit(network, truth)
    assert len(seen) == 2  # Once more, to see whether it gives the same features again.
    np.testing.assert_allclose(seen[0][:, 0], GRID.centres()[:, 0], rtol=1e-5)
    rlreps.audit(network, truth, inputs=seen[0])
    other = np.where(np.arange(STATES)[:, None] == 3, 9.0, seen[0])
    with pytest.raises(InputError, match=r"[\d.]+ at \[3, 0\], got 9"):
        rlreps.audit(network, truth, inputs=other)
    for wrong in (truth.coordinates, seen[0][::-1], np.full_like(seen[0], np.nan)):
        with pytest.raises(InputError, match="expected the truth's observations as inputs, "):
            rlreps.audit(network, truth, inputs=wrong)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (np.zeros((STATES + 1, 3)), rf"\[{STATES}, p\], a row for each state"),
        (np.zeros(STATES), "a row for each state"),
        (np.full((STATES, 3), np.nan), f"NaN or infinity in {STATES} of"),
        (np.full((STATES, 3), "a"), "real numbers"),
        (np.ma.masked_less(np.eye(STATES, 3), 0.5), "without masked entries"),
        ({}, "at least one set"),
        ({"truth": np.zeros((STATES, 3))}, "another name for features"),
        ({1: np.zeros((STATES, 3)), "1": np.zeros((STATES, 3))}, "features of different names"),
        ([np.zeros((STATES, 3)), np.zeros((STATES, 2))], "as an array, got "),
        (lambda seen: np.random.default_rng().normal(size=(STATES, 3)), "in a second call"),
        (lambda seen: seen - seen.mean(), "in a second call"),
        # A noisy unit beside a large one; statistics that both halves of the circle share.
        (lambda seen: np.c_[1e4 * seen, np.random.default_rng().normal(size=STATES)], "in unit 1"),
        (lambda seen: np.cos(2.0 * seen) / np.cos(2.0 * seen).std(), "in a second call"),
    ],
)
def test_other_features_are_refused(features, words, truth):
    with pytest.raises(InputError, match=words):
        rlreps.audit(features, truth)


def test_a_function_may_depend_on_the_batch_by_rounding(truth):
    calls = iter((1.0, np.nextafter(np.float32(1.0), np.float32(2.0))))
    found = rlreps.audit(lambda seen: np.full((STATES, 3), next(calls), np.float32), truth)
    assert found.findings["features"].defects[0].name == "collapsed"


@pytest.mark.parametrize(("units", "value"), [(1, 1.0), (4, 0.1)])
def test_constant_features_hold_nothing(truth, units, value):
    found = rlreps.audit(np.full((STATES, units), value), truth).findings["features"]
    assert found.leading() == pytest.approx(0.0, abs=1e-12)
    assert [each.name for each in found.defects] == ["collapsed"]
    assert found.defects[0].found == "no unit varies over the states"


def test_tables_and_figures_are_written(truth, sound, tmp_path):
    paths = rlreps.audit({"mine": sound, "theirs": sound[:, :3]}, truth).write(tmp_path / "out")
    assert sorted(path.name for path in paths) == [
        *("captured.csv", "captured.png", "components.png", "health.csv", "values.csv")
    ]
    lines = (tmp_path / "out/captured.csv").read_text().splitlines()
    assert lines[0].startswith("features,k,captured,")
    assert len(lines) == 1 + 2 * 6
    values = (tmp_path / "out/values.csv").read_text().splitlines()
    assert values[1].endswith(",")  # 200 labelled states would be more than half.


# Recorded data.


def waves(seen):
    """Sixteen sound features of places [n, 2]."""
    random = np.random.default_rng(2)
    angles = np.asarray(seen, np.float64) @ random.normal(size=(2, 16)) * 0.5
    return np.cos(angles + random.uniform(0.0, 6.28, 16))


SETS = {
    "sound": waves,
    "collapsed": lambda seen: waves(seen)[:, :1] * np.arange(1.0, 17.0),
    "offset": lambda seen: waves(seen) + 100.0,
    "few": lambda seen: waves(seen)[:, :5],
}


@pytest.fixture(scope="module")
def of_data(maze):
    """The audit of all sets on the transitions of the maze."""
    return rlreps.audit(SETS, maze[1])


def test_transitions_tell_what_is_captured_within_the_stated_error(maze, of_data):
    truth, _, _ = maze
    found, expected = of_data, rlreps.audit(SETS, truth)
    assert found.truth.num_states == truth.num_states  # Each distinct observation counts once.
    assert found.truth.error[9] < 0.02
    for label in SETS:
        shares, exact = (each.findings[label] for each in (found, expected))
        for k in (2, 5, 10, 20):
            # The sines of the angles between the spans bound the difference of the shares.
            allowed = np.sqrt(found.truth.error[k - 1])
            allowed = (
                min(allowed, 2.0 * found.truth.error[k - 1] + 0.01) if label == "sound" else allowed
            )
            assert shares.leading(k) == pytest.approx(exact.leading(k), abs=allowed), (label, k)
    names = {label: [each.name for each in found.findings[label].defects] for label in SETS}
    assert names == {"sound": [], "collapsed": ["collapsed"], "offset": ["offset"], "few": []}
    assert "their error 0.0" in found.lines()[0]
    rests, fit, unknown = found.notes
    assert rests.startswith("components are counted from 20,000 transitions")
    said = f", with an error of {format_number(float(found.truth.error[9]))} in the leading 10"
    assert rests.endswith(said)
    assert fit.startswith("R² of sums of random cumulants on held-out episodes: 0.3")
    assert unknown.startswith("without a ground truth nobody knows")
    assert found.lines()[-1] == f"note: {unknown}"
    assert found.components_figure() is not None


def test_the_error_of_components_that_span_everything_is_not_told(random):
    # A walk with drift on seven places, by counting: halves differ, but not in the whole span.
    moves = random.choice([0, 1, 2], size=(100, 40), p=[0.2, 0.5, 0.3])
    places = np.cumsum(np.c_[random.integers(7, size=100), moves], axis=1) % 7
    data = Transitions(
        observation=places[:, :-1].ravel(),
        action=np.zeros(4_000, int),
        next_observation=places[:, 1:].ravel(),
        terminated=np.zeros(4_000, bool),
        truncated=np.arange(1, 4_001) % 40 == 0,
        num_states=7,
    )
    found = estimate_truth(data, components=20, discount=0.9, seed=0)
    assert found.truth.error[5] < 1e-12 < found.truth.error[4]
    said = f" 6, with an error of {format_number(float(found.truth.error[4]))} in the leading 5"
    assert found.notes[0].endswith(said)


def test_components_count_as_far_as_halves_agree_beyond_chance(random):
    space = np.linalg.qr(random.normal(size=(200, 20)))[0]
    rotated = [space @ np.linalg.qr(random.normal(size=(20, 20)))[0] for _ in range(2)]
    assert count_alike(space, [space, space]) == 20
    # All have the span in common, as fits in the same features of noise do.
    assert count_alike(space, rotated) < 3
    mixed = space.copy()
    mixed[:, 8:] = space[:, 8:] @ np.linalg.qr(random.normal(size=(12, 12)))[0]
    mixed[:, 2:4] = mixed[:, [3, 2]]  # Close singular values may change places.
    assert 8 <= count_alike(space, [mixed, space]) <= 10


def test_features_of_rows_are_those_of_their_observations(maze, of_data):
    _, data, _ = maze
    found = rlreps.audit(waves(data.observation), data).findings["features"].components
    np.testing.assert_array_equal(found, of_data.findings["sound"].components)
    with pytest.raises(InputError, match="expected the truth's observations as inputs"):
        rlreps.audit(waves, data, inputs=data.observation / 9.0)


def test_vectors_are_fitted_and_indices_are_counted(maze, of_data, monkeypatch):
    monkeypatch.setattr("rlreps.auditing.recorded._MOST_FEATURES", 60)  # For speed.
    _, data, _ = maze
    random = np.random.default_rng(0)
    noise = random.uniform(-0.4, 0.4, (2, len(data), 2)).astype(np.float32)
    noise[0, 1:][~data.truncated[:-1]] = noise[1, :-1][~data.truncated[:-1]]
    some = slice(3_000)
    columns = {name: getattr(data, name)[some] for name in ("action", "terminated", "truncated")}
    vectors = Transitions(
        observation=(data.observation + noise[0])[some],
        next_observation=(data.next_observation + noise[1])[some],
        **columns,
    )
    found = rlreps.audit(waves, vectors, discount=0.9)
    assert found.truth.num_states == 600  # A fifth of the rows, whose observations all differ.
    assert "fitted by least squares" in found.notes[0]
    assert "discount 0.9)" in found.notes[0]
    assert found.findings["features"].leading(5) > 0.8
    numbered, table = data.numbered()
    counted = rlreps.audit(lambda seen: waves(table[np.asarray(seen)]), numbered)
    expected = of_data.findings["sound"].leading(10)
    assert counted.findings["features"].leading(10) == pytest.approx(expected)


def test_the_notes_have_every_warning_of_the_fit(maze, monkeypatch):
    monkeypatch.setattr("rlreps.auditing.recorded._MOST_FEATURES", 20)  # For speed.
    _, data, _ = maze
    ends = data.truncated[:2_000]
    noise = np.random.default_rng(0).normal(size=(2, 2_000, 1)).astype(np.float32)
    noise[0, 1:][~ends[:-1]] = noise[1, :-1][~ends[:-1]]
    noisy = Transitions(
        observation=np.concatenate([data.observation[:2_000], noise[0]], axis=1),
        next_observation=np.concatenate([data.next_observation[:2_000], noise[1]], axis=1),
        action=data.action[:2_000],
        terminated=data.terminated[:2_000],
        truncated=ends,
    )
    notes = estimate_truth(noisy, components=4, discount=0.9, seed=0).notes
    assert len({*notes}) == len(notes)
    left = [note for note in notes if "coordinates of the observations are noise" in note]
    assert len(left) == 1
    assert "are left out: 2;" in left[0]


def recorded(count=400, *, shape=(2,), random=None):
    """Rows without any dynamics."""
    random = np.random.default_rng(0) if random is None else random
    observation, following = random.normal(size=(2, count, *shape))
    return Transitions(
        observation=observation,
        action=random.integers(2, size=count),
        next_observation=following,
        terminated=np.zeros(count, bool),
        truncated=np.ones(count, bool),
    )


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (lambda truth: recorded(40), {}, "at least 100 transitions, got 40"),
        (lambda truth: recorded(shape=(4, 4, 1)), {}, "vectors, or observations that repeat"),
        (lambda truth: recorded(), {"discount": 1.0}, "discount"),
        (lambda truth: truth, {"discount": 0.9}, "no discount beside a ground truth"),
        (lambda truth: "sutton-100", {}, "expected a GroundTruth .*, got 'str'"),
    ],
)
def test_other_truths_are_refused(given, options, words, truth):
    with pytest.raises(InputError, match=words):
        rlreps.audit(lambda seen: np.ones((len(seen), 2)), given(truth), **options)


# The command.


def test_the_command_takes_data_instead_of_a_truth(maze, tmp_path, capsys):
    _, data, _ = maze
    np.save(tmp_path / "mine.npy", waves(data.observation))
    path = data.to_npz(tmp_path / "data.npz")
    words = ["audit", str(tmp_path / "mine.npy"), "--data", str(path), "--out", str(tmp_path / "p")]
    main([*words, "--discount", "0.9"])
    assert "(discount 0.9)" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*words, "--truth", "sutton-100"])
    assert "expected a ground truth or data, got 'both'" in capsys.readouterr().err


def test_the_command_writes_a_page_and_returns_it_again(store, sound, tmp_path, capsys):
    for step in (300, 20):
        np.save(tmp_path / f"{step}.npy", sound + step)
    words = ["audit", str(tmp_path / "300.npy"), str(tmp_path / "20.npy"), "--truth", str(store)]
    words += ["--out", str(tmp_path / "page")]
    main(words)
    printed = capsys.readouterr().out
    assert printed.startswith("20: ")  # Checkpoints are in the order of their steps.
    assert "300: offset" in printed
    main(words)
    assert capsys.readouterr().out == printed
    summary = json.loads((tmp_path / "page/summary.json").read_text())
    assert summary["features"]["300"]["defects"] == ["offset"]
    assert "Value functions" in (tmp_path / "page/report.html").read_text()


def test_an_audit_of_any_other_number_of_its_truth_or_features_is_another_run(
    truth, tmp_path, monkeypatch
):
    file = tmp_path / "mine.npy"
    np.save(file, np.ones((STATES, 2), np.float32))

    def described(found):
        monkeypatch.setattr(jobs_audit, "load", lambda _: found)
        return jobs_audit.AuditFeatures(features=(file,)).describe()

    principal, first = truth.principal, described(truth)
    others = [
        {"principal": dataclasses.replace(principal, basis=-principal.basis)},
        {"principal": dataclasses.replace(principal, singular_values=principal.basis[0])},
        {"coordinates": truth.coordinates / 2},
        {"observed": jnp.zeros((STATES, 1))},
        {"error": np.zeros(len(principal.singular_values))},
        {"grid": dataclasses.replace(truth.grid, high=(1.0,))},
    ]
    for changes in others:
        assert described(dataclasses.replace(truth, **changes)) != first
    assert described(dataclasses.replace(truth)) == first
    np.save(file, np.ones((STATES, 2), np.float32).view(np.int32))
    assert described(truth) != first


def test_the_command_tells_how_to_store_the_truth_of_a_world(sound, tmp_path, capsys):
    np.save(tmp_path / "mine.npy", sound)
    world = World.from_arrays(next_states=np.zeros((4, 1), int), rewards=np.zeros((4, 1)))
    path = world.save(tmp_path / "game.npz")
    words = ["audit", str(tmp_path / "mine.npy"), "--truth", str(path)]
    with pytest.raises(SystemExit):
        main([*words, "--out", str(tmp_path / "page")])
    told = capsys.readouterr().err
    assert f"or a store, got '{path}'" in told
    assert f"rlreps worlds truth {path} --out STORE" in told


def test_the_command_refuses_other_files(tmp_path, capsys):
    np.savez(tmp_path / "several.npy", a=np.zeros(3))
    (tmp_path / "several.npy.npz").rename(tmp_path / "several.npy")
    for name in ("several.npy", "missing.npy"):
        with pytest.raises(SystemExit) as left:
            main(["audit", str(tmp_path / name), "--out", str(tmp_path / "page")])
        assert left.value.code == 2
        assert "expected an .npy file" in capsys.readouterr().err
        assert not (tmp_path / "page").exists()
    with pytest.raises(SystemExit):
        main(["audit", "--out", str(tmp_path / "page")])
    assert "expected at least one .npy file of features, got 'none'" in capsys.readouterr().err


def test_files_of_the_same_name_are_labelled_by_their_folders(tmp_path, monkeypatch, truth):
    monkeypatch.setattr(jobs_audit, "load", lambda _: truth)
    files = [tmp_path / run / "features" / "000000300.npy" for run in ("a", "b")]
    for file in files:
        file.parent.mkdir(parents=True)
        np.save(file, np.ones((STATES, 2), np.float32))
    described = jobs_audit.AuditFeatures(features=tuple(files)).describe()
    assert [*described["features"]] == ["a/features/000000300", "b/features/000000300"]
    with pytest.raises(InputError, match="expected different files"):
        jobs_audit.AuditFeatures(features=(files[0], files[0])).describe()
