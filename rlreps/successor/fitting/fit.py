"""Fit successor representations to a user's own transitions."""

import dataclasses
import functools
import hashlib
import math
from typing import Any

import jax
import numpy as np

from rlreps.config import as_json
from rlreps.errors import InputError, require, require_memory, warn_user
from rlreps.runs.folder import RunFolder
from rlreps.successor.fitting.basis import Basis, UnitVectors
from rlreps.successor.fitting.behaviour import (
    EstimatedBehaviour,
    GivenBehaviour,
    basis_of_policy,
    estimate_behaviour,
)
from rlreps.successor.fitting.config import (
    BehaviourName,
    FitConfig,
    LeastSquaresFit,
    configured,
    describe_options,
    resolve,
)
from rlreps.successor.fitting.factors import decompose
from rlreps.successor.fitting.forward_backward import ForwardBackward
from rlreps.successor.fitting.held_out import Split, measure_quality
from rlreps.successor.fitting.kernel_search import search_kernel
from rlreps.successor.fitting.least_squares import (
    COUNTED_RIDGE,
    Behaviour,
    LeastSquares,
    Steps,
    describe_left_out,
)
from rlreps.successor.fitting.network_basis import NetworkBasis, networks_of, train_networks
from rlreps.successor.fitting.observed import Observed
from rlreps.successor.fitting.products import MOST_UNKNOWNS, product_sizes
from rlreps.successor.fitting.record_checks import describe_record
from rlreps.successor.fitting.recording import COLUMNS
from rlreps.successor.fitting.representation import SuccessorRepresentation
from rlreps.successor.fitting.transitions import Transitions, as_transitions

MOST_ROWS = 100_000
"""Largest number of rows that a solution with dense features uses; others are left out."""

_HELD_OUT = 0.2
_DISTINCT = 0.1
"""Share of different observations up to which counts of states are advised."""
_FEWEST_TO_SPLIT = 50
"""With fewer rows than this, none are held out."""


