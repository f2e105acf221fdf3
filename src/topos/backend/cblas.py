"""A library behind the CBLAS interface, called through ctypes: OpenBLAS, Accelerate and their kin."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np

from topos.element.element import Array
from topos.records import NamedTuple

ROW_MAJOR, AS_IT_IS, TRANSPOSED = 101, 111, 112

# How builds spell `cblas_sgemm`, and the integers that each takes.
SPELLINGS = (
    ("scipy_cblas_{}gemm64_", ctypes.c_int64),
    ("cblas_{}gemm64_", ctypes.c_int64),
    ("scipy_cblas_{}gemm", ctypes.c_int32),
    ("cblas_{}gemm", ctypes.c_int32),
)
# Around `openblas_get_num_threads`, `_set_num_threads`, `_get_config`.
AFFIXES = (("scipy_", "64_"), ("", "64_"), ("scipy_", ""), ("", ""))
LETTERS = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
NUMBERS = {"s": ctypes.c_float, "d": ctypes.c_double}


class Layout(NamedTuple):
    """A matrix as the interface wants it: whether it lies transposed, and how far apart its lines are, in numbers."""

    array: Array
    order: int
    leading: int


class Cblas:
    """The products of one library. `description` says which it is, `most` the largest extent that its integers hold.

    Raises `OSError` where it does not load, `LookupError` where it has no CBLAS interface.
    """

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        spelling, integer = _spelling(library, path)
        self._gemm = {
            dtype: _gemm(library, spelling.format(letter), integer, letter) for dtype, letter in LETTERS.items()
        }
        self._thread_calls = _thread_calls(library)
        self.most: int = 2 ** (8 * ctypes.sizeof(integer) - 1) - 1
        self.description = _description(library)

    def matmul(self, left: Array, right: Array, threads: int) -> Array:
        """`[..., rows, terms] @ [..., terms, columns]` of equal leading axes, one call per batch position.

        Operands may have any strides: a transposed matrix is read where it lies, others are copied.
        """
        *batch, rows, terms = left.shape
        columns = right.shape[-1]
        result = np.empty((*batch, rows, columns), left.dtype)
        if not result.size or not terms:
            result.fill(0)
            return result
        gemm = self._gemm[left.dtype]
        with self._threads(threads):
            for place in product(*map(range, batch)):
                a, b, c = _layout(left[place]), _layout(right[place]), result[place]
                addresses = (a.array.ctypes.data, a.leading, b.array.ctypes.data, b.leading)
                gemm(ROW_MAJOR, a.order, b.order, rows, columns, terms, 1.0, *addresses, 0.0, c.ctypes.data, columns)
        return result

    @contextmanager
    def _threads(self, wanted: int) -> Iterator[None]:
        """So many threads for the calls inside; what others, NumPy among them, had asked for stands again after."""
        if self._thread_calls is None:
            yield
            return
        get, put = self._thread_calls
        before = get()
        if before == wanted:
            yield
            return
        put(wanted)
        try:
            yield
        finally:
            put(before)


def _spelling(library: Any, path: str) -> tuple[str, Any]:
    for spelling, integer in SPELLINGS:
        if all(hasattr(library, spelling.format(letter)) for letter in NUMBERS):
            return spelling, integer
    raise LookupError(f"{path} has no CBLAS interface")


def _gemm(library: Any, name: str, integer: Any, letter: str) -> Callable[..., None]:
    call: Callable[..., None] = getattr(library, name)
    number, pointer, choice = NUMBERS[letter], ctypes.c_void_p, ctypes.c_int
    sizes, operand = [integer] * 3, [pointer, integer]
    call.restype = None  # type: ignore[attr-defined]
    call.argtypes = [choice, choice, choice, *sizes, number, *operand, *operand, number, *operand]  # type: ignore[attr-defined]
    return call


def _openblas(library: Any, name: str) -> Any:
    found = (getattr(library, f"{before}openblas_{name}{after}", None) for before, after in AFFIXES)
    return next((call for call in found if call is not None), None)


def _thread_calls(library: Any) -> tuple[Callable[[], int], Callable[[int], object]] | None:
    get, put = _openblas(library, "get_num_threads"), _openblas(library, "set_num_threads")
    return None if get is None or put is None else (get, put)


def _description(library: Any) -> str:
    config = _openblas(library, "get_config")
    if config is None:
        return "a library with the CBLAS interface"
    config.restype = ctypes.c_char_p
    return " ".join(config().decode().split()[:2])


def _layout(matrix: Array) -> Layout:
    """Lines of neighbouring numbers, down or across; a copy where there are none."""
    for array, order in ((matrix, AS_IT_IS), (matrix.T, TRANSPOSED)):
        leading = _leading(array)
        if leading is not None:
            return Layout(matrix, order, leading)
    copy = np.ascontiguousarray(matrix)
    return Layout(copy, AS_IT_IS, copy.shape[1])


def _leading(matrix: Array) -> int | None:
    """How many numbers lie from one line to the next, where each line's numbers are neighbours."""
    lines: int = matrix.shape[0]
    length: int = matrix.shape[1]
    item: int = matrix.itemsize
    step: int = matrix.strides[0]
    inner: int = matrix.strides[1]
    if not matrix.flags.aligned or (length > 1 and inner != item):
        return None
    if lines == 1:
        return length
    return step // item if step % item == 0 and step >= length * item else None
