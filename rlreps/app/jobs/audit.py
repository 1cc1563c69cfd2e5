"""Audit features against a ground truth or data, in a folder of its own: ``rlreps audit``."""

import dataclasses
import functools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rlreps.app.job import Context, Job
from rlreps.app.jobs.fit import Collection, read_data
from rlreps.auditing.audit import OURS, as_features, audit
from rlreps.auditing.findings import Audit
from rlreps.config import as_json, checked, interval
from rlreps.errors import require
from rlreps.files import read_array
from rlreps.numerics import digest_of
from rlreps.report.page import Page, Section
from rlreps.report.table import Table
from rlreps.runs.folder import RunFolder
from rlreps.successor import FitConfig, GroundTruth, Transitions, load
from rlreps.successor.fitting.fit import Fit

_TRUTH = "sutton-100"


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditFeatures(Job[Audit]):
    """Measure features of any network against a ground truth: components, health, use.

    Attributes:
        features: .npy files of features [n, p], a row for each state of the truth in its order, or
            for the observation of each row of the data. Files that are named by numbers are
            checkpoints of these steps.
        truth: A released ground truth (by default sutton-100), or the folder of a store.
        data: An .npz file of transitions, as for fit, from which the components are estimated
            instead; none by default.
        discount: Discount of the components of the data; by default 0.95.
        seed: Seed of halves, held-out episodes, labelled states and random rewards.
    """

    kind: ClassVar = "audit"

    features: tuple[Path, ...]
    truth: str | None = None
    data: Path | None = None
    discount: float | None = interval("(0, 1)", None)
    seed: int = interval("[0, 2**31)", 0)

    @functools.cached_property
    def _read(self) -> dict[str, np.ndarray]:
        names = [path.stem for path in self.features]
        require(bool(names), "at least one .npy file of features", "none")
        if len({*names}) < len(names):  # Runs name their files alike.
            shared = os.path.commonpath([path.absolute().parent for path in self.features])
            names = [os.path.relpath(path.with_suffix(""), shared) for path in self.features]
        require(len({*names}) == len(names), "different files", names)
        labels = names if len(names) > 1 else [OURS]
        return dict(zip(labels, map(read_array, self.features), strict=True))

    @functools.cached_property
    def _against(self) -> GroundTruth | Transitions:
        both = self.truth is not None and self.data is not None
        require(not both, "a ground truth or data", "both")
        require(self.discount is None or self.data is not None, "data beside a discount", "none")
        if self.data is None:
            return load(self.truth or _TRUTH)
        require(self.data.suffix == ".npz", "an .npz file of transitions", str(self.data))
        return read_data(str(self.data), Collection())

    def describe(self) -> Mapping[str, Any]:
        against = self._against
        if isinstance(against, GroundTruth):
            of: dict[str, Any] = {
                "truth": {"states": against.num_states, "sha256": _digest_truth(against)}
            }
        else:
            given = FitConfig() if self.discount is None else FitConfig(discount=self.discount)
            fitted = Fit(data=against, given=given).describe()
            of = {name: fitted[name] for name in ("data", "discount")}
        return {
            "features": {
                label: {"shape": list(array.shape), "sha256": digest_of({label: array})}
                for label, array in self._read.items()
            },
            **of,
            "seed": self.seed,
        }

    def locate(self, out: Path) -> Mapping[str, Any]:
        place = {"truth": self.truth or _TRUTH} if self.data is None else {"data": str(self.data)}
        return {"source": [str(path) for path in self.features], **place}

    def check(self, context: Context) -> None:
        against = self._against
        rows = against.num_states if isinstance(against, GroundTruth) else len(against)
        for path, array in zip(self.features, self._read.values(), strict=True):
            as_features(array, path.name, rows)

    def compute(self, folder: RunFolder, context: Context) -> Audit:
        return audit(self._read, self._against, discount=self.discount, seed=self.seed)

    def report(self, folder: RunFolder, found: Audit) -> Page:
        return Page(
            title="What these features hold",
            summary="\n\n".join(found.lines()),
            sections=[
                Section(
                    title="Components",
                    text="The share with an intercept is the one to publish: a linear read-out has "
                    "an intercept, and a shift of the features does not change it. The share at "
                    "held-out states does not grow with the number of units alone.",
                    tables=[found.table()],
                    figures=found.save_figures(folder.figures),
                ),
                Section(title="Health", tables=[found.health_table()]),
                Section(title="Value functions", tables=[found.values_table()]),
            ],
        )

    def summarise(self, found: Audit) -> Mapping[str, Any]:
        return {
            "lines": found.lines(),
            "features": {
                str(label): {
                    "captured": each.components.tolist(),
                    "without_intercept": each.without_intercept.tolist(),
                    "held_out": each.held_out.tolist(),
                    "chance": each.by_chance(),
                    "aliased": each.aliased,
                    "health": dataclasses.asdict(each.health),
                    "values": {
                        name: row.mean(axis=1).tolist() for name, row in each.values.items()
                    },
                    "defects": [defect.name for defect in each.defects],
                }
                for label, each in found.findings.items()
            },
        }

    def show(self, summary: Mapping[str, Any]) -> Iterator[str | Table]:
        """Yield the findings in words, and the report's path."""
        yield from summary["lines"]
        yield f"wrote {summary['report']}"


def _digest_truth(truth: GroundTruth) -> str:
    """Return the SHA-256 of everything that an audit takes from a ground truth."""
    arrays = {
        "basis": truth.principal.basis,
        "singular_values": truth.principal.singular_values,
        "coordinates": truth.coordinates,
        "observed": truth.observed,
        "error": truth.error,
    }
    held = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
    return digest_of(held, json.dumps(as_json(truth.grid)))
