"""Auxiliary tasks on a chain whose successor measure is known: what they converge to, and bear."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlreps.agents import AuxiliaryConfig
from rlreps.agents.auxiliary import make_auxiliary_task
from rlreps.agents.replay import observed_rows
from rlreps.cumulants import Cells, RandomFourier
from rlreps.encoders import FunctionEncoder
from rlreps.errors import InputError
from rlreps.losses import OBJECTIVES
from rlreps.numerics import optimizer_step
from rlreps.subspace import subspace_distance

STATES = 12
DISCOUNT = 0.9


def walk_matrix():
    """A random walk on a line of STATES, which stays where it would leave it; symmetric."""
    walk = 0.5 * (np.eye(STATES, k=1) + np.eye(STATES, k=-1))
    walk[0, 0] = walk[-1, -1] = 0.5
    return walk


def measure():
    """Its successor measure (I − γP)⁻¹."""
    return np.linalg.inv(np.eye(STATES) - DISCOUNT * walk_matrix())


def positions(states):
    """Observations [..., 1] in [0, 1] of states [...]: the middles of STATES cells."""
    return ((states.astype(jnp.float32) + 0.5) / STATES)[..., None]


def encode(params, observations):
    """A free feature vector a state, params [STATES, d]."""
    return params[jnp.floor(observations[:, 0] * STATES).astype(jnp.int32)]


def walks(key, count, length):
    """Sequences [count, length] of the walk, which is what a replay of it would give."""
    start_key, step_key = jax.random.split(key)
    starts = jax.random.randint(start_key, (count,), 0, STATES, jnp.int32)
    steps = 2 * jax.random.bernoulli(step_key, 0.5, (length - 1, count)).astype(jnp.int32) - 1

    def move(state, step):
        after = jnp.clip(state + step, 0, STATES - 1)
        return after, after

    _, visited = jax.lax.scan(move, starts, steps)
    path = jnp.concatenate([starts[None], visited]).T
    never = jnp.zeros((count, length), bool)
    return observed_rows(positions(path), never, never)


def chain_config(name="large_batch", *, objective=None, **options):
    return AuxiliaryConfig(
        **{
            "objective": OBJECTIVES[name](**(objective or {})),
            "tasks": Cells(bins=STATES),
            "discount_low": DISCOUNT,
            "discount_high": DISCOUNT,
            "horizon": 12,
            "sequences": 128,
            **options,
        }
    )


def chain_task(num_features=3, **options):
    config = chain_config(**options)
    table = FunctionEncoder(lambda key: jnp.zeros((STATES, num_features)), encode)
    return make_auxiliary_task(
        config,
        num_features=num_features,
        observation_shape=(1,),
        encoder=table,
        learning_rate=0.03,
    )


def train(task, num_features, steps, learning_rate=0.03, refresh=20):
    """Table of features after descent on a task alone, and its distance before and after."""
    optimizer = optax.adam(optax.linear_schedule(learning_rate, 0.0, steps))
    start = jax.random.normal(jax.random.key(5), (STATES, num_features), jnp.float32)

    def update(carry, step):
        params, target_params, moments, state = carry
        row_key, loss_key = jax.random.split(jax.random.fold_in(jax.random.key(1), step))
        rows = walks(row_key, task.sequences, task.length)
        gradient, (state, _) = jax.grad(task.loss, has_aux=True)(
            params, target_params, encode, rows, state, loss_key
        )
        params, moments = optimizer_step(optimizer, gradient, moments, params)
        target_params = jnp.where(step % refresh == 0, params, target_params)
        return (params, target_params, moments, state), None

    @jax.jit
    def run():
        carry = (start, start, optimizer.init(start), task.init(jax.random.key(0)))
        return jax.lax.scan(update, carry, jnp.arange(steps))[0]

    params = run()[0]
    centred = measure() - measure().mean(axis=0)
    basis = jnp.asarray(np.linalg.svd(centred)[0][:, :num_features], jnp.float32)
    return params, float(subspace_distance(start, basis)), float(subspace_distance(params, basis))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "objective", "targets"),
    [
        ("danskin_lissa", {"whitening": True, "permutations": 16}, "monte_carlo"),
        ("explicit", {}, "monte_carlo"),
        ("large_batch", {}, "monte_carlo"),
        ("large_batch", {}, "bootstrapped"),
        ("spin", {}, "monte_carlo"),
        ("spin", {"averaging_rate": 0.1}, "bootstrapped"),
    ],
)
def test_every_objective_turns_features_towards_the_principal_subspace(name, objective, targets):
    task = chain_task(name=name, objective=objective, targets=targets)
    _, before, after = train(task, 3, 600)
    assert before > 0.5
    assert after < 0.05


def every_transition():
    """Each (s, s') of the walk in its share, as sequences of two rows."""
    walk = walk_matrix()
    pairs = [
        (s, after)
        for s in range(STATES)
        for after in range(STATES)
        for _ in range(round(2 * walk[s, after]))
    ]
    path = jnp.asarray(pairs, jnp.int32)
    never = jnp.zeros(path.shape, bool)
    return path, observed_rows(positions(path), never, never)


def settled(task, rows, params, updates=400):
    """A task's state after many updates with the same rows and features."""

    def update(state, _):
        return task.loss(params, params, encode, rows, state, jax.random.key(0))[1][0], None

    start = task.init(jax.random.key(0))
    return jax.jit(lambda: jax.lax.scan(update, start, length=updates)[0])()


def invertible(seed):
    """A linear map [STATES, STATES] with singular values between a half and two."""
    left, _, right = np.linalg.svd(np.random.default_rng(seed).normal(size=(STATES, STATES)))
    return jnp.asarray(left @ np.diag(np.linspace(0.5, 2.0, STATES)) @ right, jnp.float32)


def bootstrapped_task(num_features=STATES):
    options = {"targets": "bootstrapped", "horizon": 2, "sequences": 2 * STATES}
    return chain_task(num_features, **options)


def test_bootstrapped_targets_settle_at_the_successor_measure():
    path, rows = every_transition()
    state = settled(bootstrapped_task(), rows, invertible(3))
    # Averaged over what follows a state, targets are rows of the measure.
    starts = np.asarray(path[:, 0])
    found = np.stack([state.last.targets[starts == s].mean(axis=0) for s in range(STATES)])
    np.testing.assert_allclose(found, measure(), atol=5e-3)
    assert np.abs(measure()).max() > 2.0


@pytest.mark.integration
def test_a_new_target_network_that_is_a_linear_map_of_the_old_leaves_targets_as_they_are():
    _, rows = every_transition()
    task = bootstrapped_task()
    params = invertible(3)
    state = settled(task, rows, params)
    key = jax.random.key(0)
    mapped = -3.0 * params @ invertible(4)
    _, (after, _) = jax.jit(task.loss, static_argnums=2)(params, mapped, encode, rows, state, key)
    np.testing.assert_allclose(after.last.targets, state.last.targets, atol=5e-3)


@pytest.mark.integration
def test_a_useless_target_network_does_no_lasting_harm():
    _, rows = every_transition()
    task = bootstrapped_task()
    params = invertible(3)
    state = settled(task, rows, params)
    key = jax.random.key(0)
    useless = jnp.zeros_like(params)
    _, (harmed, _) = jax.jit(task.loss, static_argnums=2)(params, useless, encode, rows, state, key)
    assert np.abs(harmed.last.targets - state.last.targets).max() > 0.1

    def update(now, _):
        return task.loss(params, params, encode, rows, now, key)[1][0], None

    healed = jax.jit(lambda: jax.lax.scan(update, harmed, length=200)[0])()
    np.testing.assert_allclose(healed.last.targets, state.last.targets, atol=1e-3)


def test_predictions_stay_within_what_cumulants_allow_where_the_fit_would_diverge():
    """Tsitsiklis & Van Roy 1997: sequences end where none starts, at twice the feature."""
    task = make_auxiliary_task(
        chain_config(
            tasks=RandomFourier(length_scale=0.2),
            num_tasks=5,
            targets="bootstrapped",
            horizon=2,
            sequences=8,
        ),
        num_features=1,
        observation_shape=(1,),
    )
    first = jnp.linspace(0.1, 0.2, 8)
    path = jnp.stack([first, 4.0 * first], axis=1)[:, :, None]
    never = jnp.zeros((8, 2), bool)
    rows = observed_rows(path, never, never)
    params = jnp.ones((1, 1))

    def update(state, _):
        def linear(weights, seen):
            return seen @ weights

        return task.loss(params, params, linear, rows, state, jax.random.key(0))[1][0], None

    start = task.init(jax.random.key(0))
    state = jax.jit(lambda: jax.lax.scan(update, start, length=500)[0])()
    limit = np.sqrt(2.0) / (1.0 - DISCOUNT)
    assert np.abs(state.last.targets).max() <= limit * (1 + 1e-5)
    assert np.abs(state.last.targets).max() > 0.5 * limit


@pytest.mark.parametrize("targets", ["monte_carlo", "bootstrapped"])
def test_given_the_past_no_row_has_a_say_in_what_another_learns(targets):
    """The gradient of explicit weights is a sum over rows: changing one changes its own part."""
    task = chain_task(name="explicit", targets=targets, sequences=16, horizon=5)
    params = jax.random.normal(jax.random.key(3), (STATES, 3))
    key = jax.random.key(0)
    state = jax.jit(task.init)(key)
    step = jax.jit(functools.partial(task.loss, params, params, encode))
    draw = jax.jit(functools.partial(walks, count=16, length=5))
    for seed in range(3):
        _, (state, _) = step(draw(jax.random.key(seed)), state, key)

    @jax.jit
    def row_features(rows):
        """Gradient in each row's own features: a table with an entry for each row, added to 0."""

        def loss(offsets):
            def shifted(table, seen):
                features = encode(table, seen)
                return features + offsets if seen.shape[0] == 16 else features

            return task.loss(params, params, shifted, rows, state, key)[0]

        return jax.grad(loss)(jnp.zeros((16, 3)))

    rows = draw(jax.random.key(7))
    flipped = rows.observation.at[0].set(1.0 - rows.observation[0])
    ours, theirs = row_features(rows), row_features(rows._replace(observation=flipped))
    np.testing.assert_array_equal(ours[1:], theirs[1:])
    assert np.any(np.asarray(ours[0]) != np.asarray(theirs[0]))


def test_targets_have_no_unit_and_no_mean_after_the_first_batches():
    """Waves of any amplitude would do: the features' gradient sees standardised columns."""
    seen = []
    task = chain_task(name="explicit", sequences=512)
    start = state = task.init(jax.random.key(0))
    params = jnp.zeros((STATES, 3))
    step = jax.jit(functools.partial(task.loss, params, params, encode))
    draw = jax.jit(functools.partial(walks, count=512, length=12))
    for seed in range(60):
        # With weights of zero, the scalar is half the mean square of the standardised targets.
        fresh = state._replace(objective=start.objective)
        value, (state, _) = step(draw(jax.random.key(seed)), fresh, jax.random.key(0))
        seen.append(2.0 * float(value))
    assert abs(np.mean(seen[1:]) - 1.0) < 0.05
    moments = state.moments
    mean = np.asarray(moments.mean / moments.weight)
    truncated = np.sum(
        [DISCOUNT**j * np.linalg.matrix_power(walk_matrix(), j) for j in range(12)], axis=0
    )
    np.testing.assert_allclose(mean, truncated.mean(axis=0), atol=0.03)


def test_targets_that_never_vary_teach_nothing_and_break_nothing():
    task = chain_task(name="large_batch", sequences=8, horizon=3)
    never = jnp.zeros((8, 3), bool)
    rows = observed_rows(jnp.full((8, 3, 1), 0.3), never, never)
    params = jax.random.normal(jax.random.key(3), (STATES, 3))
    state = jax.jit(task.init)(jax.random.key(0))
    step = jax.jit(jax.grad(task.loss, has_aux=True), static_argnums=2)
    for _ in range(4):
        gradient, (state, _) = step(params, params, encode, rows, state, jax.random.key(0))
        assert np.all(np.isfinite(gradient))
        assert float(jnp.abs(gradient).max()) < 1e-2


def assert_close(ours, theirs):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-4)


