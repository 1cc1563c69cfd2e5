"""Truths of games that cannot be enumerated, from rollouts of states that a policy visits.

Ψ(s, r) = E Σ_{i<h} γⁱ r(o_i) for n visited states s and t random functions r of the observation.
Rollouts start at the stored states. The last state of an episode counts once, and nothing counts
after it; time limits end no rollout.
"""

import contextlib
import dataclasses
import functools
import threading
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax

from rlreps.config import as_json, with_sizes
from rlreps.cumulants import RandomIndicators
from rlreps.envs.core import Environment, TimeStep, step_or_reset
from rlreps.errors import InputError, own_code, require, require_memory
from rlreps.numerics import (
    as_inputs,
    bytes_of,
    digest_of_leaves,
    jit,
    seed_key,
    usable_cores,
)
from rlreps.runs.progress import hidden, progress_bar
from rlreps.runs.workers import map_names
from rlreps.successor.fitting.recording import JaxPolicy, Policy
from rlreps.successor.measure.chains import environment_chain
from rlreps.successor.measure.monte_carlo import RowSampler
from rlreps.successor.measure.rows import RowEstimates, RowEstimator
from rlreps.successor.measure.settings import ROLLOUTS_PER_BLOCK
from rlreps.successor.truth.save_matrix import check_settings, create_matrix
from rlreps.successor.truth.states import CUMULANT_SUMS
from rlreps.successor.truth.store import MatrixStore
from rlreps.worlds.rollouts import SavedStates, SavedStateSampler
from rlreps.worlds.settings import StateSampling
from rlreps.worlds.tables import as_observations

# A round of visits is so many steps of so many copies of the environment.
_ROUND_COPIES, _ROUND_STEPS = 64, 256
_BLOCK_ROWS = 25
_TILE_STATES = 32
# Purposes of keys; rollouts use the numbers of the states, which are smaller.
_VISITS, _CUMULANTS = 2**32 - 1, 2**32 - 2


def sample_to_store(
    path: str | Path,
    environment: Environment | gymnasium.Env[Any, Any] | Callable[[], gymnasium.Env[Any, Any]],
    sampling: StateSampling | None = None,
    *,
    policy: JaxPolicy | Policy | None = None,
    save: Callable[[Any], Any] | None = None,
    restore: Callable[[Any, Any], object] | None = None,
    about: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
) -> tuple[MatrixStore, int]:
    """Draw states that a policy visits, and store discounted sums of cumulants from each.

    The store is written in blocks of 25 states; run again to resume. ``successor.load`` reads it as
    a ground truth, whose ``error`` is the noise floor.

    Every random number is keyed by (seed, number of the state, rollout block, step); in an
    environment of Gymnasium, by (seed, number of the state, rollout), apart from random numbers of
    generators that its state does not hold, such as an emulator's.

    Args:
        path: A folder that is new or empty, or holds the same truth, complete or not.
        environment: Any compiled environment: PuddleWorld, ``world.environment()``, gymnax, or one
            of your own. Or one of Gymnasium whose state can be saved, with an observation in one
            array, or a function that makes it; it runs on one core.
        sampling: The states, cumulants and rollouts; None is the default.
        policy: (key, observation) → action, which visits states and follows rollouts; in an
            environment of Gymnasium (observation, generator) → action. None is uniformly random.
        save: Environment of Gymnasium → its state; None copies all of its attributes. Random
            generators do not belong to a state.
        restore: (environment, state) → nothing; puts it into a saved state.
        about: More settings to record, such as the name of the environment; as in ``save_matrix``.
        executor: Where to compute the rows of 25 states at a time; this process writes them. It
            needs a function that makes an environment of Gymnasium. Each worker makes its own, and
            visits the same states first.

    Returns:
        The store, and the number of states that were missing from it.

    Raises:
        InputError: For another environment, a policy without one integer as action, too few
            distinct states among the visits, more than the memory holds, settings that the store
            records by itself, or a path that holds something else.
    """
    check_settings(about or {})
    sampling = StateSampling() if sampling is None else sampling
    expected = "a function that makes an environment of Gymnasium, for an executor"
    require(executor is None or _makes_environments(environment), expected, environment)
    make = functools.partial(_sampler, environment, sampling, policy, save, restore)
    sampler, seen = make()
    require(executor is None or isinstance(sampler, SavedStateSampler), expected, "another one")
    observations = as_observations(seen)
    _, counts = np.unique(bytes_of(observations, observations.dtype), return_counts=True)
    store = create_matrix(
        path,
        (sampling.states, sampling.tasks),
        None,
        cells=None,
        observations=observations,
        settings={
            "quantity": CUMULANT_SUMS,
            "method": "monte_carlo",
            "policy": "uniform" if policy is None else "given",
            **as_json(sampling),
            "counters": list(sampling.counters),
            "rollouts_per_block": ROLLOUTS_PER_BLOCK,
            "aliased": int(counts[counts > 1].sum()),
            **(about or {}),
        },
        block_rows=_BLOCK_ROWS,
        sampled=True,
    )
    blocks = {index: range(*store.matrix.block_range(index)) for index in store.missing_blocks()}
    missing = sum(map(len, blocks.values()))
    found = _in_turn(sampler, blocks)
    if executor is not None:
        found = map_names(_Worker(make, digest_of_leaves(seen), blocks), blocks, executor)
    with (
        contextlib.closing(found) as parts,
        progress_bar("rollouts", total=missing, unit="states", after=2.0) as advance,
    ):
        for index, part in parts:
            store.write_block(index, part)
            advance(len(blocks[index]))
    return store.matrix, missing


