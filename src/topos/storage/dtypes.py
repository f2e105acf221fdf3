"""The dtypes of the format: the width that each has in a file, and the NumPy dtype that it is read as."""

from __future__ import annotations

import sys

import numpy as np

from topos.element import bf16
from topos.element.element import Array
from topos.errors import CheckpointError

DTYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "F16": np.dtype(np.float16),
    "BF16": bf16.dtype,
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "F32": np.dtype(np.float32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "F64": np.dtype(np.float64),
    "C64": np.dtype(np.complex64),
}
"""What is read and written."""

BITS = {code: dtype.itemsize * 8 for code, dtype in DTYPES.items()} | {
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
"""The bits of one number of every dtype of the format, also of those that have no reading here."""

_CODES = {dtype: code for code, dtype in DTYPES.items()}


def code_of(dtype: np.dtype) -> str | None:
    """What the format calls a dtype, in whichever order of bytes; `None` for one that it does not have."""
    return _CODES.get(dtype.newbyteorder("=") if dtype.byteorder in "<>" else dtype)


def written(array: Array, name: str) -> Array:
    """An array as a file has it: a dtype of the format, in the machine's order of bytes.

    Raises `CheckpointError` for a dtype that the format does not have.
    """
    code = code_of(array.dtype)
    if code is None:
        raise CheckpointError(f"tensor {name!r}: the format has no dtype {array.dtype}")
    return array if array.dtype == DTYPES[code] else array.astype(DTYPES[code])


def little(array: Array) -> Array:
    """The numbers with the bytes of a file, which are little-endian; the same array on most machines."""
    return array.byteswap() if sys.byteorder == "big" else array
