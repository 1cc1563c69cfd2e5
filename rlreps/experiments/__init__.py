"""Experiments of papers and of rlreps, by name. This module does not import JAX."""

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rlreps.experiments.harness import Experiment

PAPERS = {
    "le_lan_2023": "Le Lan et al. 2023",
    "pfau_2019": "Pfau et al. 2019",
    "amid_warmuth_2020": "Amid & Warmuth 2020",
    "ours": "ours",
}
"""Folder → paper."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """An experiment as the command line lists it, before it is loaded.

    Attributes:
        module: Below this package; it holds ``EXPERIMENT``.
        description: One line.
        devices: ``shared``: many small runs are shared out to all cores or accelerators;
            ``chosen``: the user chooses how many devices to train on; None: one device.
        takes_data: Whether there is an option ``data``.
        takes_objective: Whether there is an option ``objective``.
        one_lapack_thread: Whether its programs factorise small matrices in every update.
        takes_jobs: Whether parts may be computed side by side: no verdict is on their times.
        smoke: Seconds of the preset ``smoke`` with its checks, two at once on two cores.
        recorded: Larger presets, each with how long its run took that docs/results records: on two
            cores, some with other work on the machine. None is a promise.
        largest: What the preset ``paper`` is.
        further: Presets beside ``smoke``, ``laptop`` and ``paper``, each with what it is.
    """

    module: str
    description: str
    devices: Literal["shared", "chosen"] | None = None
    takes_data: bool = False
    takes_objective: bool = False
    one_lapack_thread: bool = False
    takes_jobs: bool = False
    smoke: int = 0
    recorded: tuple[tuple[str, str], ...] = ()
    largest: str = "is the published protocol"
    further: tuple[tuple[str, str], ...] = ()

    @property
    def presets(self) -> dict[str, str]:
        """Return what each preset is, by name."""
        took = dict(self.recorded)
        always = {
            "smoke": f"takes about {self.smoke} seconds" if self.smoke else "takes seconds",
            "laptop": f"took {took['laptop']}" if "laptop" in took else "is for two cores",
            "paper": f"{self.largest}, {took['paper']}" if "paper" in took else self.largest,
        }
        return {**always, **dict(self.further)}

    @property
    def durations(self) -> dict[str, str]:
        """Return how long presets took, by name, where that was measured."""
        smoke = {"smoke": f"about {self.smoke} s"} if self.smoke else {}
        return {**smoke, **dict(self.recorded)}

    @property
    def paper(self) -> str:
        """Return the paper that the experiment is from."""
        return PAPERS[self.module.split(".")[0]]

    def load(self) -> "Experiment[Any]":
        """Import the experiment."""
        found: Experiment[Any] = importlib.import_module(f"{__name__}.{self.module}").EXPERIMENT
        return found


_SMALL_MATRICES: Any = {"devices": "shared", "one_lapack_thread": True}
_AGENTS: Any = {**_SMALL_MATRICES, "takes_jobs": True}
_ON_ROWS: Any = {**_SMALL_MATRICES, "takes_data": True}

EXPERIMENTS: dict[str, Entry] = {
    "synthetic": Entry(
        "le_lan_2023.synthetic",
        "Known spectra: the methods on matrices whose singular values are set.",
        devices="shared",
        smoke=17,
        recorded=(("laptop", "about 9 min"),),
    ),
    "mnist": Entry(
        "le_lan_2023.mnist",
        "Principal components of handwritten digits, learned from sampled pixels.",
        takes_data=True,
        smoke=9,
        recorded=(("paper", "about 50 min"),),
    ),
    "puddle-world": Entry(
        "le_lan_2023.puddle_world",
        "Subspace distance against d on PuddleWorld, under the paper's protocol.",
        devices="chosen",
        further=(("trend", "is the protocol on 20 x 20 cells with fewer updates, about an hour"),),
        smoke=12,
        recorded=(("laptop", "about 17 min"),),
    ),
    "puddle-world-fast": Entry(
        "ours.puddle_world_fast",
        "Our best recipes on PuddleWorld: time to a given subspace distance.",
        devices="chosen",
        largest="has more seeds",
        smoke=10,
        recorded=(("laptop", "about 16 min"),),
    ),
    "hydrogen": Entry(
        "pfau_2019.hydrogen",
        "The hydrogen atom: nine eigenfunctions by spectral inference.",
        devices="shared",
        takes_jobs=True,
        smoke=22,
        largest="is the published protocol and takes a day",
    ),
    "bouncing-balls": Entry(
        "pfau_2019.bouncing_balls",
        "Video of bouncing balls: deep slow feature analysis against linear.",
        devices="chosen",
        largest="is the published protocol, for accelerators",
        smoke=28,
        recorded=(("laptop", "about 18 min"),),
    ),
    "slow-puddle": Entry(
        "ours.slow_puddle",
        "Slow features of PuddleWorld's random walk against the exact ones.",
        devices="chosen",
        largest="is larger, for accelerators",
        smoke=22,
        recorded=(("laptop", "about 3 min"),),
    ),
    "atari": Entry(
        "pfau_2019.atari",
        "Frames of an Atari game: slow features, successor features and PCA.",
        devices="chosen",
        smoke=16,
        recorded=(("laptop", "about 25 min"),),
    ),
    "online-pca": Entry(
        "amid_warmuth_2020.online_pca",
        "Online principal components: excess loss of every rule against rows and against time.",
        smoke=12,
        recorded=(("laptop", "about 3 min"), ("paper", "about 8 min")),
        **_ON_ROWS,
    ),
    "learning-rate-sensitivity": Entry(
        "amid_warmuth_2020.learning_rate_sensitivity",
        "Online principal components at a tenth, once and ten times the best learning rate.",
        smoke=10,
        recorded=(("paper", "about 6 min"),),
        **_ON_ROWS,
    ),
    "distributed-pca": Entry(
        "amid_warmuth_2020.distributed_pca",
        "Online principal components by several workers, whose models are combined now and then.",
        smoke=10,
        recorded=(("paper", "about 4 min"),),
        **_ON_ROWS,
    ),
    "benchmark": Entry(
        "ours.benchmark",
        "Every objective on the same chains, beside the exact truth of each.",
        largest="has more seeds, trials and updates",
        recorded=(("laptop", "about 73 min"),),
        takes_jobs=True,
        takes_objective=True,
    ),
    "few-labels": Entry(
        "ours.few_labels",
        "Values of policies from few labelled states: learned features against data-free bases.",
        largest="has more replicates",
        recorded=(("laptop", "about 17 min"),),
        takes_jobs=True,
    ),
    "zero-shot": Entry(
        "ours.zero_shot",
        "Policies for rewards named afterwards: learned features, a tabular model, DQN.",
        devices="shared",
        largest="has more replicates",
        recorded=(("laptop", "about 25 min"),),
        takes_jobs=True,
    ),
    "control": Entry(
        "ours.control",
        "Classic control from random steps: a fit whose rewards are named afterwards, and DQN.",
        largest="has 20 seeds",
        takes_jobs=True,
    ),
    "transfer-opaque": Entry(
        "ours.transfer_opaque",
        "Agents that see codes of a maze's cells: learned features against scratch and controls.",
        largest="has more agents, five goals and longer training",
        devices="shared",
        recorded=(("laptop", "about 11 min with --jobs 2"),),
        takes_jobs=True,
    ),
    "shaping": Entry(
        "ours.shaping",
        "Shaped rewards: distances in learned features against Euclidean and exact ones.",
        largest="has more agents, which learn for longer",
        recorded=(("laptop", "about 16 min"),),
        **_AGENTS,
    ),
    "auxiliary-online": Entry(
        "ours.auxiliary_online",
        "Auxiliary tasks of agents that learn online, against none and a data-free control.",
        largest="has more agents, larger ones, which learn for longer",
        recorded=(("laptop", "about 24 min with --jobs 2"),),
        **_AGENTS,
    ),
}
"""Name → experiment."""
