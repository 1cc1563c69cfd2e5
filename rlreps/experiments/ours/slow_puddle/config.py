"""Configuration and presets of the slow-puddle experiment."""

import dataclasses
from typing import Literal, get_args

from rlreps.encoders import Encoder, FourierMLP
from rlreps.errors import require, require_choice, require_positive
from rlreps.successor.measure import Transition
from rlreps.training import Optimizer

ActionName = Literal["exact", "sampled"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    """A way to train.

    Attributes:
        name: What figures and tables call it.
        action: How the operator acts on a batch: ``sampled`` from pairs of consecutive states, or
            ``exact`` by the graph Laplacian's rows, which evaluates all states for every update.
        averaging_rate: β of the moving averages; 1 averages nothing.
        rows: b, states of a batch, two for each sampled pair.
        steps: Updates.
        optimizer: The optimizer.
    """

    name: str
    action: ActionName = "sampled"
    averaging_rate: float = 1.0
    rows: int = 2000
    steps: int = 5000
    optimizer: Optimizer = dataclasses.field(default=Optimizer(schedule="cosine"))

    def __post_init__(self) -> None:
        require_choice("action", self.action, get_args(ActionName))
        require(0.0 < self.averaging_rate <= 1.0, "averaging_rate in (0, 1]", self.averaging_rate)
        require_positive("rows", self.rows)
        require(
            self.action == "exact" or self.rows % 2 == 0,
            "an even number of rows, two for each pair",
            self.rows,
        )
        require_positive("steps", self.steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goals:
    """What the first contender is to reach, every seed of it.

    Attributes:
        distance: Largest subspace distance to the slowest eigenfunctions, at every d.
        cosine: Smallest |cosine| of a matched eigenfunction with the true one.
        eigenvalue_error: Largest relative error of an eigenvalue.
        excess: By how much its distance to the successor measure's subspace may exceed the true
            eigenfunctions' own.
    """

    distance: float = 0.01
    cosine: float = 0.98
    eigenvalue_error: float = 0.02
    excess: float = 0.005


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlowPuddleConfig:
    """Slow features of PuddleWorld's random walk between cells.

    Attributes:
        successor: The successor measure that slow features are compared with; its arena, cells,
            quadrature points and seed are also those of the chain that they are learned from.
        contenders: Ways to train; ours first.
        encoder: The network, of cell centres, common to all.
        dimensions: Dimensions d at which distances are followed, rising; the network learns the
            largest number of eigenfunctions, and their order serves the others.
        num_seeds: Seeds 0 … num_seeds - 1 of each, trained together.
        evaluations: Measurements during training, after the one before it.
        shown: Eigenfunctions drawn as maps.
        goals: What the first contender is to reach; None judges nothing.
    """

    successor: Transition
    contenders: tuple[Contender, ...]
    encoder: Encoder = dataclasses.field(default=FourierMLP())
    dimensions: tuple[int, ...] = (2, 5, 10)
    num_seeds: int = 3
    evaluations: int = 20
    shown: int = 8
    goals: Goals | None = dataclasses.field(default_factory=Goals)

    def __post_init__(self) -> None:
        names = [contender.name for contender in self.contenders]
        require(len(set(names)) == len(names) >= 1, "at least one contender, each once", names)
        found = self.successor.method
        require(found == "transition", "method transition", found)
        require(
            self.successor.refinement == 1,
            "refinement 1, the chain's own cells",
            self.successor.refinement,
        )
        require(self.encoder.name != "tabular", "an encoder of coordinates", self.encoder.name)
        rising = tuple(sorted(set(self.dimensions)))
        require(
            len(rising) >= 1 and rising[0] >= 1 and self.dimensions == rising,
            "dimensions >= 1, rising",
            self.dimensions,
        )
        # The constant and the eigenfunction after the last, for the gap, are wanted too.
        most = self.successor.num_cells - 3
        require(self.num_features <= most, f"dimensions <= {most}", self.num_features)
        require(1 <= self.shown <= self.num_features, "1 <= shown <= the largest d", self.shown)
        require_positive("num_seeds", self.num_seeds)
        require_positive("evaluations", self.evaluations)
        for contender in self.contenders:
            require(
                contender.steps % self.evaluations == 0,
                f"steps to be a multiple of evaluations ({self.evaluations})",
                contender.steps,
            )

    @property
    def num_features(self) -> int:
        """Eigenfunctions that are learned, the constant not counted."""
        return self.dimensions[-1]


# Measured on 100 x 100 cells, distance at d = 10 as a mean over three seeds of the laptop preset:
# 0.00063 with 2,000 rows. With 256 rows it stays at 0.0226, after 5,000 updates (0.0243) as after
# 40,000, as a bias of O(1/b) with β = 1 would have it. An average of the Jacobian (β < 1) takes 66
# backward passes an update and learns slowly: 0.093 after 1,200 updates with β = 0.1; with
# β = 0.01, one seed, 0.37 after 1,000. The exact operator, which needs the transition matrix, has
# neither bias nor noise at the eigenfunctions: 0.00011.
_ENCODER = FourierMLP(hidden=(128, 128), frequencies=8)
_CONTENDERS = (
    Contender(name="pairs, 2,000 rows, β = 1", rows=2000, steps=8000),
    Contender(name="pairs, 256 rows, β = 1", rows=256, steps=40_000),
    Contender(name="pairs, 256 rows, β = 0.1", averaging_rate=0.1, rows=256, steps=1200),
    Contender(name="exact operator, 256 rows", action="exact", rows=256, steps=6000),
)
_FAST = Optimizer(learning_rate=1e-2, schedule="cosine")

PRESETS: dict[str, SlowPuddleConfig] = {
    "smoke": SlowPuddleConfig(
        successor=Transition(bins=16, points=256),
        contenders=(
            Contender(name="pairs, 512 rows, β = 1", rows=512, steps=1500, optimizer=_FAST),
            Contender(
                name="pairs, 64 rows, β = 0.5",
                averaging_rate=0.5,
                rows=64,
                steps=200,
                optimizer=_FAST,
            ),
            Contender(
                name="exact operator, 64 rows", action="exact", rows=64, steps=500, optimizer=_FAST
            ),
        ),
        encoder=FourierMLP(hidden=(32,), frequencies=8),
        dimensions=(2, 4),
        num_seeds=2,
        evaluations=10,
        shown=4,
        goals=None,
    ),
    "laptop": SlowPuddleConfig(
        successor=Transition(points=1024),
        contenders=_CONTENDERS,
        encoder=_ENCODER,
    ),
    "paper": SlowPuddleConfig(
        successor=Transition(),
        contenders=tuple(dataclasses.replace(each, steps=5 * each.steps) for each in _CONTENDERS),
        encoder=_ENCODER,
        num_seeds=10,
        evaluations=50,
    ),
}
"""Preset name → configuration."""
