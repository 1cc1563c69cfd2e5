"""What the reports of all experiments on streaming principal components share."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rlreps.experiments.amid_warmuth_2020.pca_config import RepeatedPcaConfig
from rlreps.experiments.amid_warmuth_2020.pca_findings import RuleRuns
from rlreps.experiments.amid_warmuth_2020.pca_problem import PcaProblem
from rlreps.experiments.results import Claim
from rlreps.report.page import Section, write_report
from rlreps.runs.folder import RunFolder

EXPLICIT_START = (
    "What explicit Krasulina does depends on η0 / ||C||² alone. Its C starts here with columns of "
    "about unit length, where Oja's and Krasulina's are. From entries as small as the authors' "
    "1e-5, which implicit Krasulina starts from here too, a first step is far longer than C "
    "itself, and leaves columns so long that later steps hardly turn them. The implicit rule damps "
    "just these first steps."
)
"""Where the explicit rule starts, and why."""


def write_pca_report(
    config: RepeatedPcaConfig,
    problem: PcaProblem,
    folder: RunFolder,
    *,
    title: str,
    abstract: str,
    sections: Sequence[Section],
    claims: Sequence[Claim],
    found: Mapping[str, Any],
) -> dict[str, Any]:
    """Writes ``report.html``; returns the summary.

    Args:
        config: The experiment.
        problem: The rows.
        folder: The run.
        title: Of the page.
        abstract: What stands first.
        sections: What follows.
        claims: For the summary.
        found: What else the summary holds.

    Returns:
        ``data``, its fingerprint; ``exact`` losses by k; what was found; ``claims``; ``report``.
    """
    path = folder.path / "report.html"
    write_report(
        path,
        title=title,
        summary=abstract,
        sections=sections,
        config=folder.config,
        git_revision=folder.provenance.get("git_revision"),
    )
    return {
        "data": folder.config["data"],
        "exact": {str(k): problem.exact_loss(k) for k in config.components},
        **found,
        "claims": [dataclasses.asdict(claim) for claim in claims],
        "report": str(path),
    }


def by_rule(results: Sequence[RuleRuns], described: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """``rules`` and ``seconds`` of a summary.

    Args:
        results: For every rule and k.
        described: What the summary holds of each beside its learning rate.
    """
    rules: dict[str, dict[str, Any]] = {}
    for result, found in zip(results, described, strict=True):
        own = rules.setdefault(result.rule, {})
        own[str(result.k)] = {"learning_rate": result.learning_rate, **found}
    return {"rules": rules, "seconds": round(sum(result.seconds for result in results), 3)}
