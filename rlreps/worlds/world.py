"""A game as a table: its states, transitions, rewards, observations, and what follows from them."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import scipy.sparse

from rlreps.errors import InputError, require, require_choice, require_positive
from rlreps.files import read_archive, write_archive
from rlreps.numerics import as_real, bytes_of, digest_of
from rlreps.subspace import Centring
from rlreps.subspace.svd import Decomposition
from rlreps.successor.measure.grids import BoxGrid
from rlreps.successor.truth.ground_truth import GroundTruth
from rlreps.successor.truth.save_matrix import save_matrix
from rlreps.successor.truth.store import MatrixStore
from rlreps.typing import ArrayLike, DoubleArray
from rlreps.worlds import planning
from rlreps.worlds.enumeration import enumerate_states
from rlreps.worlds.environment import TableEnvironment
from rlreps.worlds.planning import TransitionTable, checked_policy, require_chances
from rlreps.worlds.tables import (
    as_observations,
    build_table,
    check_entries,
    check_table,
    checked_shape,
    restart,
    rounded_sums,
)
from rlreps.worlds.toy_texts import read_table
from rlreps.worlds.truths import SuccessorSolver, checked_discount, describe_truth, solve_truth

_KIND = "world"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """A game of n states and A actions as a table.

    Attributes:
        transitions: Probabilities of next states, sparse, [n A, n]; row s A + a is of action a in
            state s. Terminal states lead to themselves.
        rewards: Expected reward of each action, [n, A]; 0 in terminal states.
        terminal: States that end an episode, [n].
        start: Distribution of the first state, [n].
        observations: What an agent sees of each state, [n, ...]: uint8 images or float vectors.
        coordinates: Numbers that place a state in figures, [n, k], such as the agent's position and
            direction; None without any.
        names: Names of the coordinates, [k]; on maps, one of the name "row" counts downwards.
        about: How the world was made, JSON values.
        transition_rewards: Reward of each entry of ``transitions``, [entries], whose expectations
            ``rewards`` are; None where rewards depend on state and action alone.
    """

    transitions: TransitionTable
    rewards: DoubleArray
    terminal: npt.NDArray[np.bool_]
    start: DoubleArray
    observations: npt.NDArray[Any]
    coordinates: npt.NDArray[Any] | None = None
    names: tuple[str, ...] = ()
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    transition_rewards: DoubleArray | None = None

    def __post_init__(self) -> None:
        for name, kind in (("rewards", "float64"), ("terminal", "bool"), ("start", "float64")):
            found = getattr(self, name).dtype.name
            require(found == kind, f"{name} of type {kind}", found)
        states, actions = checked_shape(self.rewards, "rewards", 2)
        check_table(self.transitions, (states, actions))
        for name in ("terminal", "start"):
            found = getattr(self, name).shape
            require(found == (states,), f"{name} [{states}]", found)
        require_chances("first states", self.start)
        whole = abs(float(self.start.sum()) - 1.0) < 1e-9
        require(whole, "a start distribution that sums to 1", float(self.start.sum()))
        over = float(self.start[self.terminal].sum())
        require(over == 0.0, "a start distribution without terminal states", over)
        for name in ("rewards", "observations", "coordinates"):
            finite = getattr(self, name) is None or np.isfinite(getattr(self, name)).all()
            require(bool(finite), f"finite {name}", "NaN or infinity")
        if self.transition_rewards is not None:
            check_entries(self.transition_rewards, self.transitions, self.rewards)
        seen = self.observations
        known = seen.dtype == np.uint8 or seen.dtype == np.float32
        require(known, "observations of type uint8 or float32", seen.dtype.name)
        require(seen.shape[:1] == (states,), f"observations of {states} states", seen.shape)
        if self.coordinates is not None:
            axes = len(self.names)
            found = self.coordinates.shape
            require(found == (states, axes), f"coordinates [{states}, {axes}], as named", found)

    @classmethod
    def from_arrays(
        cls,
        *,
        next_states: ArrayLike | None = None,
        probabilities: Any = None,
        rewards: ArrayLike | None = None,
        transition_rewards: Any = None,
        terminal: ArrayLike | None = None,
        start: ArrayLike | None = None,
        observations: ArrayLike | None = None,
        coordinates: ArrayLike | None = None,
        names: Sequence[str] = (),
        about: Mapping[str, Any] | None = None,
    ) -> "World":
        """Make a world from arrays.

        Args:
            next_states: The next state of each action, [n, A], or else ``probabilities``.
            probabilities: Probabilities of next states, [A, n, n]: an array, or A sparse matrices.
                Rows that float32 has rounded are normalised; so is ``start``.
            rewards: Expected rewards, [n, A], or else ``transition_rewards``.
            transition_rewards: Rewards of transitions, [A, n, n], in the form of ``probabilities``.
            terminal: Which states are terminal, [n]; none by default. Their own transitions and
                rewards are not used.
            start: Distribution of the first state, [n]; uniform over the states that are not
                terminal by default.
            observations: What an agent sees, [n, ...]: uint8, or numbers kept as float32; by
                default one unit for each state, [n, n].
            coordinates: Places of the states in figures, [n, k].
            names: Names of the coordinates.
            about: How the world was made, JSON values.

        Raises:
            InputError: For arrays that do not fit each other.
        """
        ends, table, paid, each = build_table(
            next_states, probabilities, rewards, transition_rewards, terminal
        )
        states = len(ends)
        first = as_real(~ends if start is None else start, "start").astype(np.float64)
        first /= max(first.sum(), 1e-300) if start is None else rounded_sums(first.sum())
        seen = np.eye(states, dtype=np.float32) if observations is None else observations
        places = None if coordinates is None else as_real(coordinates, "coordinates")
        return cls(
            transitions=table,
            rewards=paid,
            terminal=ends,
            start=first,
            observations=as_observations(seen),
            coordinates=None if places is None else places.astype(np.float64),
            names=tuple(names),
            about=dict(about or {}),
            transition_rewards=each,
        )

    @classmethod
    def enumerate(cls, env: Any, **options: Any) -> "World":
        """Find every state of a deterministic Gymnasium environment.

        Args:
            env: The environment, with discrete actions.
            options: As for ``enumeration.enumerate_states``.

        Raises:
            InputError: As for ``enumeration.enumerate_states``.
        """
        return cls.from_arrays(**enumerate_states(env, **options))

    @classmethod
    def from_gymnasium_table(
        cls, env: Any, observe: Callable[[int], ArrayLike] | None = None
    ) -> "World":
        """Read ``env.unwrapped.P`` of a toy text, restricted to the states that starts reach.

        Args:
            env: The environment.
            observe: State of the environment → its observation; by default a one-hot code of the
                world's row, whose number in the environment is in ``about["states"]``.

        Raises:
            InputError: If the environment has no table, a wrapper that may change what it says, or
                steps that it does not list.
        """
        return cls.from_arrays(**read_table(env, observe))

    def __repr__(self) -> str:
        seen, name = self.observations, self.about.get("world") or self.about.get("name", "")
        size = f"{self.num_states} states, {self.num_actions} actions"
        name = f"{name}, restarted," if self.about.get("restarted") else name
        return f"<World {name} of {size}, observations {list(seen.shape[1:])} {seen.dtype}>"

    @property
    def num_states(self) -> int:
        """Number of states, n."""
        return len(self.rewards)

    @property
    def num_actions(self) -> int:
        """Number of actions, A."""
        return int(self.rewards.shape[1])

    @property
    def next_states(self) -> npt.NDArray[np.int64] | None:
        """The next state of each action, [n, A]; None if transitions are stochastic."""
        if self.transitions.nnz != self.rewards.size:
            return None
        return self.transitions.indices.reshape(self.rewards.shape).astype(np.int64)

    @property
    def num_aliased(self) -> int:
        """Number of states whose observation another state shares."""
        seen = bytes_of(self.observations, self.observations.dtype)
        _, counts = np.unique(seen, return_counts=True)
        return int(counts[counts > 1].sum())

    @property
    def digest(self) -> str:
        """SHA-256 of everything but ``about``."""
        return digest_of(self._arrays(), json.dumps(list(self.names)))

    @property
    def rules_digest(self) -> str:
        """SHA-256 of transitions, rewards, terminal states and first states alone."""
        shown = ("observations", "coordinates")
        kept = {name: each for name, each in self._arrays().items() if name not in shown}
        return digest_of(kept, json.dumps(list(self.names)))

    def save(self, path: str | Path) -> Path:
        """Write the world to an .npz file, whole or not at all; nothing is pickled."""
        record = {
            "kind": _KIND,
            "names": list(self.names),
            "about": dict(self.about),
            "digest": self.digest,
        }
        write_archive(Path(path), self._arrays(), record, compress=True)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> "World":
        """Read a world that ``save`` has written.

        Raises:
            InputError: If the file holds no world, or is not what was written.
        """
        arrays, record = read_archive(Path(path), str(path))
        require(record.get("kind") == _KIND, f"a world in {path}", record.get("kind"))
        try:
            rewards = arrays["rewards"]
            parts = (arrays["probabilities"], arrays["columns"], arrays["rows"])
            world = cls(
                transitions=scipy.sparse.csr_array(parts, (rewards.size, len(rewards))),
                rewards=rewards,
                terminal=arrays["terminal"],
                start=arrays["start"],
                observations=arrays["observations"],
                coordinates=arrays.get("coordinates"),
                names=tuple(record["names"]),
                about=record["about"],
                transition_rewards=arrays.get("transition_rewards"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"expected a world in {path}, got {error}") from error
        require(world.digest == record.get("digest"), f"the world written to {path}", "another one")
        return world

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        found = {
            "probabilities": self.transitions.data,
            "columns": self.transitions.indices.astype(np.int32),
            "rows": self.transitions.indptr.astype(np.int64),
            "rewards": self.rewards,
            "terminal": self.terminal,
            "start": self.start,
            "observations": self.observations,
        }
        more = {name: getattr(self, name) for name in ("coordinates", "transition_rewards")}
        return found | {name: array for name, array in more.items() if array is not None}

    def restarted(self) -> "World":
        """Return the game without an end: terminal states lead to first states, and pay nothing."""
        table, each = restart(self.transitions, self.transition_rewards, self.terminal, self.start)
        return dataclasses.replace(
            self,
            transitions=table,
            terminal=np.zeros_like(self.terminal),
            transition_rewards=each,
            about={**self.about, "restarted": True},
        )

    def environment(self, max_steps: int | None = None) -> TableEnvironment:
        """Return a compiled copy: an ``Environment`` in JAX that looks its observations up.

        Outcomes and first states of a probability below 6e-8 may never occur (single precision).

        Args:
            max_steps: Steps after which an episode is truncated; None has no limit.
        """
        return TableEnvironment.of(self, max_steps)

    def optimal_action_values(self, discount: float = 0.95) -> DoubleArray:
        """Compute Q*, [n, A], by policy iteration."""
        return planning.optimal_action_values(self.transitions, self.rewards, discount)

    def optimal_values(self, discount: float = 0.95) -> DoubleArray:
        """Compute V*, [n]."""
        return np.asarray(self.optimal_action_values(discount).max(axis=1))

    def policy_values(self, policy: ArrayLike | None = None, discount: float = 0.95) -> DoubleArray:
        """Compute the values [n] of a policy [n, A]; None is the uniformly random one."""
        discount = checked_discount(discount)
        chances = checked_policy(policy, self.num_states, self.num_actions)
        return planning.policy_values(self.transitions, self.rewards, chances, discount)

    def effective_horizon(self, discount: float = 0.95, steps: int = 100) -> float | None:
        """Bound the effective horizon of a deterministic game; see ``planning``.

        Raises:
            InputError: For stochastic transitions.
        """
        require(self.next_states is not None, "deterministic transitions", "stochastic ones")
        require_positive("steps", steps)
        table, start = self.transitions, self.start
        return planning.effective_horizon(table, self.rewards, start, discount, steps)

    def successor(
        self,
        policy: ArrayLike | None = None,
        *,
        discount: float = 0.95,
        terminal: Literal["leave", "absorb"] = "leave",
    ) -> SuccessorSolver:
        """Factorise I − γP of a policy: its ``matrix`` is Ψ = Σ_t γᵗ Pᵗ, [n, n].

        Args:
            policy: Probabilities of actions, [n, A]; None is the uniformly random policy.
            discount: γ.
            terminal: Whether an episode leaves the game in a terminal state, which is then counted
                once, or stays there, so that the state's column dominates.
        """
        discount = checked_discount(discount)
        require_choice("terminal", terminal, ["leave", "absorb"])
        chances = checked_policy(policy, self.num_states, self.num_actions)
        chain = planning.chain_of(self.transitions, chances)
        if terminal == "leave":
            going = scipy.sparse.diags_array((~self.terminal).astype(np.float64))
            chain = scipy.sparse.csr_array(going @ chain)
        return SuccessorSolver(chain, discount)

    def truth(
        self,
        policy: ArrayLike | None = None,
        *,
        discount: float = 0.95,
        terminal: Literal["leave", "absorb"] = "leave",
        centring: Centring = "columns",
        decomposition: Decomposition | None = None,
    ) -> GroundTruth:
        """Compute the successor measure of a policy, exact for the table, and its subspace.

        Rows and columns are states, all of the same weight. ``settings`` say if the table itself is
        an estimate, and how the subspace was computed.

        Args:
            policy: Probabilities of actions, [n, A], such as ``planning.epsilon_greedy`` of
                ``optimal_action_values()``; None is the uniformly random policy.
            discount: γ.
            terminal: As for ``successor``.
            centring: Which means to subtract.
            decomposition: How to compute the subspace; by default exactly up to 1,000 states, and
                beyond by randomised iteration on products with Ψ, with a bound on its error.

        Returns:
            The truth, whose ``observations`` are the world's. Up to 4,000 states, ``matrix`` is Ψ
            after centring; ``successor(...).matrix`` is Ψ.

        Raises:
            InputError: For a policy that does not fit, a discount out of range, or a single state.
        """
        solver = self.successor(policy, discount=discount, terminal=terminal)
        settings = describe_truth(self, policy, discount, terminal, centring)
        matrix, principal = solve_truth(solver, centring, decomposition)
        settings["decomposition"] = principal.method
        grid, cells = self.places()
        return GroundTruth(
            coordinates=jnp.asarray(grid.unit_centres()[cells]),
            matrix=matrix,
            principal=principal,
            settings=settings,
            error=principal.distance_bound,
            grid=grid,
            cells=cells,
            observed=jnp.asarray(self.observations),
        )

    def save_truth(
        self,
        path: str | Path,
        policy: ArrayLike | None = None,
        *,
        discount: float = 0.95,
        terminal: Literal["leave", "absorb"] = "leave",
        centring: Centring = "columns",
        about: Mapping[str, Any] | None = None,
    ) -> MatrixStore:
        """Store the successor measure of a policy, for ``rlreps train`` and every other command.

        Args:
            path: A folder that is new, empty or holds the same measure.
            policy: As for ``truth``.
            discount: As for ``truth``.
            terminal: As for ``truth``.
            centring: Which means are subtracted when the store is read.
            about: Further settings, JSON values, such as how the policy was made.

        Raises:
            InputError: As for ``truth``, if the matrix exceeds the memory, or if γ is so near 1
                that float32 does not hold the differences between states.
        """
        settings = describe_truth(self, policy, discount, terminal, centring)
        settings |= about or {}
        solver = self.successor(policy, discount=discount, terminal=terminal)
        grid, cells = self.places()
        return save_matrix(
            path,
            solver.matrix,
            grid,
            cells=cells,
            observations=self.observations,
            settings=settings,
        )

    def places(self) -> tuple[BoxGrid, npt.NDArray[np.int64]]:
        """Return the grid of the coordinates and the cell of each state, [n].

        Several states may share a cell. States without coordinates lie along one axis.
        """
        if self.coordinates is None:
            return BoxGrid.numbered(self.num_states), np.arange(self.num_states)
        grid = BoxGrid.spanning(self.coordinates, self.names, most=1_000)
        return grid, np.asarray(grid.cell(self.coordinates))
