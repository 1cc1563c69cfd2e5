"""The harness of every experiment; its module ``experiment`` says how to write one."""

from rlreps.experiments.harness.claims import HALVED, NOT_RUN, Claim, Found, follows, halved
from rlreps.experiments.harness.experiment import (
    Experiment,
    Findings,
    Run,
    Section,
    in_path,
    print_claims,
)
from rlreps.experiments.harness.figures import Curve, Drawn, aligned
from rlreps.experiments.harness.frame import Frame, NotRunError, Rows, summarised
from rlreps.experiments.harness.legacy import LEARNED, agrees, all_hold, curve_rows, learned
from rlreps.experiments.harness.results import Measure, Results, Text
from rlreps.experiments.harness.tables import (
    CONTRASTS,
    MEANS,
    Columns,
    Summary,
    Tabulated,
    Wide,
    diverged_of,
    table_of,
)
from rlreps.runs.contrasts import VERDICTS

__all__ = [
    "CONTRASTS",
    "HALVED",
    "LEARNED",
    "MEANS",
    "NOT_RUN",
    "VERDICTS",
    "Claim",
    "Columns",
    "Curve",
    "Drawn",
    "Experiment",
    "Findings",
    "Found",
    "Frame",
    "Measure",
    "NotRunError",
    "Results",
    "Rows",
    "Run",
    "Section",
    "Summary",
    "Tabulated",
    "Text",
    "Wide",
    "agrees",
    "aligned",
    "all_hold",
    "curve_rows",
    "diverged_of",
    "follows",
    "halved",
    "in_path",
    "learned",
    "print_claims",
    "summarised",
    "table_of",
]