def _sampler(
    environment: Any,
    sampling: StateSampling,
    policy: Any,
    save: Callable[[Any], Any] | None,
    restore: Callable[[Any, Any], object] | None,
) -> tuple[RowEstimator, npt.NDArray[Any]]:
    """Return the estimator of the sums of the states that a policy visits, and what is seen there.

    Arguments are those of ``sample_to_store``.
    """
    states: SavedStates | _CompiledStates
    if _makes_environments(environment):
        with own_code("a function that makes an environment"):
            environment = environment()
    if isinstance(environment, gymnasium.Env):
        states = SavedStates(environment, sampling, policy=policy, save=save, restore=restore)
    else:
        states = _CompiledStates(environment, sampling, policy)
    observations = states.observations
    # The option decides how keys turn into bits; a user's own setting must not change them.
    with jax.threefry_partitionable(True):
        family = with_sizes(sampling.cumulants, num_inputs=max(1, observations[0].size))
        flat = jax.vmap(_flat)(jnp.asarray(observations))
        params = _draw_cumulants(family, sampling, flat)
    return states.sampler(sampling, lambda seen: family.apply(params, _flat(seen))), observations


def _makes_environments(given: Any) -> bool:
    """Tell whether this is a function or class; an environment may be callable, too."""
    return isinstance(given, type) or (
        callable(given) and not isinstance(given, Environment | gymnasium.Env)
    )


def _in_turn(
    sampler: RowEstimator, blocks: Mapping[int, range]
) -> Generator[tuple[int, RowEstimates]]:
    """Yield the index and the rows of each block."""
    with contextlib.closing(sampler.row_blocks([*blocks.values()])) as found:
        yield from zip(blocks, found, strict=True)


