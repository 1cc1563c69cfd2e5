"""How every experiment on the rows of a data set is run: in a folder, part after part."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlreps.config import as_json
from rlreps.experiments.amid_warmuth_2020.pca_config import RepeatedPcaConfig
from rlreps.experiments.amid_warmuth_2020.pca_losses import require_excess
from rlreps.experiments.amid_warmuth_2020.pca_problem import PcaProblem, make_pca_problem
from rlreps.runs.folder import RunFolder, complete_run, finished_summary
from rlreps.runs.progress import progress_bar
from rlreps.sources.datasets import load_observations


def run_on_rows(
    config: RepeatedPcaConfig,
    out: Path,
    *,
    kind: str,
    data: Path | None,
    progress: bool,
    check: Callable[[int], None],
    computations: Callable[[PcaProblem], Mapping[str, Callable[[], Mapping[str, Any]]]],
    report: Callable[[PcaProblem, RunFolder, list[dict[str, Any]]], Mapping[str, Any]],
) -> dict[str, Any]:
    """Runs an experiment on rows in a folder, resuming what was interrupted.

    Args:
        config: The experiment.
        out: The folder.
        kind: What kind of run it is.
        data: Rows, for ``load_observations``; None is MNIST.
        progress: Whether to show a progress bar.
        check: Raises an ``InputError`` where so many rows are too few.
        computations: Name of each part → what computes it (``RunFolder.part``), in order.
        report: Makes of the parts what the run leaves behind; returns the summary.

    Returns:
        The summary.

    Raises:
        InputError: If the rows cannot be read, are too few or do not vary beyond k components, or
            the folder holds another run.
    """
    observations = load_observations(data)
    described = {"data": observations.fingerprint(), **as_json(config)}
    finished = finished_summary(out, kind, described)
    if finished is not None:
        return finished
    # Before the folder is made: rows may be too few, or vary too little.
    check(len(observations.rows))
    problem = make_pca_problem(observations, max(config.components))
    require_excess(problem, max(config.components))

    def compute(folder: RunFolder) -> Mapping[str, Any]:
        left, parts = computations(problem), []
        with progress_bar(kind, total=len(left), unit="parts", show=progress) as advance:
            for name, part in left.items():
                advance(0, name)
                parts.append(folder.part(name, part))
                advance(1)
        return report(problem, folder, parts)

    return complete_run(out, kind=kind, config=described, compute=compute)
