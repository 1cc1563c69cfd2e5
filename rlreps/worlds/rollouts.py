"""Rollouts from saved states of a Gymnasium environment.

An environment on the host has no state that a program could hold: it is saved and restored
(``StateCopies``). Random numbers of a rollout, the environment's own and the policy's, are keyed by
(seed, number of the state, rollout).
"""

import hashlib
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
import numpy.typing as npt
from jax import Array

from rlreps.errors import InputError, own_code, require, require_memory, warn_user
from rlreps.numerics import as_real, jit, matmul
from rlreps.runs.progress import progress_bar
from rlreps.successor.fitting.recording import Policy
from rlreps.successor.measure.rows import (
    RowEstimates,
    RowEstimator,
    checked_cells,
    combine_halves,
)
from rlreps.successor.measure.settings import RolloutSettings
from rlreps.worlds.copies import (
    OwnCopies,
    StateCopies,
    digest_of_key,
    state_copies,
    take_first_steps,
)
from rlreps.worlds.settings import StateSampling

_STATES_TRIED, _STEPS_TRIED = 16, 8
"""Number of saved states from which steps are repeated, and of steps from each."""

_BATCH, _NUMBERS = 512, 2**25
"""Most observations, and most numbers in them, whose cumulants are computed at a time."""


class _Visit(NamedTuple):
    """A saved state and what an agent sees there."""

    saved: Any
    observation: npt.NDArray[Any]