def fit(
    transitions: Any,
    config: FitConfig | None = None,
    *,
    behaviour: Behaviour | BehaviourName | None = None,
    folder: RunFolder | None = None,
    **given: Any,
) -> SuccessorRepresentation:
    """Fit a successor representation of the policy that made some transitions.

    Args:
        transitions: ``Transitions``, a dictionary of arrays (``Transitions.from_dictionary``) or
            arrays (observation, action, next_observation, terminated[, truncated]). For an
            environment, use ``Transitions.collect(environment, steps=...)``.
        config: The options; None takes the defaults.
        behaviour: ``estimated`` (the default), ``uniform``, or the data's policy itself:
            observations [m, ...] → probabilities [m, A].
        folder: Where networks log and keep checkpoints; an interrupted fit resumes from it.
        **given: Fields of ``FitConfig`` (``num_features``, ``discount``, ...), where ``method`` may
            be a name (``least_squares`` or ``td``), and fields of the method (``max_features``,
            ``averaging_rate``, ...).

    Returns:
        The representation. The same data, configuration and device give the same bits.

    Raises:
        InputError: If the data cannot be used or options do not fit together.
        TrainingDivergedError: If training became non-finite.

    Warns:
        FitWarning: One for each failed check on the held-out data, and if rows are left out.
    """
    data = as_transitions(transitions)
    if isinstance(behaviour, str):
        given, behaviour = {**given, "behaviour": behaviour}, None
    parts = Fit(data=data, given=configured(config, given), behaviour=behaviour)
    return parts.run(folder=folder)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """The steps of a fit of a representation to data.

    Attributes:
        data: The transitions.
        given: The options.
        behaviour: The data's policy, if it is known and not uniform.
    """

    data: Transitions
    given: FitConfig
    behaviour: Behaviour | None = None

    @functools.cached_property
    def observed(self) -> Observed:
        """The kind of the observations and actions."""
        return Observed.of(self.data)

    @functools.cached_property
    def config(self) -> FitConfig:
        """The options, of which those that are None are filled in from the data."""
        return resolve(self.given, self.observed)

    def describe(self) -> dict[str, Any]:
        """Describe everything that decides the result, as JSON values."""
        config, observed = self.config, self.observed
        digest = hashlib.sha256()
        for name in COLUMNS:
            array = np.ascontiguousarray(getattr(self.data, name))
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(array.data)
        return {
            **describe_options(config),
            "behaviour": config.behaviour if self.behaviour is None else "own",
            "observed": as_json(observed),
            "data": {"rows": len(self.data), "sha256": digest.hexdigest()},
        }

    def check(self) -> ForwardBackward | None:
        """Return the networks; raise an ``InputError`` for invalid options before any training."""
        config, observed = self.config, self.observed
        if observed.num_actions is None:
            require(self.behaviour is None, "discrete actions for a function as behaviour", "a box")
            require(
                config.behaviour == "estimated",
                "discrete actions for behaviour='uniform'; leave it out for a box",
                "a box",
            )
        if isinstance(config.method, LeastSquaresFit):
            if len(observed.shape) > 1:
                raise InputError(
                    "expected indices of states or vectors for method least_squares, got "
                    f"observations of shape {observed.shape}; use method td"
                )
            if observed.num_states is not None and observed.num_actions is None:
                raise InputError(
                    "expected discrete actions for indices of states with method least_squares, "
                    "got a box; use method td"
                )
            if observed.num_states is None:
                count = sum(product_sizes(self._most_features, observed.actions))
                # Moments and factors, both of all rows and of those not held out, and a product;
                # C of both, and of the rows held out.
                size = 40 * count**2 + 24 * count * self._most_features
                require_memory(f"{count:,} unknowns (max_features for each action)", size)
            return None
        assert config.encoder is not None
        assert config.rows is not None
        networks = networks_of(observed, config.encoder, config.num_features)
        shapes = jax.eval_shape(networks.forward.init, jax.random.key(0))
        # Parameters, their average, their gradients and two moments of the optimizer.
        count = sum(leaf.size for leaf in jax.tree.leaves(shapes))
        require_memory(f"a network of {count:,} parameters", 20 * count)
        width = (observed.actions.size + 1) * config.num_features
        require_memory(f"{width:,} features of all actions", 24 * width**2)
        # Temporal differences compare all pairs of observations in an update.
        size = 4 * config.rows * (math.prod(observed.shape) + config.rows)
        require_memory(f"{config.rows:,} observations in an update (rows)", size)
        return networks

    @property
    def _most_features(self) -> int:
        """Largest number of features of observations under least squares."""
        method = self.config.method
        assert isinstance(method, LeastSquaresFit)
        most = min(method.max_features, max(2, len(self.data) // 4))
        # A row has entries in one block (discrete actions) or in every block (a box).
        return min(most, MOST_UNKNOWNS // 3) if self.data.continuous else most

    def run(self, *, folder: RunFolder | None = None) -> SuccessorRepresentation:
        """Fit, with or without a folder; see ``fit``."""
        config, observed = self.config, self.observed
        networks = self.check()
        automatic = self.given.method is None and self.given.encoder is None
        discrete = not self.data.continuous
        if networks is not None and automatic and discrete and self.data.distinct <= _DISTINCT:
            warn_user(
                f"only {self.data.distinct:.1%} of the observations differ: "
                "transitions.numbered() makes them indices of states, which a fit counts in "
                "seconds; method='td' trains networks, and is silent"
            )
        basis, regularisation = self._basis(networks, folder)

        def solved(data: Transitions) -> LeastSquares:
            rows, chosen = Steps.of(data), self._chosen(len(data), basis)
            some = chosen if observed.num_states is None else None  # Counts take all rows.
            behaviour = self._behaviour(basis, rows if some is None else rows.at(some))
            given = config.discount, regularisation, behaviour, chosen
            return LeastSquares(basis, observed.actions, rows, *given)

        whole, quality = solved(self.data), None
        factors = decompose(whole, config.num_features)
        few = f"fewer than {_FEWEST_TO_SPLIT} transitions"
        lines = [f"{few}: none were held out to measure the quality"]
        if self._split is not None:
            fitted = solved(self._split.fitted)
            quality = measure_quality(self._split, fitted, factors, config.seed)
            lines = quality.warnings()
        record = describe_record(self.data, basis, observed.actions, config.seed)
        warn_user(describe_left_out(whole), *lines, record)
        return SuccessorRepresentation(
            config=config,
            observed=observed,
            solution=whole,
            factors=factors,
            description=self.describe(),
            quality=quality,
        )

    @functools.cached_property
    def _split(self) -> Split | None:
        """The rows to solve for and the rows held out; None if there are too few."""
        few = len(self.data) < _FEWEST_TO_SPLIT
        return None if few else Split.of(self.data, _HELD_OUT, self.config.seed)

    def _chosen(self, count: int, basis: Basis) -> np.ndarray | None:
        """Choose random rows if features are dense and rows many; None takes all of them."""
        if isinstance(basis, UnitVectors) or count <= MOST_ROWS:
            return None
        return np.sort(np.random.default_rng(self.config.seed).permutation(count)[:MOST_ROWS])

    def _behaviour(self, basis: Basis, rows: Steps) -> Behaviour:
        """Return E[b(a) | s] of the data's policy."""
        observed, config = self.observed, self.config
        if observed.num_actions is not None and self.behaviour is not None:
            return GivenBehaviour(self.behaviour, observed.num_actions)
        if observed.num_actions is not None and config.behaviour == "uniform":
            basis = basis_of_policy(basis)
            weights = np.zeros((basis.num_features, observed.num_actions), np.float32)
            # The last dense feature is the constant.
            constant = slice(None) if isinstance(basis, UnitVectors) else -1
            weights[constant] = 1.0 / observed.num_actions
            return EstimatedBehaviour(basis, weights, observed.num_actions)
        held = np.random.default_rng(config.seed).random(len(rows.terminated)) < _HELD_OUT
        held[:1], held[1:2] = True, False
        return estimate_behaviour(basis, observed.actions, rows, held)

    def _basis(
        self, networks: ForwardBackward | None, folder: RunFolder | None
    ) -> tuple[Basis, float]:
        """Return the features φ and the ridge λ."""
        data, config, observed = self.data, self.config, self.observed
        if networks is not None:
            inputs = observed.inputs(data)
            # The held-out rows measure the networks' quality too, so train on the others.
            fitted = data if self._split is None else self._split.fitted
            given = config, networks, inputs, self._policy, folder
            params = train_networks(fitted, observed.actions, *given)
            some = np.random.default_rng(config.seed).permutation(len(data))[:10_000]
            return NetworkBasis.of(networks, params, inputs, data.next_observation[some]), 1e-6
        method = config.method
        assert isinstance(method, LeastSquaresFit)
        if observed.num_states is not None:
            ridge = method.regularisation
            if ridge is None:
                ridge = COUNTED_RIDGE / len(data)
            return UnitVectors(observed.num_states), ridge
        actions, most = observed.actions, self._most_features
        return search_kernel(config, data, self._split, actions, most, self._behaviour)

    def _policy(self, observations: np.ndarray) -> np.ndarray:
        """Return the average of b over the actions that follow each cut, [m, m_b]."""
        if self.behaviour is not None:
            return np.asarray(self.behaviour(observations), np.float32)
        actions = self.observed.actions
        mean = actions.weights(self.data.action).mean(axis=0)
        if self.config.behaviour == "uniform":
            mean = np.full(actions.size, 1.0 / actions.size)
        return np.tile(mean.astype(np.float32), (len(observations), 1))
