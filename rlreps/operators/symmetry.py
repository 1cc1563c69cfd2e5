"""Whether a table of numbers is symmetric to rounding."""

import numpy as np

from rlreps.errors import require


def require_symmetric_entries(entries: np.ndarray, expected: str, each: str) -> None:
    """Raises an ``InputError`` unless entries [m, m] (floating) are symmetric to rounding.

    Args:
        entries: The table.
        expected: What it is to be.
        each: What rows and columns are, in the plural.
    """
    difference = np.abs(entries - entries.T)
    allowed = 100.0 * float(np.finfo(entries.dtype).eps) * float(np.abs(entries).max())
    row, column = np.unravel_index(np.argmax(difference), difference.shape)
    require(
        float(difference.max()) <= allowed,
        expected,
        f"{entries[row, column]:.6g} and {entries[column, row]:.6g} for {each} {row} and {column}",
    )
