"""The harness of every experiment; its module ``experiment`` says how to write one."""

from rlreps.experiments.harness.claims import (
    HALVED,
    NOT_RUN,
    Claim,
    Found,
    differences,
    falling,
    follows,
    halved,
)
from rlreps.experiments.harness.experiment import (
    Experiment,
    Part,
    Run,
    crossed,
    in_path,
    print_claims,
    varied,
)
from rlreps.experiments.harness.figures import (
    Components,
    Curve,
    DoubleArray,
    Drawn,
    image_components,
)
from rlreps.experiments.harness.frame import Frame, NotRunError, Rows, summarised
from rlreps.experiments.harness.results import (
    STEP,
    SUBSPACE_DISTANCE,
    Axis,
    D,
    Measure,
    Results,
    Text,
    design_of,
)
from rlreps.experiments.harness.tables import (
    DETECTABLE,
    Summary,
    Tabulated,
    Wide,
)
from rlreps.runs.contrasts import VERDICTS

__all__ = [
    "DETECTABLE",
    "HALVED",
    "NOT_RUN",
    "STEP",
    "SUBSPACE_DISTANCE",
    "VERDICTS",
    "Axis",
    "Claim",
    "Components",
    "Curve",
    "D",
    "DoubleArray",
    "Drawn",
    "Experiment",
    "Found",
    "Frame",
    "Measure",
    "NotRunError",
    "Part",
    "Results",
    "Rows",
    "Run",
    "Summary",
    "Tabulated",
    "Text",
    "Wide",
    "crossed",
    "design_of",
    "differences",
    "falling",
    "follows",
    "halved",
    "image_components",
    "in_path",
    "print_claims",
    "summarised",
    "varied",
]
