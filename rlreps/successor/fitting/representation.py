"""Successor representations of a user's own data, used and stored as one object.

Values and features belong to the policy, or the mixture of policies, that made the data. Old rows
of a replay buffer belong to old policies of the agent and give the values of these policies.
``SuccessorRepresentation.policy`` returns an improved policy.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from rlreps.encoders import Encoder
from rlreps.errors import (
    InputError,
    require,
    require_choice,
    require_positive,
    require_value,
    warn_user,
)
from rlreps.numerics import inverse_or_zero
from rlreps.runs.folder import RunFolder
from rlreps.runs.locks import exclusive
from rlreps.runs.provenance import provenance
from rlreps.successor.fitting import storage
from rlreps.successor.fitting.behaviour import EstimatedBehaviour, to_probabilities
from rlreps.successor.fitting.config import FitConfig
from rlreps.successor.fitting.factors import Factors
from rlreps.successor.fitting.least_squares import LeastSquares
from rlreps.successor.fitting.observed import Observed, check_finite, format_observation
from rlreps.successor.fitting.policy_checks import describe_unseen
from rlreps.successor.fitting.policy_improvement import ActionValues, Improvement
from rlreps.successor.fitting.quality import Quality
from rlreps.successor.fitting.rewards import Task, arriving_task, rewarded_task, sampled_task
from rlreps.successor.truth.ground_truth import GroundTruth
from rlreps.successor.truth.stored_subspace import centring_of

KIND = "successor representation"
"""Kind of the run folders that hold a representation."""

Scaling = Literal["singular", "white", "none"]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SuccessorRepresentation:
    """A policy's successor measure m, as a solution in p features, and its best factors of rank d.

    F(s, a) = √σ u and B(s) = √σ v with m ≈ FᵀB. The leading singular functions u and v of m are
    orthonormal over the data; σ are the singular values. Features, shaping and distances use rank
    d. Values and policies use the whole solution. A reward counts on arrival: values are Σ_t γᵗ
    r(s_{t+1}).

    Arguments ``observations`` are s, [m, ...]. Methods and the functions that they return raise an
    ``InputError`` for observations or actions unlike the data's. For indices of states, they warn
    (``FitWarning``) of states in which no row starts and no episode ended, and of actions that no
    row takes there.

    Attributes:
        config: The options of the fit, filled in.
        observed: The kind of the observations and actions.
        solution: The whole solution.
        factors: F and B.
        description: Everything that decided the fit, as JSON values.
        quality: What the held-out data say about the fit; None if there were too few.
    """

    config: FitConfig
    observed: Observed
    solution: LeastSquares
    factors: Factors
    description: Mapping[str, Any]
    quality: Quality | None = None

    def __repr__(self) -> str:
        rows, d = len(self.solution.rows.terminated), self.num_features
        return f"SuccessorRepresentation({d} features of {self.observed.shape}, {rows} transitions)"

    @property
    def num_features(self) -> int:
        """Number of features, d."""
        return len(self.factors.singular_values)

    @property
    def singular_values(self) -> np.ndarray:
        """Singular values σ of m in L2 of the data, falling, [d]; zero beyond the rank of m."""
        return self.factors.singular_values

    @property
    def behaviour_weights(self) -> np.ndarray | None:
        """Weights of φ for E[b(a) | s], [p, m_b]; None if the policy does not depend on φ."""
        behaviour = self.solution.behaviour
        if isinstance(behaviour, EstimatedBehaviour) and behaviour.basis == self.solution.basis:
            return behaviour.weights
        return None

    def forward(self, observations: Any, actions: Any = None) -> np.ndarray:
        """Compute F(s, a) of all discrete actions, [m, A, d], or of given actions, [m, d].

        ``actions`` are a, [m] (integers) or [m, k] (a box); None is every discrete action.
        """
        states, taken = self._checked_pairs(observations, actions, "F there is 0")
        return self._at(self.solution.pair_values(states, self.factors.forward), taken)

    def _at(self, blocks: np.ndarray, actions: np.ndarray | None) -> np.ndarray:
        """Compute Σ_c b(a)_c of blocks [m, m_b, d]: of all actions, [m, A, d], or some, [m, d]."""
        if actions is None:
            return blocks
        weights = self.solution.actions.weights(actions)
        return np.asarray(np.einsum("mcd,mc->md", blocks, weights))

    def backward(self, observations: Any) -> np.ndarray:
        """Compute B(s), [m, d]."""
        return self.solution.basis.project(
            self.observed.checked(observations), self.factors.backward
        )

    def measure(self, observations: Any, goals: Any) -> np.ndarray:
        """Compute FᵀB, the density of states s⁺ relative to the states of the data, [m, A, g].

        ``goals`` are s⁺, [g, ...], observations like s. Actions must be discrete.
        """
        states, _ = self._checked_pairs(observations, None, "densities from there are 0")
        forward = self.solution.pair_values(states, self.factors.forward)
        measure: np.ndarray = np.einsum("mad,gd->mag", forward, self.backward(goals))
        return measure

    def probabilities(self, observations: Any) -> np.ndarray:
        """Return the probabilities of the data's policy, [m, A], for discrete actions."""
        require(self.observed.num_actions is not None, "discrete actions", "a box")
        return self.solution.behaviour(self.observed.checked(observations))

    def features(self, observations: Any, *, scaling: Scaling = "singular") -> np.ndarray:
        """Compute state features [m, d]: averages of u(s, a) over the policy's actions.

        Features are 0 at indices of states that ended episodes, since nothing follows them.

        The scaling ``singular`` multiplies by σ, so that the features that matter most to values
        are largest. ``white`` makes the second moment over the data's states the identity. ``none``
        returns u.
        """
        require_choice("scaling", scaling, get_args(Scaling))
        states = self._checked_states(observations, "features there are 0")
        return np.asarray(self._averaged(states, self.factors.forward) @ self._scaled_by(scaling))

    def _scaled_by(self, scaling: Scaling) -> np.ndarray:
        """Return the map from averages of F to features, [d, d]."""
        root = np.sqrt(self.singular_values)
        if scaling == "singular":
            return np.diag(root)
        raw = np.diag(inverse_or_zero(root))
        return np.asarray(raw @ self._whitening if scaling == "white" else raw, np.float32)

    @functools.cached_property
    def _whitening(self) -> np.ndarray:
        """Map from u [d] to features whose second moment is the identity, [d, d]."""
        averaged = self._averaged(self.solution.rows.observation, self.factors.forward)
        features = averaged @ self._scaled_by("none")
        values, vectors = np.linalg.eigh(features.T.astype(np.float64) @ features / len(features))
        rounding = len(values) * np.finfo(np.float32).eps * values[-1]
        scale = inverse_or_zero(np.sqrt(np.where(values > rounding, values, 0.0)))
        return np.asarray((vectors * scale) @ vectors.T)

    # --- Tasks ------------------------------------------------------------------------------------

    def task(
        self,
        observations: Any = None,
        rewards: Any = None,
        *,
        reward: Callable[[Any], Any] | None = None,
    ) -> Task:
        """Define a reward on arrival, by samples or by a function.

        Args:
            observations: States, [m, ...].
            rewards: The reward of arriving in each state, [m]. If the states are the data's next
                observations, row by row, each transition has its own reward, which may depend on
                its state and action too. Otherwise, a state of the data that occurs in the samples
                gets the mean of its samples; other states get a ridge regression on the samples
                (vectors, images) or 0 (indices of states).
            reward: Instead of samples, a function from observations [n, ...] to rewards [n].

        Warns:
            FitWarning: If samples of one state differ, if rewards seem to be those of other
                rows, or of more than the state, if no transition reaches a reward, or if
                fewer than 100 transitions, and 5 % of all, have a reward far from the median:
                (Σ x²)² / Σ x⁴ of the differences x from it, a number of transitions, is as small.
        """
        reached = self.solution.recorded.next_observation
        if reward is not None:
            require(observations is None and rewards is None, "samples or reward=", "both")
            expected = "a function of observations as reward; give arrays as task(states, rewards)"
            require(callable(reward), expected, type(reward).__name__)
            rewards = check_finite("rewards", reward(reached), len(reached))
            return rewarded_task(self.solution, rewards)
        return sampled_task(self.solution, self.observed, observations, rewards)

    def goal(self, observation: Any) -> Task:
        """Return the task of reaching a state; its values are the density m at the state.

        Warns:
            FitWarning: If fewer than 100 rows reach the state (indices) or its surroundings, or if
                arriving in the state ends episodes and observations are not indices.
        """
        goal = self.observed.checked(np.asarray(observation)[None])
        if self.observed.num_states is None and self.solution.is_terminal(goal):
            warn_user(
                f"the goal {format_observation(goal[0])} ends episodes, and its density is smooth: "
                "a policy may stay beside it, where the density is not 0; give the reward of "
                "arriving instead, rep.task(reward=...)"
            )
        return arriving_task(self.solution, goal)

    def action_values(self, observations: Any, task: Task, actions: Any = None) -> np.ndarray:
        """Compute Q(s, a) of the data's policy for all discrete or given actions, [m, A] or [m]."""
        weights = self._of(task).weights
        states, taken = self._checked_pairs(observations, actions, "values there mean nothing")
        found = self._at(self.solution.pair_values(states, weights)[:, :, None], taken)[..., 0]
        return found + np.float64(task.constant)

    def values(self, observations: Any, task: Task) -> np.ndarray:
        """Compute values Σ_t γᵗ r(s_{t+1}) of the data's policy, [m]."""
        weights = self._of(task).weights
        states = self._checked_states(observations, "values there mean nothing")
        return self._averaged(states, weights) + np.float64(task.constant)

    def policy(self, task: Task, improvements: int | None = None) -> Callable[[Any], np.ndarray]:
        """Return the greedy policy: observations [m, ...] → actions [m] or [m, k].

        A single observation gives a single action. The policy takes only actions that the data
        support: those of rows in the same state (indices), or those that the data's policy, if it
        depends on the state, takes with a tenth of the probability of its most likely action.

        Args:
            task: The reward.
            improvements: 1 is greedy on the values of the data's policy. For counted indices of
                states (method ``least_squares``), k adds k − 1 steps of policy iteration, and None
                iterates until the policy stops changing. Otherwise, None and any value but 1 run
                fitted Q iteration to its end.

        Warns:
            FitWarning: If the data do not distinguish actions; if rewards are hardly more than
                costs of actions; if all rows have the same action, or more than half of them start
                in states (indices) in which only one was tried; if fitted Q iteration diverges,
                leaves rows out, ends with discrete actions that the data's policy hardly takes,
                since the nearest rows show them to be much better, or ends with a policy that, by
                the nearest rows, is worse than one improvement (which then replaces it; not told if
                the data's policy depends on the state), or misses more than two fifths of the gain
                that its own values promise, or that leaves the data.
        """
        return functools.partial(self._greedy, self.improved_values(task, improvements))

    def _greedy(self, values: ActionValues, observations: Any) -> np.ndarray:
        array = np.asarray(observations)
        single = array.shape == self.observed.shape
        states = self._checked_states(
            array[None] if single else array, "actions there mean nothing"
        )
        actions = self._improvement.greedy(states, values)
        return np.asarray(actions[0] if single else actions)

    def improved_values(self, task: Task, improvements: int | None = None) -> ActionValues:
        """Return the values among which ``policy``, which documents the arguments, chooses.

        They have values of actions that the data do not support, too.
        """
        if improvements is not None:
            require_positive("improvements", improvements)
        return self._improvement.of_task(self._of(task), improvements)

    @functools.cached_property
    def _improvement(self) -> Improvement:
        return Improvement(self.solution)

    def _of(self, task: Task) -> Task:
        require(isinstance(task, Task), "a task (rep.task, rep.goal)", type(task).__name__)
        require(task.solution is self.solution, "a task of this representation", "another's")
        return task

    def potential(self, goal: Any) -> Callable[[Any], np.ndarray]:
        """Return a potential for reward shaping: observations [m, ...] → [m], at most 0.

        It is −‖σu(s) − σu(goal)‖. If arriving at the goal ends episodes, no row starts there and
        u(goal) is unknown; the potential is then log(m(s, goal) / max m) / log(1/γ), in steps.

        Adding γ Φ(s') − Φ(s) to a reward changes no optimal policy, provided that Φ(s') counts as 0
        at a terminal s' (Ng, Harada & Russell 1999).
        """
        checked = self.observed.checked(np.asarray(goal)[None])
        if self.solution.is_terminal(checked):
            task = arriving_task(self.solution, checked)
            seen = self.values(self.solution.rows.observation, task)
            most, floor = float(seen.max()), float(seen[seen > 0.0].min(initial=np.inf))
            require(most > 0.0, "a goal that the data reach", "none")
            return functools.partial(self._steps_to, task, floor, most)
        return functools.partial(self._nearness, self.features(checked, scaling="singular"))

    def _nearness(self, target: np.ndarray, observations: Any) -> np.ndarray:
        offsets = self.features(observations, scaling="singular") - target
        return np.asarray(-np.linalg.norm(offsets, axis=1))

    def _steps_to(self, task: Task, floor: float, most: float, observations: Any) -> np.ndarray:
        array = self.observed.checked(observations)
        # States that the data do not know are at the floor.
        share = np.clip(self._averaged(array, task.weights) + task.constant, floor, most) / most
        steps = np.log(share) / math.log(1.0 / self.config.discount)
        return np.where(self.solution.ended(array), 0.0, steps)

    def components(self, truth: GroundTruth) -> np.ndarray:
        """Return features at the states of a ground truth, centred like the truth.

        States are observed as ``truth.observations``. For a fit to pictures,
        ``truth.seen_as("image")`` fills in the observations.

        For a truth that is centred by rows, the result is all d features σu, [n, d]. Otherwise the
        result is the leading d − 1 principal components of the centred features, [n, d − 1]:
        features span (nearly) the constant function, so centring removes one direction.
        """
        seen = truth.observations
        features = self.features(np.asarray(seen), scaling="singular")
        if truth.settings and centring_of(truth.settings) == "rows":
            return features
        left, values, _ = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
        count = max(1, self.num_features - 1)
        return np.asarray(left[:, :count] * values[:count], np.float32)

    def distance(self, truth: GroundTruth) -> float:
        """Return the subspace distance of ``components`` from the truth's leading components.

        Even a perfect fit has a distance above 0, since the truth weighs all states equally and a
        fit weighs them by visits. The distance of a perfect fit is 0.006 for ten components in
        ``sutton``, 20 x 20 cells, γ = 0.95 (``scripts/perfect_fit_distance.py``).
        """
        return truth.distance(self.components(truth))

    # --- Storage ----------------------------------------------------------------------------------

    def save(self, path: Path | str) -> None:
        """Write everything to a folder, which is new or holds the same representation.

        Raises:
            InputError: If the folder holds something else or cannot be written.
        """
        out = Path(path)
        RunFolder.find(out, kind=KIND, config=self.description)
        with exclusive(out):
            folder = RunFolder.create_or_resume(
                out, kind=KIND, config=self.description, provenance=provenance()
            )
            folder.write_summary(self.write(folder))

    def write(self, folder: RunFolder) -> dict[str, Any]:
        """Write the numbers to a run's folder; return its summary."""
        return storage.write(folder, self.solution, self.factors, self.quality)

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        encoder: Encoder | None = None,
        behaviour: Callable[[Any], Any] | None = None,
    ) -> "SuccessorRepresentation":
        """Read a representation that ``save`` or ``rlreps fit`` wrote, bit for bit.

        Args:
            path: The folder.
            encoder: F's encoder, if it was the user's own, since a folder stores no code.
            behaviour: The behaviour policy, if it was the user's own function.

        Raises:
            InputError: If the folder holds no representation, or the user's own parts are missing.
        """
        folder = RunFolder(Path(path))
        folder.require_kind(KIND)
        try:
            return cls(**storage.read(folder, encoder, behaviour))
        except (AttributeError, KeyError, TypeError) as error:
            raise InputError(
                f"expected {path} to describe a representation, got {type(error).__name__}: {error}"
            ) from error

    # --- Observations -----------------------------------------------------------------------------

    def _checked_states(self, observations: Any, effect: str) -> np.ndarray:
        """Check observations; warn of indices of states in which no row starts."""
        states = self.observed.checked(observations)
        self._warn_of_unseen(states, np.zeros((len(states), 0), np.int64), effect)
        return states

    def _checked_pairs(
        self, observations: Any, actions: Any, effect: str
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Check observations and actions (None for all); warn of indices, or pairs, of no row."""
        states, count = self.observed.checked(observations), self.observed.num_actions
        if actions is None:
            count = require_value(count, "actions= of a box", None)
            taken, chosen = None, np.broadcast_to(np.arange(count), (len(states), count))
        else:
            taken = self.observed.checked_actions(actions, len(states))
            chosen = taken.reshape(len(states), -1)
        self._warn_of_unseen(states, chosen, effect)
        return states, taken

    def _warn_of_unseen(self, states: np.ndarray, actions: np.ndarray, effect: str) -> None:
        """Warn once of indices of states in which no row starts, and of actions [m, k] there."""
        if place := describe_unseen(self.solution, states, actions):
            warn_user(f"no transition {place}, so {effect}; collect transitions from there")

    def _averaged(self, states: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Compute Σ_c E[b(a)_c | s] φ(s)ᵀ weights[:, c], [m, ...], an average over the policy."""
        solution = self.solution
        if self.behaviour_weights is None:
            blocks, policy = solution.basis.project(states, weights), solution.behaviour(states)
        else:
            blocks, found = solution.basis.projections(states, weights, self.behaviour_weights)
            policy = to_probabilities(found, self.observed.num_actions)
        known = solution.keep_known(blocks, states)
        return np.asarray(np.einsum("mc...,mc->m...", known, policy))
