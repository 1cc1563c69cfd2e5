"""Auxiliary tasks: columns, targets against loops and resolvents, and learning on a chain."""

import dataclasses
import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.agents import AuxiliaryConfig
from rlreps.agents.auxiliary import AUXILIARY_OBJECTIVES
from rlreps.agents.auxiliary_targets import TargetMoments, monte_carlo_targets, standardise_targets
from rlreps.agents.replay import episode_window, observed_rows, stack_transitions
from rlreps.agents.tasks import make_auxiliary_task
from rlreps.config import with_sizes
from rlreps.cumulants import Cells
from rlreps.encoders import Convolutional, FunctionEncoder
from rlreps.errors import FitWarning, InputError
from rlreps.losses import PAIR_OBJECTIVES, LargeBatch
from rlreps.losses.pairs import PairObjective
from rlreps.numerics import DecayedMean
from rlreps.operators import Slowness

key = jax.random.key
single = np.float32


def unbroken(observations):
    """Rows [b, l] of sequences that no episode's end cuts."""
    never = np.zeros(observations.shape[:2], bool)
    return observed_rows(observations, never, never)


def random_sequences(rng, count, length):
    """Sequences [count, length] with episodes' ends of both kinds; (terminated, last)."""
    terminated, last = np.zeros((2, count, length), bool)
    for b in range(count):
        for j in range(1, length):
            ends = rng.random() < 0.2 and not last[b, j - 1]
            last[b, j] = ends
            terminated[b, j - 1] = ends and rng.random() < 0.5
        # What ends after the sequence is not seen in it, and flags of last rows mean nothing.
        terminated[b, -1] = rng.random() < 0.5
        terminated[b][last[b]] = rng.random() < 0.5
    return terminated, last


def by_hand(cumulants, discounts, last):
    """Targets [b, t] by a loop over sequences, rows and columns in float64."""
    count, length, tasks = cumulants.shape
    targets = np.zeros((count, tasks))
    for b in range(count):
        for k in range(tasks):
            weight = 1.0
            for j in range(length):
                targets[b, k] += weight * cumulants[b, j, k]
                if last[b, j]:
                    break
                weight *= discounts[k]
    return targets


@pytest.mark.parametrize("length", [1, 2, 9])
def test_targets_are_those_of_a_loop_over_rows_with_ends_of_both_kinds(length):
    rng, discounts = np.random.default_rng(0), np.array([0.0, 0.5, 0.97])
    terminated, last = random_sequences(rng, 200, length)
    if length > 2:
        kinds = {(bool(last[b, 1:].any()), bool(terminated[b].any())) for b in range(200)}
        assert len(kinds) == 4
    cumulants = rng.normal(size=(200, length, 3))
    # What lies beyond the episode is not looked at.
    cumulants[np.cumsum(last, axis=1) - last > 0] = np.nan
    rows = observed_rows(np.zeros((200, length, 1), np.float32), terminated, last)
    found = jax.jit(monte_carlo_targets)(
        single(cumulants), single(discounts), jax.jit(episode_window)(rows)
    )
    np.testing.assert_allclose(found, by_hand(cumulants, discounts, last), atol=2e-6)


