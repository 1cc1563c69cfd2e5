"""The synthetic experiment: every setting with every seed, one program a shape."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from rlreps.configs import as_json
from rlreps.experiments.le_lan_2023.synthetic.config import Setting, SyntheticConfig
from rlreps.experiments.le_lan_2023.synthetic.problem import (
    SettingResult,
    member_distance,
    member_learner,
    member_sources,
    planted_matrix,
    stack_settings,
)
from rlreps.experiments.le_lan_2023.synthetic.report import write_synthetic_report
from rlreps.runs.complete import complete_run
from rlreps.runs.folder import RunFolder
from rlreps.runs.provenance import provenance
from rlreps.training import train_members
from rlreps.training.devices import largest_even_share
from rlreps.training.population import Members

KIND = "synthetic"
GROUP_KIND = "synthetic-group"
RUNS = "runs"


def run_synthetic(
    config: SyntheticConfig,
    out: Path,
    *,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Runs the experiment in a folder, resuming what was interrupted.

    Args:
        config: A preset.
        out: The run's folder: a folder a program, figures, results, report and summary.
        devices: What the runs of a program are shared out to; None is JAX's default device.
        progress: Whether to show progress bars.

    Returns:
        The summary: ``settings`` with each one's final distances, ``claims``, ``member_updates``,
        ``seconds`` of training, and the report's path.

    Raises:
        InputError: If the folder holds something else.
    """
    return complete_run(
        out,
        kind=KIND,
        config=as_json(config),
        compute=lambda folder: _compute(config, folder, devices, progress),
    )


def _compute(
    config: SyntheticConfig, folder: RunFolder, devices: Sequence[jax.Device] | None, progress: bool
) -> dict[str, Any]:
    """Everything in the folder; returns the summary."""
    results: dict[Setting, SettingResult] = {}
    seconds, groups = 0.0, _groups(config.settings())
    for number, group in enumerate(groups, start=1):
        place = _Place(config, folder, devices, f"{number}/{len(groups)}", progress)
        found, spent = _run_group(place, group)
        results |= found
        seconds += spent
    return write_synthetic_report(config, folder, results, seconds)


def _shape(setting: Setting) -> tuple[str, int, int]:
    return setting.method, setting.num_features, setting.rows


def _groups(settings: Sequence[Setting]) -> list[list[Setting]]:
    """Settings that one program can run together: those of one shape."""
    ordered = sorted(settings, key=_shape)
    return [list(group) for _, group in itertools.groupby(ordered, key=_shape)]


class _Place(NamedTuple):
    """Where the experiment stands, and what it runs on."""

    config: SyntheticConfig
    folder: RunFolder
    devices: Sequence[jax.Device] | None
    position: str
    progress: bool


def _run_group(
    place: _Place, group: Sequence[Setting]
) -> tuple[dict[Setting, SettingResult], float]:
    """Trains all settings of one shape with all seeds; (results, seconds of training)."""
    config, devices = place.config, place.devices
    method, d, rows = _shape(group[0])
    members = [(setting, seed) for setting in group for seed in range(config.num_seeds)]
    settings = [setting for setting, _ in members]
    matrices = [
        planted_matrix(setting.spectrum, config.num_states, seed) for setting, seed in members
    ]
    result = train_members(
        Members(member_learner(group[0], config.num_states, config.step_size), own_sources=True),
        member_sources(group[0], matrices),
        stack_settings(settings, matrices),
        steps=config.steps,
        seeds=[seed for _, seed in members],
        evaluate=member_distance,
        evaluate_every=config.evaluate_every,
        folder=_group_folder(config, group, place.folder.path / RUNS / f"{method}-d{d}-rows{rows}"),
        checkpoint_every=config.checkpoint_every,
        devices=devices and largest_even_share(devices, len(members)),
        description=f"{place.position} {method}, d = {d}, {len(members)} runs",
        progress=place.progress,
    )
    steps = np.asarray([record["step"] for record in result.history])
    distances = np.asarray([record["subspace_distance"] for record in result.history]).T
    diverged = np.asarray(result.history[-1]["diverged"])
    seeds = config.num_seeds
    found = {
        setting: SettingResult(
            steps,
            distances[index * seeds : (index + 1) * seeds],
            diverged[index * seeds : (index + 1) * seeds],
        )
        for index, setting in enumerate(group)
    }
    return found, result.seconds


def _group_folder(config: SyntheticConfig, group: Sequence[Setting], path: Path) -> RunFolder:
    described = {
        "experiment": as_json(config),
        "settings": [setting._asdict() for setting in group],
    }
    return RunFolder.create_or_resume(
        path, kind=GROUP_KIND, config=described, provenance=provenance()
    )
