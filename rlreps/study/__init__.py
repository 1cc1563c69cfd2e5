"""Experiments as data; the class ``Experiment`` says how to write one."""

from rlreps.study.claims import (
    HALVED,
    NOT_RUN,
    Claim,
    JudgedClaim,
    falling,
    flatten_json,
    follows,
    halved,
    list_changed_fields,
)
from rlreps.study.experiment import (
    Experiment,
    Part,
    Run,
    in_path,
    product_cells,
    replace_nested,
)
from rlreps.study.figures import (
    Curve,
    DoubleArray,
    Drawn,
    aligned_maps,
    draw_image_components,
)
from rlreps.study.frame import Frame, NotRunError, TableRows, aggregate_units
from rlreps.study.ground_truths import OwnGroundTruth, own_ground_truth
from rlreps.study.results import (
    STEP,
    SUBSPACE_DISTANCE,
    Axis,
    D,
    Metric,
    Results,
    design_of,
)
from rlreps.study.tables import (
    DETECTABLE,
    Tabulated,
    tabulate_summary,
    tabulate_wide,
)

__all__ = [
    "DETECTABLE",
    "HALVED",
    "NOT_RUN",
    "STEP",
    "SUBSPACE_DISTANCE",
    "Axis",
    "Claim",
    "Curve",
    "D",
    "DoubleArray",
    "Drawn",
    "Experiment",
    "Frame",
    "JudgedClaim",
    "Metric",
    "NotRunError",
    "OwnGroundTruth",
    "Part",
    "Results",
    "Run",
    "TableRows",
    "Tabulated",
    "aggregate_units",
    "aligned_maps",
    "design_of",
    "draw_image_components",
    "falling",
    "flatten_json",
    "follows",
    "halved",
    "in_path",
    "list_changed_fields",
    "own_ground_truth",
    "product_cells",
    "replace_nested",
    "tabulate_summary",
    "tabulate_wide",
]