class SavedStates:
    """States that a policy visits in a Gymnasium environment, and rollouts from them.

    Attributes:
        observations: What an agent sees of the states, [n, ...].
    """

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        sampling: StateSampling,
        *,
        policy: Policy | None = None,
        save: Callable[[Any], Any] | None = None,
        restore: Callable[[Any, Any], object] | None = None,
    ) -> None:
        """Draw distinct states, uniformly from those in which the policy acts.

        Args:
            environment: From ``gymnasium.make``, or your own.
            sampling: How many states to draw, from how many visits.
            policy: (observation, generator) → action; None draws from the action space.
            save: Environment → its state; None copies all attributes.
            restore: (environment, state) → nothing; puts the environment into a saved state.

        Raises:
            InputError: For too few distinct states, an environment that cannot be copied, or more
                than the memory holds.
        """
        single = isinstance(environment, gymnasium.Env)
        require(single, "a single environment (gymnasium.make)", type(environment).__name__)
        seed = sampling.seed
        self._environment, self._policy, self._seed = environment, policy, seed
        self._counters = frozenset(sampling.counters)
        with own_code("an environment and a policy that take steps"):
            environment.action_space.seed(seed)
            take_first_steps(environment, seed, environment.action_space.sample())
            seen = self._seen(environment.reset(seed=seed)[0])
            self._copies = state_copies(environment, save, restore)
            saved = self._copies.save(environment)
            size = 3 * seen.nbytes + (len(saved) if isinstance(saved, bytes) else 0)
            require_memory(f"{sampling.states:,} saved states", sampling.states * size)
            most = sampling.most_distinct
            with progress_bar("visits", total=most, unit="distinct states", after=2.0) as advance:
                self._visits = self._walk(seen, sampling, advance)
            whole = state_copies(environment, save, restore, counters=(), random=True)
            repeated = self._count_repeatable(whole)
        if 2 * repeated < _STATES_TRIED:
            warn_user(
                f"steps from only {repeated} of {_STATES_TRIED} saved states lead where they led "
                "before: the environment keeps a part of its state, or of its random numbers, "
                "where copies do not reach, and rollouts may not start in their state"
            )
        self.observations = np.stack([each.observation for each in self._visits])

    def _walk(
        self,
        seen: npt.NDArray[Any],
        sampling: StateSampling,
        advance: Callable[[int], object],
    ) -> list[_Visit]:
        """Follow the policy; return visits of distinct states.

        Args:
            seen: The first observation.
            sampling: How many states to draw, from how many visits.
            advance: Called for each distinct state.
        """
        num_states, most_visits = sampling.states, sampling.most_visits
        environment, generator = self._environment, np.random.default_rng(self._seed)
        environment.action_space.seed(self._seed)
        kept: dict[int, _Visit] = {}
        copies: set[bytes] = set()
        states: set[bytes] = set()
        for _ in range(most_visits):
            saved = self._copies.save(environment)
            action = self._act(seen, generator)
            raw, _, terminated, truncated, _ = environment.step(action)
            following = self._seen(raw)
            if self._is_new(saved, copies, states):
                advance(1)
                # Every distinct state stays with the same probability (reservoir sampling).
                number = len(states) - 1
                place = number if number < num_states else int(generator.integers(number + 1))
                if place < num_states:
                    kept[place] = _Visit(saved, seen)
                if len(states) >= sampling.most_distinct:
                    break
            over = terminated or truncated
            seen = self._seen(environment.reset()[0]) if over else following
        if len(states) < num_states:
            raise InputError(
                f"expected {num_states} distinct states among {most_visits} visits, got "
                f"{len(states)}; ask for fewer states, or for more visits of each"
            )
        return list(kept.values())

    def _is_new(self, saved: Any, copies: set[bytes], states: set[bytes]) -> bool:
        """Tell whether a state has not been seen, by digests, and remember it."""
        if isinstance(saved, bytes):
            # Equal copies are equal states, and quick to compare.
            copy = hashlib.blake2b(saved, digest_size=16).digest()
            if copy in copies:
                return False
            copies.add(copy)
        before, parts = len(states), self._copies.parts(saved)
        telling = tuple(item for item in parts.items() if item[0][1] not in self._counters)
        states.add(digest_of_key(telling if parts else self._copies.key(saved)))
        return len(states) > before

    def sampler(
        self, settings: RolloutSettings, cumulants: Callable[[Array], Array]
    ) -> "SavedStateSampler":
        """Return the estimator of discounted sums of cumulants of an observation."""
        return SavedStateSampler(self, settings, cumulants)

    def rollout(self, number: int, rollout: int, steps: int) -> list[npt.NDArray[Any]]:
        """Return the observations of a rollout, of at most ``steps`` steps.

        Raises:
            InputError: For an episode that is truncated within these steps.
        """
        visit = self._visits[number]
        sequence = np.random.SeedSequence([self._seed, number, rollout])
        generator = np.random.Generator(np.random.PCG64(sequence))
        self._copies.restore(self._environment, visit.saved)
        self._seed_generators(sequence)
        self._environment.action_space.seed(int(generator.integers(2**31)))
        found = [visit.observation]
        with own_code("an environment and a policy that take steps"):
            for time in range(1, steps + 1):
                action = self._act(found[-1], generator)
                raw, _, terminated, truncated, _ = self._environment.step(action)
                found.append(self._seen(raw))
                if terminated:
                    break
                if truncated and time < steps:
                    raise InputError(
                        f"expected an environment that runs for {steps} steps from every state, "
                        f"got one that is truncated after {time}: give it a longer limit "
                        "(max_episode_steps)"
                    )
        return found

    def _seed_generators(self, sequence: np.random.SeedSequence) -> None:
        """Seed all generators of the restored state, and the environment's own, in place."""
        known = {id(each): each for each in self._copies.generators}
        own = self._environment.unwrapped.np_random
        for each in {**known, id(own): own}.values():
            words = sequence.spawn(1)[0].generate_state(8)
            if isinstance(each, np.random.Generator):
                bits: Any = each.bit_generator
                bits.state = type(bits)(words).state
            elif isinstance(each, np.random.RandomState):
                each.seed(words)
            else:
                each.seed(words.tobytes())

    def _act(self, seen: npt.NDArray[Any], generator: np.random.Generator) -> Any:
        if self._policy is None:
            return self._environment.action_space.sample()
        return self._policy(seen, generator)

    def _seen(self, observation: Any) -> npt.NDArray[Any]:
        """Return a copy of an observation: the environment may use its array again."""
        one = not isinstance(observation, dict | tuple | str)
        expected = "an observation in one array (see gymnasium.wrappers.FlattenObservation)"
        require(one, expected, f"a {type(observation).__name__}")
        return np.array(as_real(observation, "an observation"))

    def _count_repeatable(self, copies: StateCopies | OwnCopies) -> int:
        """Count tried states whose steps lead where they led before.

        Args:
            copies: Copies of states with their random generators.
        """
        environment, generator = self._environment, np.random.default_rng(self._seed)
        seen, tried = self._seen(environment.reset(seed=self._seed)[0]), []
        for _ in range(_STATES_TRIED):
            random = dict(environment.unwrapped.np_random.bit_generator.state)
            saved, path = copies.save(environment), []
            for _ in range(_STEPS_TRIED):
                action = self._act(seen, generator)
                raw, reward, terminated, truncated, _ = environment.step(action)
                seen, over = self._seen(raw), bool(terminated or truncated)
                path.append((action, seen, (reward, over)))
                if over:
                    seen = self._seen(environment.reset()[0])
                    break
            tried.append((saved, random, path))
        same = 0
        # Backwards: in their own order, a state that is not restored would be where it was.
        for saved, random, path in reversed(tried):
            copies.restore(environment, saved)
            environment.unwrapped.np_random.bit_generator.state = random
            same += all(self._leads_to(*step) for step in path)
        return same

    def _leads_to(self, action: Any, seen: npt.NDArray[Any], outcome: tuple[Any, bool]) -> bool:
        raw, reward, terminated, truncated, _ = self._environment.step(action)
        found = (reward, bool(terminated or truncated))
        return np.array_equal(self._seen(raw), seen) and found == outcome