def two_updates(name, targets):
    """A function of a key: gradient and state of a task's second update."""
    task = chain_task(name=name, targets=targets, sequences=32, horizon=4)

    def run(key):
        params = jax.random.normal(key, (STATES, 3))
        rows = walks(key, 32, 4)

        def update(carry, _):
            gradient, (state, _) = jax.grad(task.loss, has_aux=True)(
                params, params, encode, rows, carry[1], key
            )
            return (gradient, state), None

        return jax.lax.scan(update, (params, task.init(key)), length=2)[0]

    return run


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "targets"), [("danskin_lissa", "monte_carlo"), ("spin", "bootstrapped")]
)
def test_members_side_by_side_learn_what_each_learns_alone(name, targets):
    run, keys = two_updates(name, targets), jax.random.split(jax.random.key(0), 2)
    together = jax.jit(jax.vmap(run))(keys)
    assert_close(jax.tree.map(lambda leaf: leaf[1], together), jax.jit(run)(keys[1]))


@pytest.mark.integration
def test_compiled_and_eager_updates_agree():
    task = chain_task(targets="bootstrapped", sequences=32, horizon=4)
    key = jax.random.key(0)
    params, rows, state = jax.random.normal(key, (STATES, 3)), walks(key, 32, 4), task.init(key)
    assert_close(
        jax.jit(task.loss, static_argnums=2)(params, params, encode, rows, state, key),
        task.loss(params, params, encode, rows, state, key),
    )