_ONE_AT_A_TIME = threading.Lock()
"""Held where an environment takes steps: workers may be threads of one process."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Worker:
    """Computes blocks elsewhere; what was made for the first block serves the others."""

    make: Callable[[], tuple[RowEstimator, npt.NDArray[Any]]]
    digest: str
    blocks: Mapping[int, range]

    @functools.cached_property
    def sampler(self) -> RowEstimator:
        # The first process has shown its progress, and warned.
        with hidden(), warnings.catch_warnings(action="ignore"):
            sampler, observations = self.make()
        same = digest_of_leaves(observations) == self.digest
        require(same, "an environment that visits the same states in each worker", "other states")
        return sampler

    def __call__(self, index: int) -> RowEstimates:
        with _ONE_AT_A_TIME:
            return self.sampler.estimates(self.blocks[index])


class _CompiledStates:
    """States that a policy visits in a compiled environment, and rollouts from them.

    Attributes:
        observations: What an agent sees of the states, [n, ...].
    """

    def __init__(self, environment: Environment, sampling: StateSampling, policy: Any) -> None:
        """Draw n distinct states."""
        compiled = isinstance(environment, Environment)
        expected = "a compiled environment (see rlreps.envs.Environment), or one of Gymnasium"
        require(compiled, expected, environment)
        self._environment, self._policy = environment, policy
        key = seed_key(sampling.seed, _VISITS)
        state = jax.eval_shape(environment.reset, key)
        seen = jax.eval_shape(environment.observe, state)
        if policy is not None:
            with own_code("a policy (key, observation) → action"):
                action = jax.eval_shape(policy, key, seen)
            whole = action.shape == () and jnp.issubdtype(action.dtype, jnp.integer)
            require(whole, "a policy with one integer as action", action)
        _require_memory(sampling, state, seen)
        with jax.threefry_partitionable(True):
            self._states = jax.tree.map(jnp.asarray, _visit(environment, policy, sampling, key))
            self.observations = np.asarray(jit(jax.vmap(environment.observe))(self._states))

    def sampler(self, sampling: StateSampling, cumulants: Callable[[Array], Array]) -> RowSampler:
        """Return the estimator of discounted sums of cumulants of an observation."""
        environment, states, policy = self._environment, self._states, self._policy

        def counted(state: _Rollout) -> Array:
            return jnp.where(state.counts, cumulants(environment.observe(state.inner)), 0.0)

        def start(_key: Array, number: Array) -> _Rollout:
            inner = jax.tree.map(lambda leaf: leaf[number], states)
            return _Rollout(inner, jnp.asarray(True), jnp.asarray(False))

        def follow(key: Array, state: _Rollout) -> Array:
            action: Array = policy(key, environment.observe(state.inner))
            return action

        chain = environment_chain(
            _UntilTermination(environment),
            num_cells=sampling.states,
            start=start,
            cell=lambda _: jnp.int32(0),
            policy=None if policy is None else follow,
        )
        return RowSampler(chain, sampling, cumulants=counted)


class _Rollout(NamedTuple):
    """A state, whether its cumulants count, and whether the episode has ended, both []."""

    inner: Any
    counts: Array
    ended: Array


@dataclasses.dataclass(frozen=True)
class _UntilTermination:
    """An environment that remembers whether an episode has ended."""

    environment: Environment

    @property
    def num_actions(self) -> int:
        return self.environment.num_actions

    def step(self, key: Array, state: _Rollout, action: Array) -> TimeStep:
        taken = self.environment.step(key, state.inner, action)
        state = _Rollout(taken.state, ~state.ended, state.ended | taken.terminated)
        return taken._replace(state=state)


def _flat(observation: Array) -> Array:
    """Return the numbers of an observation, [c] (float32)."""
    return as_inputs(observation).ravel()


def _require_memory(sampling: StateSampling, state: Any, seen: Any) -> None:
    """Refuse more visits, sums or cumulants than the memory holds, before any step."""
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    visits = 3 * size * (sampling.most_distinct + _ROUND_COPIES * _ROUND_STEPS)
    width = max((sampling.tasks, *getattr(sampling.cumulants, "hidden", ())))
    block = min(ROLLOUTS_PER_BLOCK, sampling.rollouts - sampling.rollouts // 2)
    rollouts = usable_cores() * _TILE_STATES * block * (2 * size + 4 * (seen.size + 2 * width))
    sums = 4 * sampling.states * (8 * sampling.tasks + seen.size)
    require_memory("states, cumulants and rollouts", visits + rollouts + sums)


def _visit(
    environment: Environment, policy: JaxPolicy | None, sampling: StateSampling, key: Array
) -> Any:
    """Return n distinct states, drawn from those in which a policy acts, in order of visits.

    Episodes start again at their end.
    """

    def act(key: Array, state: Any) -> Array:
        if policy is None:
            return jax.random.randint(key, (), 0, environment.num_actions)
        return policy(key, environment.observe(state))

    def step(carry: tuple[Any, Array], key: Array) -> tuple[tuple[Any, Array], Any]:
        states, ended = carry
        action_keys, step_keys = jax.random.split(key, (2, _ROUND_COPIES))
        actions = jax.vmap(act)(action_keys, states)
        taken = step_or_reset(environment, step_keys, states, actions, ended, jnp.any(ended))
        return (taken.state, taken.terminated | taken.truncated), carry

    @jit
    def walk(carry: tuple[Any, Array], index: Array) -> tuple[tuple[Any, Array], Any]:
        return lax.scan(step, carry, jax.random.split(jax.random.fold_in(key, index), _ROUND_STEPS))

    paths = jax.tree_util.tree_leaves_with_path(jax.eval_shape(environment.reset, key))
    names = [getattr(path[-1] if path else None, "name", "") for path, _ in paths]
    left_out = [name in sampling.counters for name in names]
    starts = jax.vmap(environment.reset)(jax.random.split(key, _ROUND_COPIES))
    carry, visits = (starts, jnp.zeros(_ROUND_COPIES, bool)), 0
    pool: list[npt.NDArray[Any]] = []
    while visits < sampling.most_visits:
        carry, (states, ended) = walk(carry, jnp.int32(visits // (_ROUND_COPIES * _ROUND_STEPS)))
        acting, visits = ~np.asarray(ended), visits + ended.size
        new = [np.asarray(leaf)[acting] for leaf in jax.tree.leaves(states)]
        pool = [*map(np.concatenate, zip(pool, new, strict=True))] if pool else new
        first = _first_of_each([leaf for leaf, out in zip(pool, left_out, strict=True) if not out])
        pool = [leaf[first] for leaf in pool]
        if len(pool[0]) >= sampling.most_distinct:
            break
    found, wanted = len(pool[0]), sampling.states
    if found < wanted:
        raise InputError(
            f"expected {wanted} distinct states among {visits} visits, got {found}; ask for fewer "
            "states, or for more visits of each"
        )
    drawn = np.sort(np.random.default_rng(sampling.seed).choice(found, wanted, replace=False))
    return jax.tree.unflatten(jax.tree.structure(states), [leaf[drawn] for leaf in pool])


def _first_of_each(leaves: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Return the number of the first of each group of equal states, given their leaves [m, ...]."""
    parts = [bytes_of(leaf, leaf.dtype).view(np.uint8) for leaf in leaves if leaf.size]
    whole = np.concatenate([part.reshape(len(leaves[0]), -1) for part in parts], axis=1)
    return np.sort(np.unique(bytes_of(whole, whole.dtype), return_index=True)[1])


def _draw_cumulants(family: Any, sampling: StateSampling, observations: Array) -> Any:
    """Draw t cumulants; an indicator's threshold is a quantile of its outputs over the states."""
    params = family.init(seed_key(sampling.seed, _CUMULANTS), sampling.tasks)
    if isinstance(family, RandomIndicators):
        params = family.with_thresholds(params, observations, sampling.quantile)
    return params
