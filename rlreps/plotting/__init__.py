"""Figures: arrays in, a `matplotlib.figure.Figure` out, without pyplot and without global state."""

from rlreps.plotting.charts import (
    plot_curves,
    plot_fit,
    plot_spectrum,
    plot_subspace_error,
)
from rlreps.plotting.images import plot_extremes, plot_reconstructions, plot_signed_images
from rlreps.plotting.lines import Line, Panel, over_runs, plot_panels
from rlreps.plotting.maps import (
    plot_components,
    plot_coverage,
    plot_environment,
    plot_pairs,
    plot_policy_and_value,
    plot_slices,
)
from rlreps.plotting.style import (
    MUTED,
    figure_bytes,
    plain_log_ticks,
    require_figure,
    save_figure,
    series_style,
    signed_colormap,
    styled,
)

__all__ = [
    "MUTED",
    "Line",
    "Panel",
    "figure_bytes",
    "over_runs",
    "plain_log_ticks",
    "plot_components",
    "plot_coverage",
    "plot_curves",
    "plot_environment",
    "plot_extremes",
    "plot_fit",
    "plot_pairs",
    "plot_panels",
    "plot_policy_and_value",
    "plot_reconstructions",
    "plot_signed_images",
    "plot_slices",
    "plot_spectrum",
    "plot_subspace_error",
    "require_figure",
    "save_figure",
    "series_style",
    "signed_colormap",
    "styled",
]
