"""Types with a short name in signatures, as ``help`` prints them."""

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from numpy.typing import ArrayLike as ArrayLike
else:

    class ArrayLike:
        """Any argument of ``numpy.asarray``; NumPy's own type is a union of nine."""


IndexArray: TypeAlias = npt.NDArray[np.integer]
"""An array of integers of any width."""
DoubleArray: TypeAlias = npt.NDArray[np.float64]
"""An array of double precision."""
