"""Final figures of results: runs in folders, logs, and trainings and arrays of one's own."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from rlreps.app.jobs import agents, train
from rlreps.app.jobs import train_live as live
from rlreps.errors import InputError, describe_differences, require
from rlreps.numerics import require_unmasked
from rlreps.runs.folder import RunFolder
from rlreps.stats import Sample
from rlreps.study import sweep
from rlreps.study.grid import option_of
from rlreps.study.monitor import find_monitors, read_monitors
from rlreps.successor.fitting.representation import KIND as SUCCESSOR
from rlreps.training import TrainingResult
from rlreps.typing import ArrayLike

VALUE, RETURN = "value", "return"

MEASURES = {
    VALUE: "value",
    RETURN: "return",
    "subspace_distance": "subspace distance",
    "relative_excess_loss": "excess loss",
    "r_squared": "R² on held-out episodes",
}
"""Name in files → title."""

Stored: TypeAlias = Mapping[str, Any]
Logs: TypeAlias = Sequence[Path | str] | Mapping[Any, Path | str]
Result: TypeAlias = Path | str | Logs | TrainingResult | Mapping[Any, float] | ArrayLike


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FinalValues:
    """The final values of a run, or of a sweep at one point of its grid.

    Attributes:
        label: Name of the run.
        about: ``method``, ``d`` and ``steps``.
        measures: Name in ``MEASURES`` → the figure of every seed.
        problem: The ground truth or data of the measures, if known; measures on different problems
            are not subtracted.
        diverged: Number of runs that diverged and count with the worst values.
        longest: Steps of the longest training, if ``measures`` are of fewer.
        ages: Steps by which each training's figure is earlier than the last tenth, [seeds], for
            logs.
        steps: Steps of the learning curves, [points].
        curves: Name in ``MEASURES`` → learning curves of results in memory, [seeds, points].
    """

    label: str
    about: Mapping[str, Any]
    measures: Mapping[str, Sample]
    problem: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    diverged: int = 0
    longest: float = 0.0
    ages: Sequence[float] = ()
    steps: Sequence[float] = ()
    curves: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def differences_from(self, other: "FinalValues") -> list[str]:
        """Describe how the problem differs from another; logs know their environment alone."""
        known = self.problem.keys() & other.problem.keys()
        if "environment" not in known:
            known = self.problem.keys() | other.problem.keys()
        theirs, own = ({name: run.problem.get(name) for name in known} for run in (other, self))
        return describe_differences(theirs, own)

    @property
    def seeds(self) -> Sequence[Any]:
        """Seeds of all measures."""
        return next(iter(self.measures.values())).units


def read_results(results: Sequence[tuple[Any, Any]]) -> list[FinalValues]:
    """Read the final values of labelled results; logs up to the steps that all of them reached.

    Raises:
        InputError: If a result has none.
    """
    named = [(str(label), result) for label, result in results]
    logs = {label: found for label, each in named if (found := _find_logs(each))}
    monitored = read_monitors({label: [*paths.values()] for label, paths in logs.items()})
    runs = []
    for label, result in named:
        if label in monitored:
            log = monitored[label]
            runs.append(
                FinalValues(
                    label=label,
                    about={"method": None, "d": None, "steps": log.made},
                    measures={RETURN: Sample(log.returns, [*logs[label]])},
                    problem={"environment": ", ".join(log.environments)},
                    longest=log.longest,
                    ages=log.ages.tolist(),
                    steps=log.steps.tolist(),
                    curves={RETURN: log.curves},
                )
            )
        elif isinstance(result, Path | str):
            runs += _read(label, RunFolder(Path(result)))
        elif isinstance(result, TrainingResult):
            runs.append(_of_training(label, result))
        else:
            runs.append(_of_numbers(label, result))
    return runs


def _find_logs(result: Result) -> dict[Any, Path]:
    """Return the logs of Stable-Baselines3 by seed; none for results of other kinds."""
    logs: Any = find_monitors(Path(result)) if isinstance(result, Path | str) else result
    if isinstance(logs, Sequence):
        logs = dict(enumerate(logs))
    if not isinstance(logs, Mapping) or not all(isinstance(e, Path | str) for e in logs.values()):
        return {}
    paths = {seed: Path(each) for seed, each in _by_seed(logs).items()}
    different = len({*paths.values()}) == len(paths)
    require(different, "logs of different trainings", [*map(str, paths.values())])
    return paths


def _by_seed(given: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return figures by seed; a text of digits, as folders and JSON have, is a number."""
    found = {
        int(seed) if isinstance(seed, str) and seed.isdecimal() else seed: each
        for seed, each in given.items()
    }
    require(len(found) == len(given), "different seeds", [*given])
    return found


def _of_curves(
    label: str,
    seeds: Sequence[Any],
    steps: Sequence[float],
    curves: Mapping[str, np.ndarray],
    made: int | None = None,
) -> FinalValues:
    """Take the last points of learning curves [seeds, points] by measure."""
    return FinalValues(
        label=label,
        about={"method": None, "d": None, "steps": made},
        measures={name: Sample(curve[:, -1], seeds) for name, curve in curves.items()},
        steps=steps,
        curves=curves,
    )


def _of_training(label: str, result: TrainingResult) -> FinalValues:
    history = result.history
    names = [name for name in MEASURES if name in history[-1]]
    require(bool(names), f"a training with a measure among {[*MEASURES]}", [*history[-1]])
    curves = {name: np.array([each[name] for each in history], np.float64).T for name in names}
    steps = [each["step"] for each in history]
    return _of_curves(label, result.seeds, steps, curves, steps[-1])