class SavedStateSampler(RowEstimator):
    """Estimates discounted sums of cumulants from rollouts of saved states."""

    def __init__(
        self,
        states: SavedStates,
        settings: RolloutSettings,
        cumulants: Callable[[Array], Array],
    ) -> None:
        """Compile the cumulants.

        Args:
            states: The states.
            settings: The discounted sum and the number of rollouts.
            cumulants: Observation → numbers [t] (float32).
        """
        self.num_starts = len(states.observations)
        self._states, self._settings = states, settings
        one = states.observations[0]
        most = settings.rollouts * settings.horizon
        self._batch = max(1, min(_BATCH, most, _NUMBERS // max(1, one.size)))
        (self._columns,) = jax.eval_shape(
            cumulants, jax.ShapeDtypeStruct(one.shape, one.dtype)
        ).shape

        @jit
        def weighted(observations: Any, weights: Any) -> Array:
            return matmul(weights, jax.vmap(cumulants)(observations))

        self._weighted = weighted

    def row_blocks(
        self, blocks: Sequence[Sequence[int] | np.ndarray]
    ) -> Generator[RowEstimates, None, None]:
        """See ``RowEstimator.row_blocks``; the second half has the odd rollouts."""
        for block in [checked_cells(block, self.num_starts) for block in blocks]:
            first, second = np.stack([self._sums(int(number)) for number in block], axis=1)
            yield RowEstimates(*combine_halves(first, second, self._settings.rollouts))

    def _sums(self, number: int) -> npt.NDArray[np.float64]:
        """Return the discounted sums of the even and of the odd rollouts of a state, [2, t]."""
        discounts, last = self._settings.discounts, self._settings.steps_ahead
        skipped = last + 1 - self._settings.horizon  # 1 if the start does not count.
        batches = []
        seen, weights = self._empty()
        filled = 0
        for rollout in range(self._settings.rollouts):
            counted = self._states.rollout(number, rollout, last)
            for discount, observation in zip(discounts, counted[skipped:], strict=False):
                seen[filled], weights[rollout % 2, filled] = observation, discount
                filled += 1
                if filled == len(seen):
                    # Computed while the environment goes on.
                    batches.append(self._weighted(seen, weights))
                    seen, weights = self._empty()
                    filled = 0
        batches.append(self._weighted(seen, weights))
        return np.asarray(np.sum([np.asarray(each) for each in batches], 0, np.float64))

    def _empty(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """Return a batch of observations without weight."""
        one = self._states.observations[0]
        return np.zeros((self._batch, *one.shape), one.dtype), np.zeros(
            (2, self._batch), np.float32
        )
