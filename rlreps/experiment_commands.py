"""The commands below ``rlreps experiment``: the published experiments, run by name."""

import dataclasses
import importlib
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from tyro.conf import subcommand

from rlreps.command_parts import Switch

PresetName: TypeAlias = Literal["smoke", "laptop", "paper"]


def _run_and_print(package: str, preset: PresetName, out: Path, **options: object) -> None:
    """Runs the experiment of a package below ``rlreps.experiments`` and prints its claims."""
    from rlreps.tables import print_claims

    home = f"rlreps.experiments.{package}"
    presets = importlib.import_module(f"{home}.config").PRESETS
    run = getattr(importlib.import_module(f"{home}.run"), f"run_{package}")
    print_claims(run(presets[preset], out, **options))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Known spectra: the methods on matrices whose singular values are set.

    Attributes:
        out: Folder of the run; run again to resume.
        preset: smoke takes seconds, laptop minutes; paper is the published protocol.
        quiet: Show no progress bars.
    """

    out: Path
    preset: PresetName = "laptop"
    quiet: Switch = False

    def run(self) -> None:
        """Runs the experiment, then prints what the paper states and what was found."""
        from rlreps.placement import devices_for_small_runs

        _run_and_print(
            "synthetic",
            self.preset,
            self.out,
            devices=devices_for_small_runs(),
            progress=not self.quiet,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mnist:
    """Principal components of handwritten digits, learned from sampled pixels.

    Attributes:
        out: Folder of the run; run again to resume.
        data_dir: Folder of the IDX files, gzipped or not; by default they are downloaded through
            scikit-learn, if it is installed.
        preset: smoke takes seconds, laptop minutes; paper is the published protocol.
        quiet: Show no progress bars.
    """

    out: Path
    data_dir: Path | None = None
    preset: PresetName = "laptop"
    quiet: Switch = False

    def run(self) -> None:
        """Runs the experiment, then prints what the paper states and what was found."""
        _run_and_print(
            "mnist",
            self.preset,
            self.out,
            data_dir=self.data_dir,
            progress=not self.quiet,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PuddleWorld:
    """Subspace distance against d on PuddleWorld, under the paper's protocol.

    Attributes:
        out: Folder of the run; run again to resume, after days as after minutes.
        preset: smoke takes seconds, laptop minutes; paper is the published protocol.
        devices: As for ``train``.
        quiet: Show no progress bars.
    """

    out: Path
    preset: PresetName = "laptop"
    devices: int | None = None
    quiet: Switch = False

    def run(self) -> None:
        """Runs the experiment, then prints what the paper states and what was found."""
        from rlreps.placement import choose_devices

        _run_and_print(
            "puddle_world",
            self.preset,
            self.out,
            devices=choose_devices(self.devices),
            progress=not self.quiet,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PuddleWorldFast:
    """Our best recipes on PuddleWorld: time to a given subspace distance.

    Attributes:
        out: Folder of the run; run again to resume.
        preset: smoke takes seconds, laptop minutes; paper has more seeds.
        devices: As for ``train``.
        quiet: Show no progress bars.
    """

    out: Path
    preset: PresetName = "laptop"
    devices: int | None = None
    quiet: Switch = False

    def run(self) -> None:
        """Runs the experiment, then prints the goals and what was found."""
        from rlreps.placement import choose_devices

        _run_and_print(
            "puddle_world_fast",
            self.preset,
            self.out,
            devices=choose_devices(self.devices),
            progress=not self.quiet,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hydrogen:
    """The hydrogen atom: nine eigenfunctions of a Hamiltonian by spectral inference.

    Attributes:
        out: Folder of the run; run again to resume.
        preset: smoke takes seconds, laptop minutes; paper is the published protocol.
        quiet: Show no progress bars.
    """

    out: Path
    preset: PresetName = "laptop"
    quiet: Switch = False

    def run(self) -> None:
        """Runs the experiment, then prints what the paper states and what was found."""
        from rlreps.placement import devices_for_small_runs

        _run_and_print(
            "hydrogen",
            self.preset,
            self.out,
            devices=devices_for_small_runs(),
            progress=not self.quiet,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BouncingBalls:
    """Video of bouncing balls: deep slow feature analysis against linear.

    Attributes:
        out: Folder of the run; run again to resume.
        preset: smoke takes seconds, laptop minutes; paper is the published protocol.
        devices: As for ``train``.
        quiet: Show no progress bars.
    """

    out: Path
    preset: PresetName = "laptop"
    devices: int | None = None
    quiet: Switch = False

    def run(self) -> None:
        """Runs the experiment, then prints what the paper states and what was found."""
        from rlreps.placement import choose_devices

        _run_and_print(
            "bouncing_balls",
            self.preset,
            self.out,
            devices=choose_devices(self.devices),
            progress=not self.quiet,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlowPuddle:
    """Slow features of PuddleWorld's random walk against the exact ones.

    Attributes:
        out: Folder of the run; run again to resume.
        preset: smoke takes seconds, laptop minutes; paper is larger, for accelerators.
        devices: As for ``train``.
        quiet: Show no progress bars.
    """

    out: Path
    preset: PresetName = "laptop"
    devices: int | None = None
    quiet: Switch = False

    def run(self) -> None:
        """Runs the experiment, then prints what the paper states and what was found."""
        from rlreps.placement import choose_devices

        _run_and_print(
            "slow_puddle",
            self.preset,
            self.out,
            devices=choose_devices(self.devices),
            progress=not self.quiet,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Atari:
    """Frames of an Atari game: slow features, PCA and successor features.

    Attributes:
        out: Folder of the run; run again to resume.
        preset: smoke takes seconds, laptop minutes; paper is larger, for accelerators.
        devices: As for ``train``.
        quiet: Show no progress bars.
    """

    out: Path
    preset: PresetName = "laptop"
    devices: int | None = None
    quiet: Switch = False

    def run(self) -> None:
        """Runs the experiment, then prints what the paper states and what was found."""
        from rlreps.placement import choose_devices

        _run_and_print(
            "atari",
            self.preset,
            self.out,
            devices=choose_devices(self.devices),
            progress=not self.quiet,
        )


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
    )

    def run(self) -> None:
        """Runs the chosen experiment."""
        self.command.run()