@pytest.mark.integration
def test_a_state_holds_arrays_alone_and_keeps_its_shapes():
    for targets in ("monte_carlo", "bootstrapped"):
        for name, objective in (("spin", {"averaging_rate": 0.5}), ("danskin_lissa", {})):
            task = chain_task(name=name, objective=objective, targets=targets)
            state = task.init(jax.random.key(0))
            params = jnp.ones((STATES, 3))
            rows = walks(jax.random.key(0), 128, 12)
            _, (after, _) = jax.eval_shape(
                lambda p, r, s, t=task: t.loss(p, p, encode, r, s, jax.random.key(0)),
                params,
                rows,
                state,
            )
            assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))
            shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (state, after))
            assert shapes[0] == shapes[1]


def test_the_loss_is_not_weighed_and_gives_the_target_network_no_gradient():
    losses = []
    params = jax.random.normal(jax.random.key(3), (STATES, 3))
    key = jax.random.key(0)
    rows = jax.jit(functools.partial(walks, count=128, length=12))(key)
    for weight in (0.0, 7.0):
        task = chain_task(weight=weight, targets="bootstrapped")

        @jax.jit
        def updates(target_params, task=task):
            _, (state, _) = task.loss(params, params, encode, rows, task.init(key), key)
            value, (state, _) = task.loss(params, target_params, encode, rows, state, key)
            # Nor is there a way to it through the targets themselves.
            return value + jnp.sum(state.last.targets)

        value, gradient = jax.value_and_grad(updates)(params)
        losses.append(float(value))
        np.testing.assert_array_equal(gradient, 0.0)
    assert losses[0] == losses[1] > 0.0