def test_transitions_of_an_ordinary_replay_end_where_the_task_ended():
    seen, following = np.zeros((3, 2), np.float32), np.ones((3, 2), np.float32)
    ended, cut = np.array([False, True, False]), np.array([False, False, True])
    rows = stack_transitions(seen, following, ended, cut)
    np.testing.assert_array_equal(rows.observation[:, 1], following)
    window = episode_window(rows)
    np.testing.assert_array_equal(window.terminal, ended)
    np.testing.assert_array_equal(window.end, 1)  # What the step reached belongs to the episode.
    cumulants = np.arange(6.0).reshape(3, 2, 1)
    found = monte_carlo_targets(single(cumulants), single(np.array([0.5])), window)
    expected = by_hand(cumulants, np.array([0.5]), np.asarray(rows.last))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_consecutive_transitions_end_at_their_episodes_ends_and_gaps_are_refused():
    # A time limit ends one episode at 12, and the task ends the other at 21.
    seen = np.array([[10, 11, 50, 51], [20, 30, 31, 32]], np.float32)
    following = np.array([[11, 12, 51, 52], [21, 31, 32, 33]], np.float32)
    ended, cut = np.array([[[0, 0, 0, 0], [1, 0, 0, 0]], [[0, 1, 0, 0], [0] * 4]], bool)
    rows = stack_transitions(seen, following, ended, cut)
    window = episode_window(rows)
    inside = np.where(window.seen, rows.observation, 0)
    np.testing.assert_array_equal(inside, [[10, 11, 12, 0, 0], [20, 21, 0, 0, 0]])
    np.testing.assert_array_equal(window.terminal, [False, True])
    with pytest.raises(InputError, match=r"unless an episode ends, got .* \[\[0 1\]\]"):
        stack_transitions(seen, following, ended)  # Without the flags of time limits.
    # One copy of an observation is rounded.
    for kinds in ((np.float64, np.float32), (np.float16, np.float32)):
        places = [
            (0.1 * part.astype(np.float64)).astype(kind)
            for part, kind in zip((seen, following), kinds, strict=True)
        ]
        assert stack_transitions(*places, cut | ended).observation.shape == (2, 5)


SEEN = np.zeros((3, 4, 2), np.float32)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"terminated": np.zeros((3, 1), bool)}, "flags of shape (3,) or (3, 4), got"),
        ({"next_observation": SEEN[..., :1]}, "next observations of shape (3, 4, 2), got"),
        ({"action": np.zeros(3, int)}, "integer actions of shape (3, 4), got ('int64', (3,))"),
        ({"action": np.zeros((3, 4))}, "integer actions of shape (3, 4), got ('float64', (3, 4))"),
        ({"next_observation": SEEN + np.nan}, "finite observations, got"),
    ],
)
def test_transitions_that_do_not_fit_are_refused(changes, words):
    given = {"observation": SEEN, "next_observation": SEEN, "terminated": np.zeros((3, 4), bool)}
    with pytest.raises(InputError, match=re.escape(f"expected {words}")):
        stack_transitions(**{**given, **changes})


@pytest.mark.parametrize("single_steps", [False, True])
def test_targets_per_action_teach_the_heads_of_the_actions_taken(single_steps):
    rng, count = np.random.default_rng(0), 3
    seen = rng.random((40, 6, 2)).astype(np.float32)
    actions, never = rng.integers(count, size=(40, 5)), np.zeros((40, 5), bool)
    taken = actions[:, 0]
    given = [seen[:, :-1], seen[:, 1:], never, never, actions]
    if single_steps:
        given = [part[:, 0] for part in given]
    task = make_auxiliary_task(
        AuxiliaryConfig(
            objective=Heads(), per_action=True, horizon=6 - 4 * single_steps, sequences=40
        ),
        num_features=2,
        observation_shape=(2,),
        num_actions=count,
    )

    def loss(rows):
        return task.loss({}, {}, lambda _, x: x, rows, task.init(jax.random.key(0)), None)[0]

    expected = sum(seen[taken == action, 0].sum() * (1 + action**2) for action in range(count))
    np.testing.assert_allclose(loss(stack_transitions(*given)), expected, rtol=1e-5)
    with pytest.raises(InputError, match="expected rows with actions"):
        loss(stack_transitions(*given[:4]))
    for shift in (-1, 1):
        assert np.isnan(loss(stack_transitions(*given[:4], given[4] + shift)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heads(LargeBatch):
    """Returns the sum of the features, those of head a weighted by 1 + a², in place of a loss."""

    def loss(self, params, encode, batch, state, key):
        heads = encode(params, batch.inputs).reshape(40, -1, 2).sum(axis=(0, 2))
        return heads @ jnp.asarray([1.0, 2.0, 5.0], jnp.float32), (state, {})


@pytest.mark.parametrize(
    ("terminated", "last", "words"),
    [
        ([[True, False, False]], [[False, False, True]], "the row after an end"),
        ([[False, False, False]], [[True, False, False]], "no sequence whose first row is last"),
        ([[False, False]], [[False, False]], r"flags of shape \(1, 3\), got \(\(1, 2\)"),
        ([False, False, False], [False, False, False], r"flags of shape \(1, 3\), got \(\(3,\)"),
    ],
)
def test_flags_that_cannot_be_are_refused(terminated, last, words):
    with pytest.raises(InputError, match=words):
        observed_rows(np.zeros((1, 3, 1)), np.array(terminated), np.array(last))


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float32, list])
def test_flags_may_be_numbers(kind):
    seen = np.zeros((1, 5, 1), np.float32)
    flags = [[0, 1, 0, 0, 0]], [[0, 0, 1, 0, 0]]
    given = flags if kind is list else [np.array(flag, kind) for flag in flags]
    window = episode_window(observed_rows(seen, *given))
    np.testing.assert_array_equal(window.seen, [[True, True, True, False, False]])
    assert window.terminal.tolist() == [True]
    seen[:, 3:] = np.nan  # Rows of further episodes are left out.
    observed_rows(seen, *given)
    with pytest.raises(InputError, match="expected finite observations"):
        observed_rows(seen[:, ::-1], *given)


