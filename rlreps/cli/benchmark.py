"""The command that compares objectives."""

import dataclasses
from pathlib import Path
from typing import Literal


def benchmark(
    out: Path,
    preset: Literal["smoke", "laptop", "paper"] = "laptop",
    objective: str | None = None,
    jobs: int = 1,
) -> None:
    """Train every objective on the same chains and compare it with the exact truth.

    Args:
        out: Folder of the run; run again to resume.
        preset: smoke takes seconds; laptop is for two cores; paper has more seeds and updates.
        objective: module:name of an objective of your own. It is tuned and trained alone; with the
            preset laptop, the released rows of the others stand beside it.
        jobs: Parts to compute at a time, each in a process with its share of the CPU's cores.
    """
    from rlreps.experiments.harness import print_claims
    from rlreps.experiments.ours.benchmark import EXPERIMENT
    from rlreps.experiments.ours.contestants import row_of

    config = EXPERIMENT.presets[preset]
    if objective is not None:
        config = dataclasses.replace(config, rows=(row_of(objective),))
    print_claims(EXPERIMENT.run(config, out, jobs=jobs))
