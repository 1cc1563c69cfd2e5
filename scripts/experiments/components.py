"""Learned components beside the exact ones: rotated to match them, and drawn as images."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from rlreps import subspace
from rlreps.plotting import plot_signed_images
from rlreps.study import TableRows
from rlreps.typing import ArrayLike, DoubleArray


def aligned_maps(
    exact: DoubleArray, learned: Mapping[str, ArrayLike]
) -> tuple[dict[str, DoubleArray], dict[str, DoubleArray]]:
    """Rotate features [n, d] within their span onto exact components [n, d] (Procrustes).

    Returns:
        Name → rotated features [n, d], and name → |cosine| of each feature with its component [d].
    """
    target, maps = jnp.asarray(exact, jnp.float32), {}
    for name, features in learned.items():
        found = subspace.align(jnp.asarray(features, jnp.float32), target)
        maps[name] = np.asarray(found, np.float64)
    return maps, {name: np.abs(np.sum(each * exact, axis=0)) for name, each in maps.items()}


def draw_image_components(
    exact: DoubleArray, learned: Mapping[str, ArrayLike], shape: tuple[int, ...]
) -> tuple[TableRows, Figure]:
    """Draw exact components of images above learned ones, which are rotated to match them.

    Args:
        exact: Components as columns, [pixels, k].
        learned: Learned components by label, [pixels, k].
        shape: (height, width), or (height, width, channels), whose means over channels are drawn.

    Returns:
        The matched |cosines|, and the figure.
    """
    maps, cosines = aligned_maps(exact, learned)
    images = {}
    for label, basis in {"exact": exact, **maps}.items():
        each = basis.T.reshape(-1, *shape)
        images[label] = each if len(shape) == 2 else each.mean(axis=-1)
    rows = [
        {"method": label, "component": component, "cosine": cosine}
        for label, found in cosines.items()
        for component, cosine in enumerate(found.tolist(), start=1)
    ]
    titles = [str(number) for number in range(1, exact.shape[1] + 1)]
    return rows, plot_signed_images(images, titles=titles, cosines=cosines)