@pytest.mark.parametrize("targets", ["monte_carlo", "bootstrapped"])
def test_images_in_bytes_are_kept_as_bytes(targets):
    config = AuxiliaryConfig(sequences=8, horizon=3, num_tasks=5, targets=targets)
    task = make_auxiliary_task(
        config, num_features=2, observation_shape=(3, 3, 1), observation_dtype=jnp.uint8
    )
    pixels = np.random.default_rng(0).integers(0, 256, (8, 3, 3, 3, 1), dtype=np.uint8)
    never = jnp.zeros((8, 3), bool)
    rows = observed_rows(jnp.asarray(pixels), never, never)

    def read(params, images):
        assert images.dtype == jnp.uint8
        return images.reshape(len(images), -1).astype(jnp.float32) @ params

    params = jax.random.normal(jax.random.key(0), (9, 2))
    state = jax.jit(task.init)(jax.random.key(0))
    step = jax.jit(functools.partial(task.loss, params, params, read))
    for _ in range(2):
        value, (state, _) = step(rows, state, jax.random.key(0))
    assert np.isfinite(value)
    floats = rows._replace(observation=rows.observation.astype(jnp.float32))
    with pytest.raises(InputError, match=r"expected observations of type uint8 .*, got 'float32'"):
        task.loss(params, params, read, floats, state, jax.random.key(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "oracle"}, "expected an auxiliary objective that needs no exact expectations"),
        ({"name": "spin", "sequences": 2}, "expected rows >= 3, as many as features"),
        ({"name": "danskin_lissa", "sequences": 4}, "expected rows >= 5, one for each role"),
        ({"sequences": 1}, "expected sequences >= 2"),
        ({"targets": "bootstrapped", "sequences": 3}, "expected sequences > 3, more than features"),
        ({"targets": "bootstrapped", "horizon": 1}, "expected horizon >= 2 for bootstrapped"),
    ],
)
def test_what_cannot_work_is_refused_when_the_task_is_made(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        chain_task(**options)


def test_cells_of_images_and_spin_without_the_torsos_shapes_are_refused():
    with pytest.raises(InputError, match="expected observations that are vectors"):
        make_auxiliary_task(chain_config(), num_features=3, observation_shape=(8, 8, 3))
    config = chain_config("spin", objective={"averaging_rate": 0.5})
    task = make_auxiliary_task(config, num_features=3, observation_shape=(1,))
    with pytest.raises(InputError, match="expected an encoder for averaging_rate < 1"):
        task.init(jax.random.key(0))


def test_rows_of_another_shape_than_the_task_wants_are_refused():
    task = chain_task()
    params, state = jnp.ones((STATES, 3)), task.init(jax.random.key(0))
    rows = walks(jax.random.key(0), 128, 7)
    with pytest.raises(InputError, match=r"expected observations of shape \(128, 12, 1\)"):
        task.loss(params, params, encode, rows, state, jax.random.key(0))
