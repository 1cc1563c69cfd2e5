"""Experiments of papers and of rlreps, by name. This module does not import JAX."""

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rlreps.study import Experiment

PAPERS = {
    "le_lan_2023": "Le Lan et al. 2023",
    "pfau_2019": "Pfau et al. 2019",
    "amid_warmuth_2020": "Amid & Warmuth 2020",
    "ours": "ours",
}
"""Folder → paper."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """Entry of an experiment in the command line's list; listing it does not import it.

    Attributes:
        module: Name of the module within this package that defines ``EXPERIMENT``.
        description: One line.
        presets: Preset → duration of a recorded run, or a description of the preset. Runs were
            timed on two cores, some beside other work, so a time only indicates the order of
            magnitude.
        takes: Options of its command: ``data``, ``objective``, ``world``, ``devices``, ``jobs``. An
            experiment may compute several parts at a time (``jobs``, and with it ``executor``) if
            no claim is judged by measured times.
        shares_devices: Whether the experiment distributes many small runs over all cores or
            accelerators.
        one_lapack_thread: Whether its programs factorise small matrices in every update.
    """

    module: str
    description: str
    presets: Mapping[str, str]
    takes: Sequence[Literal["data", "objective", "world", "devices", "jobs"]] = ()
    shares_devices: bool = False
    one_lapack_thread: bool = False

    @property
    def paper(self) -> str:
        """Return the paper that the experiment is from."""
        return PAPERS[self.module.split(".")[0]]

    def load(self) -> "Experiment[Any]":
        """Import the experiment."""
        found: Experiment[Any] = importlib.import_module(f"{__name__}.{self.module}").EXPERIMENT
        return found


def _presets(
    smoke: str, laptop: str = "for two cores", paper: str = "as published", **further: str
) -> dict[str, str]:
    return {"smoke": smoke, "laptop": laptop, "paper": paper, **further}


_AGENTS: Any = {"shares_devices": True, "one_lapack_thread": True, "takes": ["jobs"]}
_ON_ROWS: Any = {"one_lapack_thread": True, "takes": ["data"]}

EXPERIMENTS: dict[str, Entry] = {
    "synthetic": Entry(
        "le_lan_2023.synthetic",
        "Known spectra: the methods on matrices whose singular values are set.",
        _presets("about 17 s", "about 9 min"),
        shares_devices=True,
    ),
    "mnist": Entry(
        "le_lan_2023.mnist",
        "Principal components of handwritten digits, learned from sampled pixels.",
        _presets("about 9 s", paper="as published, about 50 min"),
        takes=["data"],
    ),
    "puddle-world": Entry(
        "le_lan_2023.puddle_world",
        "Subspace distance against d on PuddleWorld, under the paper's protocol.",
        _presets(
            "about 12 s",
            "about 17 min",
            trend="the protocol on 20 x 20 cells with fewer updates, about an hour",
        ),
        takes=["devices"],
    ),
    "puddle-world-fast": Entry(
        "ours.puddle_world_fast",
        "Our best recipes on PuddleWorld: time to a given subspace distance.",
        _presets("about 10 s", "about 40 min, beside other work", "more seeds"),
        takes=["devices"],
    ),
    "hydrogen": Entry(
        "pfau_2019.hydrogen",
        "The hydrogen atom: nine eigenfunctions by spectral inference.",
        _presets("about 22 s", paper="as published, a day"),
        takes=["jobs"],
        shares_devices=True,
    ),
    "bouncing-balls": Entry(
        "pfau_2019.bouncing_balls",
        "Video of bouncing balls: deep slow feature analysis against linear.",
        _presets("about 28 s", "about 18 min", "as published, for accelerators"),
        takes=["devices"],
    ),
    "atari": Entry(
        "pfau_2019.atari",
        "Frames of an Atari game: slow features, successor features and PCA.",
        _presets("about 16 s", "about 25 min"),
        takes=["devices"],
    ),
    "online-pca": Entry(
        "amid_warmuth_2020.online_pca",
        "Online principal components: excess loss of every rule against rows and against time.",
        _presets("about 6 s", "about 3 min", "as published, about 8 min"),
        **_ON_ROWS,
    ),
    "learning-rate-sensitivity": Entry(
        "amid_warmuth_2020.learning_rate_sensitivity",
        "Online principal components at a tenth, once and ten times the best learning rate.",
        _presets("about 5 s", paper="as published, about 6 min"),
        **_ON_ROWS,
    ),
    "distributed-pca": Entry(
        "amid_warmuth_2020.distributed_pca",
        "Online principal components by several workers, whose models are combined now and then.",
        _presets("about 10 s", paper="as published, about 4 min"),
        **_ON_ROWS,
    ),
    "benchmark": Entry(
        "ours.benchmark",
        "Every objective on the same chains, beside the exact truth of each.",
        _presets(
            "seconds",
            "about 73 min",
            "more seeds, trials and updates",
            released="the released results, drawn without training, about a minute",
        ),
        takes=["objective", "world", "jobs"],
    ),
    "few-labels": Entry(
        "ours.few_labels",
        "Values of policies from few labelled states: learned features against data-free bases.",
        _presets("seconds", "about 17 min", "more replicates"),
        takes=["jobs"],
    ),
    "zero-shot": Entry(
        "ours.zero_shot",
        "Policies for rewards named afterwards: learned features, a tabular model, DQN.",
        _presets("seconds", "about 25 min", "more replicates"),
        takes=["jobs"],
        shares_devices=True,
    ),
    "control": Entry(
        "ours.control",
        "Classic control from random steps: a fit whose rewards are named afterwards, and DQN.",
        _presets("seconds", paper="20 seeds"),
        takes=["jobs"],
    ),
    "defaults": Entry(
        "ours.defaults",
        "The fit with its defaults on problems of new users: right, wrong, or warned; extra-trees.",
        _presets("seconds", "the fit alone, 1 seed, about 40 min", "extra-trees, 5 seeds, days"),
        takes=["jobs"],
    ),
    "agents": Entry(
        "ours.agents",
        "Agents that see codes or images: learned features, joint losses, and controls.",
        _presets("seconds", "about 55 min", "more agents, which learn for longer"),
        **_AGENTS,
    ),
    "games": Entry(
        "ours.games",
        "Twenty enumerated games: does closeness to the successor measure help agents?",
        _presets(
            "seconds", paper="more agents", released="the released results, drawn without training"
        ),
        **{**_AGENTS, "takes": ["objective", "jobs"]},
    ),
    "goal-changes": Entry(
        "ours.goal_changes",
        "Agents whose goal changes: values from their own replay, fine-tuning, starting over.",
        _presets("about 20 s", "about 12 min", "more agents, which learn for longer"),
        **_AGENTS,
    ),
    "shaping": Entry(
        "ours.shaping",
        "Shaped rewards: distances in learned features against Euclidean and exact ones.",
        _presets("seconds", "about 16 min", "more agents, which learn for longer"),
        **_AGENTS,
    ),
}
"""Name → experiment."""
