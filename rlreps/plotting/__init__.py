"""Figures: arrays in, a `matplotlib.figure.Figure` out, without pyplot and without global state."""

from rlreps.plotting.charts import (
    plot_curves,
    plot_fit,
    plot_spectrum,
    plot_subspace_error,
)
from rlreps.plotting.images import plot_reconstructions, plot_signed_images
from rlreps.plotting.lines import Line, Panel, plot_panels
from rlreps.plotting.maps import (
    plot_components,
    plot_coverage,
    plot_environment,
    plot_policy_and_value,
)
from rlreps.plotting.style import figure_bytes, require_figure, save_figure, signed_colormap

__all__ = [
    "Line",
    "Panel",
    "figure_bytes",
    "plot_components",
    "plot_coverage",
    "plot_curves",
    "plot_environment",
    "plot_fit",
    "plot_panels",
    "plot_policy_and_value",
    "plot_reconstructions",
    "plot_signed_images",
    "plot_spectrum",
    "plot_subspace_error",
    "require_figure",
    "save_figure",
    "signed_colormap",
]
