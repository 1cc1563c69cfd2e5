"""Figures: arrays in, a `matplotlib.figure.Figure` out, without pyplot and without global state."""

from rlreps.plotting.components import plot_components
from rlreps.plotting.curves import Curve, plot_curves
from rlreps.plotting.dimensions import plot_distance_by_dimension
from rlreps.plotting.environment import plot_environment
from rlreps.plotting.errors import plot_subspace_error
from rlreps.plotting.saving import figure_bytes, save_figure
from rlreps.plotting.seeds import mean_and_interval
from rlreps.plotting.spectrum import plot_spectrum
from rlreps.plotting.style import signed_colormap

__all__ = [
    "Curve",
    "figure_bytes",
    "mean_and_interval",
    "plot_components",
    "plot_curves",
    "plot_distance_by_dimension",
    "plot_environment",
    "plot_spectrum",
    "plot_subspace_error",
    "save_figure",
    "signed_colormap",
]
