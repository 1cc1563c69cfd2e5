"""Types with a short name in signatures, as ``help`` prints them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.typing import ArrayLike as ArrayLike
else:

    class ArrayLike:
        """What ``numpy.asarray`` takes; NumPy's own type is a union of nine."""
