"""Matrices with set singular values, and learners of their subspaces (Le Lan et al. 2023, 5.1).

A setting is a method with its options: one point of the experiment ``synthetic``.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from jax import Array

from rlreps.encoders import Tabular
from rlreps.losses import OBJECTIVES, DanskinLissa, Objective, Oracle
from rlreps.sources import MatrixSource
from rlreps.study import replace_nested
from rlreps.training import GivenOptimizer, Learner
from rlreps.typing import DoubleArray

SPECTRA: Mapping[str, Callable[[int], DoubleArray]] = {
    "linear": lambda size: np.linspace(1.0, 1000.0, size),
    "exponential": lambda size: np.logspace(0.0, 3.0, size),
}
"""Name → singular values for a size."""

ROLES = {"danskin_lissa": 5, "danskin_empirical": 5, "naive": 3, "oracle": 5}
"""Method → number of groups that its total number of rows is divided into.

The oracle needs no rows for its weights. It takes the gradient at as many rows as Danskin-LISSA, so
that the two methods differ only in the estimate of the weights.
"""

METHODS = "final_distance_by_method"
"""Fig. 2."""

INVERSES = {"plain": "inverse", "pseudo": "pseudo-inverse"}
"""``inverse`` of Danskin-empirical and naive → its name in reports."""


class Setting(NamedTuple):
    """One point of the experiment: a method and its options, trained with every seed.

    All fields but ``spectrum`` and ``kappa0`` decide which program trains the setting.

    Attributes:
        num_features: d.
        rows: Rows of each role, J = M = N.
        option: Of LISSA ``feature_norm``, of Danskin-empirical and naive ``inverse``, else empty.
        permutations: Assignments of rows to roles that an update averages.
        kappa0: κ0 of LISSA; other methods ignore it.
    """

    method: str
    num_features: int
    rows: int
    option: str
    permutations: int
    spectrum: str
    kappa0: float

    @property
    def label(self) -> str:
        """Line of Fig. 2: the method, and the inverse that it takes."""
        title = OBJECTIVES[self.method].title
        return f"{title}, {INVERSES[self.option]}" if self.option in INVERSES else title

    @property
    def total(self) -> int:
        """L at which Fig. 2 compares; naive, which has three roles, may take fewer rows than L."""
        return 5 * math.ceil(ROLES[self.method] * self.rows / 5)

    def every(self, **values: Sequence[Any]) -> list["Setting"]:
        """List the settings that differ from this one in fields with several values."""
        every = itertools.product(*values.values())
        return [self._replace(**dict(zip(values, each, strict=True))) for each in every]

    @property
    def is_singular(self) -> bool:
        """Whether some update may invert a singular covariance; such a setting judges no method.

        At d = 10 and J up to 20, some draw of J rows in a million updates has fewer than d distinct
        states.
        """
        return self.option == "plain" and self.rows <= 2 * self.num_features

    def objective(self) -> Objective:
        """Return its objective, with κ0 at the default."""
        if self.method == "oracle":
            return Oracle(num_features=self.num_features)
        roles = dict.fromkeys(("gradient_rows", "weight_rows", "covariance_rows"), self.rows)
        name = "feature_norm" if self.method == "danskin_lissa" else "inverse"
        options: dict[str, Any] = {name: self.option, "permutations": self.permutations, **roles}
        return OBJECTIVES[self.method](self.num_features, **options)

    def described(self) -> dict[str, Any]:
        """Return its columns of the frame."""
        averaged = f"{self.permutations} assignments averaged"
        return {
            **self._asdict(),
            "total_rows": ROLES[self.method] * self.rows,
            "label": self.label,
            "total": self.total,
            "roles": "rows in one role" if self.permutations == 1 else averaged,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The figures of the synthetic experiment; values along an axis increase.

    Attributes:
        num_states: States and tasks of the square matrix.
        spectra: Singular values: ``linear`` 1 … 1000 or ``exponential`` 10⁰ … 10³.
        feature_norms: What LISSA's κ0 is divided by: max‖φ‖² over the sampled rows (``batch``) or
            over all states (``population``).
        step_size: α of stochastic gradient descent on gradients summed over the N rows.
        kappa0: κ0 in figures that do not vary it.
        rows: J = M = N of Fig. 1 left and Fig. 6.
        dimension: d in figures that do not vary it.
        dimensions: d of Fig. 1 left.
        rows_by_total: J = M = N of Fig. 1 right.
        totals: L of Fig. 2, rows an update of all roles together, multiples of 5. Naive, which has
            three roles, takes the largest multiple of 3.
        pseudo_totals: Values of L at which the pseudo-inverse is run in addition to the inverse,
            since the covariance is singular for J ≤ d. Its eigendecompositions take most of the
            time.
        more_rows: J = M = N of Fig. 5.
        more_dimensions: d of Fig. 5.
        kappa_values: κ0 of Fig. 6, on both sides of 2.
        kappa_dimensions: d of Fig. 6.
        permutations: Assignments of rows to roles that an update averages (Sec. 6), compared with
            1.
        permuted_rows: J = M = N of that comparison.
        num_seeds: Runs of each setting, each with a matrix of its own.
        evaluations: Measurements during training, after the one before it.
    """

    num_states: int = 50
    spectra: tuple[str, ...] = ("linear", "exponential")
    feature_norms: tuple[str, ...] = ("batch", "population")
    step_size: float = 0.001
    kappa0: float = 1.9
    rows: int = 5
    dimension: int = 10
    dimensions: tuple[int, ...] = (1, 5, 10, 25)
    rows_by_total: tuple[int, ...] = (1, 2, 5, 10, 20)
    totals: tuple[int, ...] = (5, 10, 25, 50, 100, 250)
    pseudo_totals: tuple[int, ...] = (5, 25, 50, 100)
    more_rows: int = 10
    more_dimensions: tuple[int, ...] = (1, 5, 10, 25, 30, 35, 40, 45)
    kappa_values: tuple[float, ...] = (0.25, 0.5, 1.0, 1.5, 1.9, 2.1, 2.5, 3.0, 4.0)
    kappa_dimensions: tuple[int, ...] = (1, 5, 10, 25)
    permutations: int = 5
    permuted_rows: tuple[int, ...] = (1, 5)
    steps: int = 1_000_000
    num_seeds: int = 30
    evaluations: int = 100

    @cached_property
    def figures(self) -> dict[str, list[Setting]]:
        """The settings of every figure."""
        lissa = Setting(
            "danskin_lissa", self.dimension, self.rows, "batch", 1, "linear", self.kappa0
        )
        both: dict[str, Any] = {"spectrum": self.spectra, "option": self.feature_norms}
        inverses = {"plain": self.totals, "pseudo": self.pseudo_totals}
        methods: Mapping[str, Mapping[str, Sequence[int]]] = {
            "danskin_lissa": dict.fromkeys(self.feature_norms, self.totals),
            "danskin_empirical": inverses,
            "naive": inverses,
            "oracle": {"": self.totals},
        }
        by_method = [
            setting
            for method, options in methods.items()
            for option, totals in options.items()
            for setting in lissa._replace(method=method, option=option).every(
                spectrum=self.spectra, rows=[total // ROLES[method] for total in totals]
            )
        ]
        return {
            "distance_by_dimension": lissa.every(**both, num_features=self.dimensions),
            "distance_by_total": lissa.every(**both, rows=self.rows_by_total),
            METHODS: by_method,
            "distance_by_dimension_at_more_rows": lissa.every(
                **both, num_features=self.more_dimensions, rows=[self.more_rows]
            ),
            "final_distance_by_kappa": lissa.every(
                **both, num_features=self.kappa_dimensions, kappa0=self.kappa_values
            ),
            "final_distance_by_permutations": lissa.every(
                **both, permutations=(1, self.permutations), rows=self.permuted_rows
            ),
        }

    def settings(self) -> list[Setting]:
        """List every setting of any figure, once."""
        return list(dict.fromkeys(itertools.chain(*self.figures.values())))


PAPER = Config()

PRESETS = {
    "smoke": replace_nested(
        PAPER,
        dimensions=(1, 10),
        rows_by_total=(1, 5),
        totals=(5, 25),
        pseudo_totals=(25,),
        more_dimensions=(10,),
        kappa_values=(1.9, 3.0),
        kappa_dimensions=(10,),
        permuted_rows=(5,),
        steps=400,
        num_seeds=3,
        evaluations=4,
    ),
    "laptop": replace_nested(PAPER, steps=50_000, num_seeds=10, evaluations=50),
    "paper": PAPER,
}


def planted_matrix(
    spectrum: str, size: int, seed: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Draw a Gaussian matrix and replace its singular values.

    Returns:
        The matrix and its left singular vectors by falling singular value, both [size, size].
    """
    gaussian = np.random.default_rng(seed).standard_normal((size, size))
    left, _, right = np.linalg.svd(gaussian)
    values = np.sort(SPECTRA[spectrum](size))[::-1]
    return ((left * values) @ right).astype(np.float32), left.astype(np.float32)


def make_members(
    config: Config, group: Sequence[tuple[Setting, int]]
) -> tuple[Learner, MatrixSource, Array]:
    """Build the learners and the sources of members of one shape.

    Args:
        config: The experiment.
        group: Setting and seed of each member; all run in one program.

    Returns:
        The population of learners, the members' sources, and the leading d left singular vectors of
        each member's matrix [members, size, d].
    """
    size, (first, _) = config.num_states, group[0]
    planted = [planted_matrix(setting.spectrum, size, seed) for setting, seed in group]
    matrix = jnp.asarray(np.stack([each for each, _ in planted]))
    indices = jnp.broadcast_to(jnp.arange(size), (len(group), size))
    objective = first.objective()
    if isinstance(objective, DanskinLissa):
        # An array passes unchecked: the sweep of κ0 goes beyond 2.
        kappa0: Any = jnp.asarray([setting.kappa0 for setting, _ in group], jnp.float32)
        objective = dataclasses.replace(objective, kappa0=kappa0)
    learner = Learner(
        encoder=Tabular(first.num_features, num_states=size),
        objective=objective,
        # Objectives average the gradient over their N rows; the paper's algorithm sums it.
        optimizer=GivenOptimizer(optax.sgd(config.step_size * first.rows)),
        # The oracle's batch holds its gradient rows alone.
        rows=first.rows * (1 if first.method == "oracle" else ROLES[first.method]),
        tasks=1,
        resets_diverged=True,
    )
    basis = jnp.asarray(np.stack([left[:, : first.num_features] for _, left in planted]))
    return learner, MatrixSource(indices, matrix, objective.needs_population), basis
