"""Files of the IDX format, in which MNIST and its relatives are kept."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from topos.errors import FeedError

DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: "i2", 0x0C: "i4", 0x0D: "f4", 0x0E: "f8"}
"""The types of numbers by their code, which is the third byte of a file; numbers are stored most significant first."""
_RATIO = 1032  # deflate never makes more of a byte


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_idx(path: str | os.PathLike[str]) -> np.ndarray[Any, np.dtype[Any]]:
    """The array of an IDX file, plain or compressed by gzip, in the machine's byte order.

    A file is two zero bytes, the code of a type, the rank, an extent of 32 bits for each axis, and the numbers. Raises
    `FeedError` that names the file and what is wrong with it: before its numbers are given room, where the header
    promises more than the file can hold.
    """
    file = Path(path)
    with file.open("rb") as raw:
        is_packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        room = os.fstat(raw.fileno()).st_size * (_RATIO if is_packed else 1)
        try:
            with gzip.open(raw) if is_packed else raw as stream:
                return _read(file, stream, room)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise _refused(file, f"cannot be decompressed: {error}") from None


def _read(file: Path, stream: _Readable, room: int) -> np.ndarray[Any, np.dtype[Any]]:
    head = stream.read(4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in DTYPES:
        raise _refused(file, f"is no IDX file: it begins with {head.hex(' ') or 'nothing'}")
    dtype, rank = np.dtype(f">{DTYPES[head[2]]}"), head[3]
    sizes = stream.read(4 * rank)
    if len(sizes) < 4 * rank:
        raise _refused(file, f"ends inside its header, which promises {rank} extents")
    shape = tuple(np.frombuffer(sizes, ">u4").tolist())
    wanted = math.prod(shape) * dtype.itemsize
    if wanted > room:
        raise _refused(file, f"promises {wanted} bytes of numbers, {list(shape)} of {dtype.name}, and is too short")
    numbers = stream.read(wanted)
    if len(numbers) < wanted or stream.read(1):
        held = f"{len(numbers)}" if len(numbers) < wanted else "more"
        raise _refused(file, f"promises {wanted} bytes of numbers, {list(shape)} of {dtype.name}, and holds {held}")
    try:
        return np.frombuffer(numbers, dtype).reshape(shape).astype(dtype.newbyteorder("="))
    except ValueError as error:
        raise _refused(file, f"has a shape that no array has: {error}") from None


def _refused(file: Path, fact: str) -> FeedError:
    return FeedError(f"read_idx: {file} {fact}")