def batches(count):
    draws = np.random.default_rng(0).normal(size=(count, 40, 3))
    return draws * np.array([1.0, 5.0, 0.2]) + np.array([10.0, 0.0, -3.0])


@jax.jit
def standardised(each):
    """What becomes of batches [count, b, t] in turn."""

    def step(moments, batch):
        return standardise_targets(moments, batch)[::-1]

    start = DecayedMean.empty(TargetMoments(jnp.zeros(3), jnp.zeros(())))
    return jax.lax.scan(step, start, each)[1]


def test_a_batch_is_measured_by_the_weighted_average_of_those_before_it():
    each = batches(50)
    found = np.asarray(standardised(single(each)))
    first = (each[0] - each[0].mean(axis=0)) / np.sqrt(each[0].var(axis=0).mean())
    np.testing.assert_allclose(found[0], first, rtol=1e-4, atol=1e-4)  # There is none before.
    weights = 0.99 ** np.arange(5)[::-1]
    mean = np.average(each[:5].mean(axis=1), axis=0, weights=weights)
    variance = np.average(each[:5].var(axis=1).mean(axis=1), weights=weights)
    np.testing.assert_allclose(found[5], (each[5] - mean) / np.sqrt(variance), rtol=1e-4, atol=1e-4)
    # Columns keep their relative sizes, whatever is added to them and whatever their unit.
    spread = found[1:].std(axis=(0, 1))
    np.testing.assert_allclose(spread / spread[0], [1.0, 5.0, 0.2], rtol=0.1)
    other = standardised(single(1_000.0 * each + np.array([0.0, 1e4, -300.0])))
    np.testing.assert_allclose(found, other, rtol=1e-3, atol=1e-3)


def columns_of(shape, **options):
    return make_auxiliary_task(AuxiliaryConfig(**options), num_features=2, observation_shape=shape)


def test_every_column_has_a_discount_of_its_own_uniform_over_the_interval():
    columns = columns_of((2,), num_tasks=4_000, discount_low=0.6, discount_high=0.9)
    discounts = np.asarray(jax.jit(columns.init)(key(0)).discounts, np.float64)
    assert discounts.min() >= 0.6
    assert discounts.max() <= 0.9
    assert abs(discounts.mean() - 0.75) <= 4.5 * 0.3 / math.sqrt(12 * 4_000)


STATES, DISCOUNT = 12, 0.9


def positions(states):
    """Observations [..., 1] in [0, 1] of states [...]: the middles of STATES cells."""
    return ((states.astype(jnp.float32) + 0.5) / STATES)[..., None]


def encode(params, observations):
    """A free feature vector a state, params [STATES, d]."""
    return jnp.asarray(params)[jnp.floor(observations[:, 0] * STATES).astype(jnp.int32)]