def _of_numbers(label: str, result: Any) -> FinalValues:
    """Take numbers by seed, or curves [seeds, points]; of pandas, the index has the seeds."""
    if hasattr(result, "to_numpy") and hasattr(result, "index"):
        require(len(result) > 0, f"numbers of {label!r}", "none")
        require(result.index.is_unique, "different seeds", [*result.index])
        result = dict(zip(result.index, result.to_numpy(), strict=True))
    by_seed = _by_seed(result) if isinstance(result, Mapping) else {}
    expected = f"finite numbers [seeds] or [seeds, steps] of {label!r} within float32"
    require_unmasked(f"numbers of {label!r}", result)
    try:
        values = np.asarray([*by_seed.values()] or result, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"expected {expected}, got {error}") from error
    require(values.ndim in (1, 2) and values.size > 0, expected, f"shape {values.shape}")
    curves = values.reshape(len(values), -1)
    # Powers of larger numbers exceed double precision.
    within = np.abs(curves[:, -1]) <= np.finfo(np.float32).max
    require(bool(within.all()), expected, curves[:, -1])
    steps, made = range(1, curves.shape[1] + 1), curves.shape[1] if values.ndim == 2 else None
    return _of_curves(label, [*by_seed] or range(len(curves)), steps, {VALUE: curves}, made)


def _read(label: str, folder: RunFolder) -> list[FinalValues]:
    """Read the final measures of a run's folder, or of every point of a sweep.

    Raises:
        InputError: If there are none.
    """
    readers = {
        train.KIND: _read_training,
        live.KIND: _read_training,
        sweep.KIND: _read_sweep,
        SUCCESSOR: _read_fit,
        agents.KIND: _read_agents,
    }
    if folder.kind not in readers:
        raise InputError(
            "expected runs of train, train-live, sweep, fit or agent train, got "
            f"{folder.path}, which holds a run of {folder.kind}"
        )
    summary = folder.read_summary()
    if summary is None:
        raise InputError(f"expected finished runs, got {folder.path}, which has no summary")
    try:
        runs = readers[folder.kind](label, folder.config, summary)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"expected a run of {folder.kind} of this version in {folder.path}, got "
            f"{type(error).__name__}: {error}"
        ) from error
    if not runs or not all(run.measures for run in runs):
        raise InputError(
            f"expected runs that were measured against a ground truth or on held-out data, got "
            f"{folder.path}"
        )
    return runs


def _read_training(label: str, config: Stored, summary: Stored) -> list[FinalValues]:
    training = config.get("training", config)
    # A live run's target is the matrix times the cumulants.
    names = (train.MATRIX,) if train.MATRIX in config else ("target", "cumulants", "target_tasks")
    problem = {"d": training["num_features"], **{name: config[name] for name in names}}
    measured = summary.get("per_seed", [])
    found = {name: [each.get(name) for each in measured] for name in MEASURES}
    d, samples = training["num_features"], _samples(summary["seeds"], found)
    about = {"method": summary["method"], "d": d, "steps": summary["steps"]}
    return [FinalValues(label=label, about=about, problem=problem, measures=samples)]


def _read_sweep(label: str, config: Stored, summary: Stored) -> list[FinalValues]:
    runs = []
    for point in summary["points"]:
        given = {**config["base"], **point}
        place = ", ".join(f"{option_of(name)}={point[name]}" for name in config["grid"])
        d, seed = given["num_features"], given["seed"]
        method = point.get("method", config["base"]["objective"]["name"])
        found = {
            "subspace_distance": point["subspace_distances"],
            "relative_excess_loss": point["excess_losses"],
        }
        runs.append(
            FinalValues(
                label=f"{label} {place}",
                about={"method": method, "d": d, "steps": given["steps"]},
                problem={"d": d, train.MATRIX: config[sweep.MATRIX]},
                measures=_samples(range(seed, seed + given["num_seeds"]), found),
                diverged=point["diverged"],
            )
        )
    return runs


def _read_fit(label: str, config: Stored, summary: Stored) -> list[FinalValues]:
    quality, method = summary["quality"] or {}, config["method"]
    name = None if method is None else method["name"]
    return [
        FinalValues(
            label=label,
            about={"method": name, "d": config["num_features"], "steps": None},
            # A fit with short records is judged at a smaller discount.
            problem={"data": config["data"], "discount": quality.get("discount")},
            measures=_samples([config["seed"]], {"r_squared": [quality.get("r_squared")]}),
        )
    ]


def _read_agents(label: str, config: Stored, summary: Stored) -> list[FinalValues]:
    seeds = range(config["seed"], config["seed"] + config["num_seeds"])
    about = {"method": summary["auxiliary"], "d": config["num_features"], "steps": summary["steps"]}
    names = ("environment", "goal", "arena", "world_digest", "max_episode_steps")
    return [
        FinalValues(
            label=label,
            about=about,
            problem={name: config.get(name) for name in names},
            measures=_samples(seeds, {RETURN: summary["final_returns"]}),
        )
    ]


def _samples(seeds: Sequence[int], found: Mapping[str, Sequence[Any]]) -> dict[str, Sample]:
    """Return the measures that every seed has."""
    return {
        name: Sample(np.asarray(values, np.float64), seeds)
        for name, values in found.items()
        if len(values) == len(seeds) and None not in values
    }
