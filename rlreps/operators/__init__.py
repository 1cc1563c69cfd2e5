"""Symmetric linear operators whose eigenfunctions spectral inference learns.

They act on functions given by samples, and compose by ``+``, ``-`` and products with numbers.
"""

from rlreps.operators.base import Operator, Sample
from rlreps.operators.diagonal import diagonal
from rlreps.operators.kernel import kernel, require_symmetric, target_kernel
from rlreps.operators.laplacian import finite_difference_laplacian, laplacian
from rlreps.operators.matrix import GraphLaplacian, graph_laplacian, matrix
from rlreps.operators.slowness import slowness

__all__ = [
    "GraphLaplacian",
    "Operator",
    "Sample",
    "diagonal",
    "finite_difference_laplacian",
    "graph_laplacian",
    "kernel",
    "laplacian",
    "matrix",
    "require_symmetric",
    "slowness",
    "target_kernel",
]