def chain_task(name="large_batch", *, objective=None, num_actions=None, shape=(1,), **options):
    chain = {"tasks": Cells(bins=STATES), "discount_low": DISCOUNT, "discount_high": DISCOUNT}
    config = AuxiliaryConfig(
        objective=AUXILIARY_OBJECTIVES[name](**(objective or {})),
        **{**chain, "horizon": 12, "sequences": 128, **options},
    )
    return make_auxiliary_task(
        config,
        num_features=3,
        observation_shape=shape,
        num_actions=num_actions,
        encoder=FunctionEncoder(lambda key: jnp.zeros((STATES, 3)), encode),
        learning_rate=0.03,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanPairs(PairObjective):
    """Reports the pairs that it sees."""

    def loss(self, params, encode, batch, state, key):
        first, second = self.ends(params, encode, batch)
        return jnp.mean(first), (state, {"first": first[:, 0], "second": second[:, 0]})


def pairs_seen(rows, discount):
    """Observations at both ends of the pairs, [b] each, of observations [b, l, 1, 1]."""
    config = AuxiliaryConfig(
        objective=MeanPairs(), sequences=len(rows.last), pair_discount=discount, horizon=6
    )
    task = make_auxiliary_task(config, num_features=1, observation_shape=(1, 1))
    assert task.length == (6 if discount else 2)

    def read(params, seen):
        assert seen.shape[1:] == (1, 1)
        return params * seen[:, 0]

    _, (_, found) = task.loss(jnp.ones(()), jnp.ones(()), read, rows, task.init(key(0)), key(1))
    return np.asarray(found["first"]), np.asarray(found["second"])


@pytest.mark.parametrize("end", [None, 3])
def test_pair_task_draws_geometric_times_up_to_the_end_of_the_episode(end):
    count, discount = 20_000, 0.5
    seen = np.broadcast_to(np.arange(6, dtype=np.float32), (count, 6))[..., None, None]
    last = np.zeros((count, 6), bool)
    if end is not None:
        last[:, end] = True
    _, second = pairs_seen(observed_rows(seen, np.zeros_like(last), last), discount)
    stop = 5 if end is None else end
    chances = np.append((1 - discount) * discount ** np.arange(stop - 1), discount ** (stop - 1))
    found = np.bincount(second.astype(int), minlength=6)[1 : stop + 1] / count
    assert found.sum() == 1.0
    np.testing.assert_allclose(found, chances, atol=4 * 0.5 / np.sqrt(count))


@pytest.mark.parametrize(("discount", "length"), [(0.0, 2), (0.5, 6)])
def test_later_states_have_the_distribution_of_a_chain_that_ends_by_chance(discount, length):
    # State 0 leads to 1 or ends in 2, both by chance 1/2; state 1 leads to 0.
    chances = np.array([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    count, generator = 40_000, np.random.default_rng(0)
    states = np.zeros((count, length), int)
    states[:, 0] = generator.integers(2, size=count)
    for time in range(1, length):
        before = states[:, time - 1]
        over = generator.random(count) < 0.5
        states[:, time] = np.where(before == 0, np.where(over, 2, 1), np.where(before == 1, 0, 2))
    first_end = np.where((states == 2).any(axis=1), np.argmax(states == 2, axis=1), length)
    last = np.arange(length) == first_end[:, None]
    ended = np.roll(last, -1, axis=1)
    ended[:, -1] = False
    seen = states.astype(np.float32)[..., None, None]
    first, second = (
        end.astype(int) for end in pairs_seen(observed_rows(seen, ended, last), discount)
    )
    found = np.zeros((3, 3))
    np.add.at(found, (first, second), 1.0)
    powers = [np.linalg.matrix_power(chances, steps) for steps in range(1, length)]
    weights = [(1 - discount) * discount**steps for steps in range(length - 2)]
    # Later states than the sequence has are its last state.
    weights.append(discount ** (length - 2))
    expected = sum(weight * power for weight, power in zip(weights, powers, strict=True))
    shares = found / found.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, expected, atol=4 * 0.5 / np.sqrt(found.sum(axis=1).min()))
    # Half as many pairs stay in the terminal state as would lead there.
    led = 0.5 * (expected[0, 2] + expected[1, 2])
    assert found[2].sum() / count == pytest.approx(0.5 * led, rel=0.05)


def test_no_pair_stays_where_a_time_limit_ended_the_episode():
    seen = np.broadcast_to(np.arange(2, dtype=np.float32), (100, 2))[..., None, None]
    never = np.zeros((100, 2), bool)
    after = never.copy()
    after[:, 1] = True
    first, second = pairs_seen(observed_rows(seen, never, after), 0.0)
    np.testing.assert_array_equal(first, 0.0)
    np.testing.assert_array_equal(second, 1.0)


@pytest.mark.parametrize("name", sorted(PAIR_OBJECTIVES))
def test_pair_objectives_learn_from_replay_of_images(name):
    config = AuxiliaryConfig(objective=PAIR_OBJECTIVES[name](), sequences=16, num_tasks=4)
    torso = with_sizes(Convolutional(channels=(2,), hidden=4), frame_shape=(3, 3, 1))
    torso = with_sizes(torso, num_features=2)
    task = make_auxiliary_task(
        config,
        num_features=2,
        observation_shape=(3, 3, 1),
        observation_dtype=jnp.uint8,
        encoder=torso,
    )
    images = np.random.default_rng(0).integers(0, 256, (16, task.length, 3, 3, 1), dtype=np.uint8)
    step = jax.grad(task.loss, has_aux=True)
    shapes = jax.eval_shape(torso.init, key(0))
    found, _ = jax.eval_shape(
        functools.partial(step, encode=torso.apply),
        shapes,
        shapes,
        rows=unbroken(images),
        state=jax.eval_shape(task.init, key(0)),
        key=key(0),
    )
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, shapes)


def test_targets_that_never_vary_teach_nothing_and_break_nothing():
    task = chain_task(sequences=8, horizon=3)
    rows = unbroken(np.full((8, 3, 1), 0.3, np.float32))
    params = single(np.random.default_rng(3).normal(size=(STATES, 3)))
    state = jax.jit(task.init)(key(0))
    step = jax.jit(jax.grad(task.loss, has_aux=True), static_argnums=2)
    for _ in range(4):
        gradient, (state, _) = step(params, params, encode, rows, state, key(0))
        assert np.all(np.isfinite(gradient))
        assert np.abs(gradient).max() < 1e-2


# Left and right on the line, deterministic, which stays where it would leave it: each (s, a) once.
PAIRS = np.stack(np.divmod(np.arange(2 * STATES), 2), axis=1)
AFTER = np.clip(PAIRS[:, 0] + 2 * PAIRS[:, 1] - 1, 0, STATES - 1)


def every_pair():
    """Sequences of two rows, the first of each state and action."""
    rows = unbroken(positions(np.stack([PAIRS[:, 0], AFTER], axis=1)))
    return rows._replace(action=np.stack([PAIRS[:, 1], np.zeros_like(AFTER)], axis=1))


def pair_targets():
    """ψ(s, a) of two rows, standardised as a first batch is: [states, actions, t]."""
    eye = np.eye(STATES)
    targets = eye[PAIRS[:, 0]] + DISCOUNT * eye[AFTER]
    centred = targets - targets.mean(axis=0)
    return (centred / np.sqrt(np.mean(centred**2))).reshape(STATES, 2, STATES)


def test_targets_per_action_teach_what_a_head_for_each_action_cannot_express():
    task = chain_task(per_action=True, horizon=2, sequences=len(PAIRS), num_actions=2)
    value_and_gradient = jax.jit(jax.value_and_grad(task.loss, has_aux=True), static_argnums=2)
    state, targets = jax.jit(task.init)(key(0)), pair_targets()

    def found(features):
        (value, _), gradient = value_and_gradient(
            features, features, encode, every_pair(), state, key(0)
        )
        return float(value), np.asarray(gradient)

    def by_hand(features):
        """Half the mean square of what is left of each action's targets, and its gradient."""
        residuals, gradient = [], np.zeros_like(features)
        for action in (0, 1):
            weights = np.linalg.lstsq(features, targets[:, action], rcond=None)[0]
            residual = features @ weights - targets[:, action]
            residuals.append(residual)
            gradient += residual @ weights.T / targets.size
        return 0.5 * np.mean(np.square(residuals)), gradient

    features = np.random.default_rng(3).normal(size=(STATES, 3))
    value, gradient = found(single(features))
    expected = by_hand(features)
    assert value == pytest.approx(expected[0], rel=1e-4)
    np.testing.assert_allclose(gradient, expected[1], atol=1e-3 * np.abs(expected[1]).max())
    # Both actions' targets side by side: their left singular vectors are what the torso is to span.
    components = np.linalg.svd(np.concatenate([targets[:, 0], targets[:, 1]], axis=1))[0][:, :3]
    least, flat = found(single(components))
    assert least < 0.9 * value
    assert np.abs(flat).max() < 1e-2 * np.abs(gradient).max()


def test_a_head_is_a_part_of_the_network_and_not_of_the_task():
    with pytest.raises(
        InputError, match=r"expected head=\(\): give the task what layers of your own"
    ):
        columns_of((2,), head=(8,))


@pytest.mark.parametrize("horizon", [6, None])
def test_sequences_that_cut_pairs_short_are_told(horizon):
    pairs = AuxiliaryConfig(objective=MeanPairs(), pair_discount=0.9, horizon=horizon)
    sizes = {"num_features": 1, "observation_shape": (1, 1)}
    if horizon is None:
        assert 0.9 ** (pairs.length - 1) <= 0.05 < 0.9 ** (pairs.length - 2)
        assert make_auxiliary_task(pairs, **sizes).length == pairs.length
        return
    # Five steps at most: 0.9⁵ = 0.59.
    with pytest.warns(FitWarning, match="59% of the later states would come after"):
        make_auxiliary_task(pairs, **sizes)


@pytest.mark.parametrize(("high", "rows"), [(0.0, 1), (0.9, 29), (0.95, 59), (0.99, 299)])
def test_a_horizon_of_the_discount_leaves_out_a_twentieth(high, rows):
    config = AuxiliaryConfig(discount_low=0.0, discount_high=high, horizon=None)
    assert config.length == rows
    assert high**rows <= 0.05
    assert high == 0.0 or high ** (rows - 1) > 0.05


def test_images_in_bytes_reach_the_objective_as_bytes():
    config = AuxiliaryConfig(sequences=8, horizon=3, num_tasks=5, per_action=True)
    task = make_auxiliary_task(
        config,
        num_features=2,
        observation_shape=(3, 3, 1),
        observation_dtype=jnp.uint8,
        num_actions=3,
    )
    rows = unbroken(np.random.default_rng(0).integers(0, 256, (8, 3, 3, 3, 1), dtype=np.uint8))
    rows = rows._replace(action=np.zeros((8, 3), np.int32))
    params = single(np.random.default_rng(1).normal(size=(9, 2)))

    def read(params, images):
        assert images.dtype == jnp.uint8
        return images.reshape(len(images), -1).astype(jnp.float32) @ params

    state = jax.eval_shape(task.init, key(0))
    loss = functools.partial(jax.eval_shape, functools.partial(task.loss, params, params, read))
    assert loss(rows, state, key(0))[0].shape == ()
    floats = rows._replace(observation=single(rows.observation))
    with pytest.raises(InputError, match=r"expected observations of type uint8 .*, got 'float32'"):
        loss(floats, state, key(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (10, 10, 4)}, "expected observations that are vectors of at most 3"),
        (
            {"name": "spin", "objective": {"operator": Slowness()}, "per_action": True},
            "expected an objective with weights",
        ),
        ({"name": "td_low_rank", "pair_discount": 0.5}, "expected pair_discount 0, the next state"),
        ({"name": "graph_drawing", "pair_discount": 0.5, "horizon": 1}, "expected a horizon of 2"),
        (
            {"per_action": True, "name": "danskin_lissa", "num_actions": 2, "sequences": 4},
            "expected rows >= 5, one for each role",
        ),
    ],
)
def test_what_cannot_work_is_refused_when_the_task_is_made(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        chain_task(**options)
