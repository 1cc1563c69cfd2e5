"""The commands below ``rlreps experiment``: the published experiments, run by name."""

import dataclasses
import importlib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from tyro.conf import subcommand

from rlreps.cli.parts import Switch
from rlreps.runs.machine import keep_lapack_to_one_thread

PresetName: TypeAlias = Literal["smoke", "laptop", "paper"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedExperiment:
    """An experiment of a package below ``rlreps.experiments``.

    Attributes:
        out: Folder of the run; run again to resume.
        preset: smoke takes seconds, laptop minutes; paper is the published protocol.
        quiet: Show no progress bars.
    """

    package: ClassVar[str]
    """Name of the package, whose ``run`` has a function ``run_<package>``."""

    out: Path
    preset: PresetName = "laptop"
    quiet: Switch = False

    def options(self) -> dict[str, Any]:
        """Keyword arguments of the run function beside the preset, the folder and ``progress``."""
        return {}

    def run(self) -> None:
        """Runs the experiment, then prints what was stated beforehand and what was found."""
        from rlreps.cli.tables import print_claims

        home = f"rlreps.experiments.{self.package}"
        presets = importlib.import_module(f"{home}.config").PRESETS
        run = getattr(importlib.import_module(f"{home}.run"), f"run_{self.package}")
        print_claims(run(presets[self.preset], self.out, progress=not self.quiet, **self.options()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentOfSmallRuns(PublishedExperiment):
    """An experiment whose many small runs are shared out over all cores or accelerators."""

    def options(self) -> dict[str, Any]:
        """Every device there is."""
        from rlreps.training.devices import devices_for_small_runs

        return {"devices": devices_for_small_runs()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentOnDevices(PublishedExperiment):
    """An experiment whose runs may be spread over several devices.

    Attributes:
        devices: As for ``train``.
    """

    devices: int | None = None

    def options(self) -> dict[str, Any]:
        """The devices that were asked for."""
        from rlreps.training.devices import choose_devices

        return {"devices": choose_devices(self.devices)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentOnRows(ExperimentOfSmallRuns):
    """An experiment on the rows of a data set.

    Attributes:
        data: The folder of MNIST's IDX files (gzipped or not), a folder with train.npz, or a NumPy
            file (npy or npz); by default MNIST is downloaded through scikit-learn, if it is
            installed.
    """

    data: Path | None = None

    def options(self) -> dict[str, Any]:
        """Every device there is, and the data set."""
        return {"data": self.data, **super().options()}

    def run(self) -> None:
        """Runs the experiment, whose rules factorise small matrices all the time."""
        keep_lapack_to_one_thread()
        super().run()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Synthetic(ExperimentOfSmallRuns):
    """Known spectra: the methods on matrices whose singular values are set."""

    package = "synthetic"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mnist(PublishedExperiment):
    """Principal components of handwritten digits, learned from sampled pixels.

    Attributes:
        data_dir: Folder of the IDX files, gzipped or not; by default they are downloaded through
            scikit-learn, if it is installed.
    """

    package = "mnist"

    data_dir: Path | None = None

    def options(self) -> dict[str, Any]:
        """The images."""
        return {"data_dir": self.data_dir}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PuddleWorld(ExperimentOnDevices):
    """Subspace distance against d on PuddleWorld, under the paper's protocol.

    Attributes:
        out: Folder of the run; run again to resume, after days as after minutes.
    """

    package = "puddle_world"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PuddleWorldFast(ExperimentOnDevices):
    """Our best recipes on PuddleWorld: time to a given subspace distance.

    Attributes:
        preset: smoke takes seconds, laptop minutes; paper has more seeds.
    """

    package = "puddle_world_fast"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hydrogen(ExperimentOfSmallRuns):
    """The hydrogen atom: nine eigenfunctions of a Hamiltonian by spectral inference."""

    package = "hydrogen"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BouncingBalls(ExperimentOnDevices):
    """Video of bouncing balls: deep slow feature analysis against linear."""

    package = "bouncing_balls"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlowPuddle(ExperimentOnDevices):
    """Slow features of PuddleWorld's random walk against the exact ones.

    Attributes:
        preset: smoke takes seconds, laptop minutes; paper is larger, for accelerators.
    """

    package = "slow_puddle"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Atari(ExperimentOnDevices):
    """Frames of an Atari game: slow features, PCA and successor features.

    Attributes:
        preset: smoke takes seconds, laptop minutes; paper is larger, for accelerators.
    """

    package = "atari"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnlinePca(ExperimentOnRows):
    """Online principal components: excess loss of every rule against rows and against time."""

    package = "online_pca"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningRateSensitivity(ExperimentOnRows):
    """Online principal components at a tenth, once and ten times the best learning rate."""

    package = "learning_rate_sensitivity"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributedPca(ExperimentOnRows):
    """Online principal components by several workers, whose models are combined now and then."""

    package = "distributed_pca"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentOnAgents(ExperimentOfSmallRuns):
    """An experiment that compares agents."""

    def run(self) -> None:
        """Runs the experiment, whose objectives factorise small matrices in every update."""
        keep_lapack_to_one_thread()
        super().run()


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentPuddleWorld(ExperimentOnAgents):
    """Agents in PuddleWorld: no auxiliary task against each objective.

    Attributes:
        preset: smoke takes seconds, laptop minutes; paper has more agents and larger ones.
    """

    package = "agent_puddle_world"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentControl(ExperimentOnAgents):
    """Agents in CartPole, Acrobot and MountainCar: no auxiliary task against some.

    Attributes:
        preset: smoke takes seconds, laptop minutes; paper has more agents, and LunarLander.
    """

    package = "agent_control"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RepresentationTransfer(ExperimentOnAgents):
    """Torsos trained on the successor measure, then frozen or fine-tuned, against from scratch.

    Attributes:
        preset: smoke takes seconds, laptop minutes; paper has more agents and larger ones.
    """

    package = "representation_transfer"


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Published experiments by name, each with what its paper states beside what was found."""

    command: (
        Annotated[Synthetic, subcommand("synthetic")]
        | Annotated[Mnist, subcommand("mnist")]
        | Annotated[PuddleWorld, subcommand("puddle-world")]
        | Annotated[PuddleWorldFast, subcommand("puddle-world-fast")]
        | Annotated[Hydrogen, subcommand("hydrogen")]
        | Annotated[BouncingBalls, subcommand("bouncing-balls")]
        | Annotated[SlowPuddle, subcommand("slow-puddle")]
        | Annotated[Atari, subcommand("atari")]
        | Annotated[OnlinePca, subcommand("online-pca")]
        | Annotated[LearningRateSensitivity, subcommand("learning-rate-sensitivity")]
        | Annotated[DistributedPca, subcommand("distributed-pca")]
        | Annotated[AgentPuddleWorld, subcommand("agent-puddle-world")]
        | Annotated[AgentControl, subcommand("agent-control")]
        | Annotated[RepresentationTransfer, subcommand("representation-transfer")]
    )

    def run(self) -> None:
        """Runs the chosen experiment."""
        self.command.run()
