"""The NumPy kernels that define the bits: array functions `kernel(element, array, ...)` over any `Element`.

Each states its shapes and its order of accumulation; whatever computes the same instruction elsewhere reproduces its
bits. Accumulation runs in `element.accumulator` and is demoted once. Operands may have any strides: a view gives the
bits of its dense copy. Shapes are taken to fit; nothing is checked here. The result is always an array, of rank 0 where
nothing is left. Callers hold `np.errstate(all="ignore")`.

An element whose `ieee` attribute is true vouches that its operations are those of IEEE-754 for its dtype, f32 or f64:
its products and maxima then take faster paths of equal bits. Any other element is only asked for its own operations.
"""

from topos.reference.extrema import max_along
from topos.reference.indexing import gather, one_hot, scatter
from topos.reference.normalizers import log_softmax, logsumexp
from topos.reference.products import matmul
from topos.reference.sums import sum, sum_along
from topos.reference.windows import fold

__all__ = [
    "fold",
    "gather",
    "log_softmax",
    "logsumexp",
    "matmul",
    "max_along",
    "one_hot",
    "scatter",
    "sum",
    "sum_along",
]
