"""Block tridiagonal solver of I - γP for chains on a grid with short moves.

A move crosses at most w rows of the grid. Strips of at least w rows therefore interact only with
their neighbours, and I - γP is block tridiagonal. With strips of b cells, its factors hold 3 n b
numbers, and a row of the inverse costs 6 n b operations. Dense factors would hold n² numbers and
cost 2/3 n³ operations, and then 2 n² operations a row. For PuddleWorld's moves, dense factors take
ten times as many numbers and operations.
"""

import dataclasses
import itertools

import numpy as np
import scipy.linalg
import scipy.sparse


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BandedSolver:
    """A = (I + L) D (I + U) with A = I - γP, in blocks between neighbouring strips.

    Attributes:
        strips: First cell of each of the s strips, and n, [s + 1].
        inverses: D_i⁻¹, [b_i, b_i] each.
        upper: U_{i, i+1} = D_i⁻¹ A_{i, i+1}, s - 1 arrays.
        lower: L_{i+1, i} = A_{i+1, i} D_i⁻¹, s - 1 arrays.
    """

    strips: tuple[int, ...]
    inverses: tuple[np.ndarray, ...]
    upper: tuple[np.ndarray, ...]
    lower: tuple[np.ndarray, ...]

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the factors and of the solutions."""
        return self.inverses[0].dtype

    def rows(self, right: np.ndarray) -> np.ndarray:
        """Solve X (I - γP) = right, both [m, n]."""
        parts = self._parts(right.T)
        known = [part.T for part in parts]
        occupied = [i for i, part in enumerate(known) if part.any()]
        # Rows of starts are zero up to their own strip: no elimination is needed there.
        for i in range(occupied[0] if occupied else len(known), len(self.upper)):
            known[i + 1] = known[i + 1] - known[i] @ self.upper[i]
        result = np.empty(right.shape, self.dtype)
        after: np.ndarray | None = None
        for i in reversed(range(len(known))):
            solved = known[i] @ self.inverses[i]
            if after is not None:
                solved -= after @ self.lower[i]
            result[:, self.strips[i] : self.strips[i + 1]] = after = solved
        return result

    def columns(self, right: np.ndarray) -> np.ndarray:
        """Solve (I - γP) X = right, both [n, m]."""
        known = self._parts(right)
        for i, lower in enumerate(self.lower):
            known[i + 1] = known[i + 1] - lower @ known[i]
        result = np.empty(right.shape, self.dtype)
        after: np.ndarray | None = None
        for i in reversed(range(len(known))):
            solved = self.inverses[i] @ known[i]
            if after is not None:
                solved -= self.upper[i] @ after
            result[self.strips[i] : self.strips[i + 1]] = after = solved
        return result

    def _parts(self, array: np.ndarray) -> list[np.ndarray]:
        array = array.astype(self.dtype, copy=False)
        return [array[first:last] for first, last in itertools.pairwise(self.strips)]


def factorise(
    chain: scipy.sparse.csr_array, bins: int, discount: float, dtype: type = np.float32
) -> BandedSolver:
    """Factorise I - γP without pivoting between strips: the matrix is diagonally dominant.

    Args:
        chain: P, [bins², bins²] with rows that sum to 1, cells in order of their grid row.
        bins: Cells along each axis.
        discount: γ in (0, 1).
        dtype: float32 or float64, the dtype of the factors.
    """
    strips = _strips(chain, bins)
    last = len(strips) - 2

    def block(i: int, j: int) -> np.ndarray:
        part = chain[strips[i] : strips[i + 1], strips[j] : strips[j + 1]].toarray()
        part *= -discount
        if i == j:
            part[np.diag_indices_from(part)] += 1.0
        return part.astype(dtype)

    inverses, upper, lower = [], [], []
    pivot = block(0, 0)
    for i in range(last + 1):
        inverse = scipy.linalg.inv(pivot, overwrite_a=True, check_finite=False)
        inverses.append(inverse)
        if i < last:
            below = block(i + 1, i)
            upper.append(inverse @ block(i, i + 1))
            lower.append(below @ inverse)
            pivot = block(i + 1, i + 1)
            pivot -= below @ upper[-1]
    return BandedSolver(
        strips=tuple(strips), inverses=tuple(inverses), upper=tuple(upper), lower=tuple(lower)
    )


def _strips(chain: scipy.sparse.csr_array, bins: int) -> list[int]:
    """Return the first cell of each strip, and n; a strip has as many rows as a move crosses."""
    rows = np.repeat(np.arange(chain.shape[0], dtype=np.int32), np.diff(chain.indptr))
    reach = max(1, int(np.max(np.abs(chain.indices // bins - rows // bins))))
    count = max(1, bins // reach)
    return [bins * (bins * i // count) for i in range(count + 1)]
