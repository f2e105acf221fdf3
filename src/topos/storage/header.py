"""The header of a safetensors file, checked whole before a byte of data is read or room for it is made.

A file is the length of the header (8 bytes, little-endian), the header (a JSON object: for each tensor its dtype, shape
and where its bytes lie in the data; and strings under `__metadata__`), and the data, which the tensors cover without a
hole or an overlap.
"""

from __future__ import annotations

from typing import Any, BinaryIO

from topos.errors import CheckpointError, ShapeError
from topos.records import NamedTuple
from topos.shape import Shape
from topos.storage.dtypes import BITS
from topos.storage.text import parsed

LONGEST = 100_000_000
"""Bytes of a header, at most: the format's own limit."""

METADATA = "__metadata__"


class Record(NamedTuple):
    """A tensor in a file: its dtype as the format calls it, its shape, and where its bytes lie in the data."""

    code: str
    shape: Shape
    start: int
    stop: int


class Header(NamedTuple):
    """What a file holds: its tensors by name, its metadata, and where in the file the data begins."""

    records: dict[str, Record]
    metadata: dict[str, str]
    begin: int


def read_header(file: BinaryIO, size: int) -> Header:
    """The header of an open file of so many bytes. Raises `CheckpointError` for whatever is not as the format says."""
    start = file.read(8)
    if len(start) < 8:
        raise CheckpointError(f"the file has {size} bytes; a safetensors file begins with 8 that give a length")
    length = int.from_bytes(start, "little")
    if length > min(LONGEST, size - 8):
        most = min(LONGEST, size - 8)
        raise CheckpointError(f"the header has {length} bytes, of at most {most}; is it a safetensors file?")
    try:
        text = file.read(length).decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"the header is not UTF-8: {error.reason} at byte {error.start}") from None
    if not text.startswith("{") or not text.rstrip(" ").endswith("}"):
        raise CheckpointError("the header is not a JSON object from its first byte on, with nothing but spaces after")
    document = parsed(text, "the header")
    metadata = _metadata(document.pop(METADATA, {}))
    records = {name: _record(f"tensor {name!r}", record) for name, record in document.items()}
    _check_cover(records, size - 8 - length)
    return Header(records, metadata, 8 + length)


def _metadata(document: Any) -> dict[str, str]:
    if not isinstance(document, dict):
        raise CheckpointError(f"the header: {METADATA} wants an object, got {document!r:.40}")
    for name, value in document.items():
        if not isinstance(value, str):
            raise CheckpointError(f"the header: {METADATA} holds strings, got {value!r:.40} under {name!r}")
    return document


def _record(what: str, document: Any) -> Record:
    if not isinstance(document, dict):
        raise CheckpointError(f"{what}: wants an object, got {document!r:.40}")
    code = document.get("dtype")
    if not isinstance(code, str) or code not in BITS:
        raise CheckpointError(f"{what}: {f'no dtype is called {code!r:.40}' if code is not None else 'has no dtype'}")
    extents, offsets = _integers(what, document, "shape"), _integers(what, document, "data_offsets")
    try:
        shape = Shape(extents)
    except ShapeError as error:
        raise CheckpointError(f"{what}: {error}") from None
    if len(offsets) != 2 or not 0 <= offsets[0] <= offsets[1]:
        raise CheckpointError(f"{what}: data_offsets wants a begin and an end, got {offsets!r:.40}")
    bits = shape.volume * BITS[code]
    if bits % 8 or offsets[1] - offsets[0] != bits // 8:
        raise CheckpointError(f"{what}: {code} {shape} has {bits} bits, its data_offsets {offsets} another number")
    return Record(code, shape, offsets[0], offsets[1])


def _integers(what: str, document: dict[str, Any], name: str) -> list[int]:
    found = document.get(name)
    if not isinstance(found, list) or not all(type(number) is int for number in found):
        raise CheckpointError(f"{what}: {name} wants a list of integers, got {found!r:.40}")
    return found


def _check_cover(records: dict[str, Record], size: int) -> None:
    """Raises `CheckpointError` that names the first tensor which does not begin where the one before it ends."""
    end = 0
    for name, record in sorted(records.items(), key=lambda item: item[1][2:]):
        if record.start != end:
            facts = f"its bytes begin at {record.start}, those before it end at {end}"
            raise CheckpointError(f"tensor {name!r}: {facts}")
        end = record.stop
        if end > size:
            raise CheckpointError(f"tensor {name!r}: its bytes end at {end}, the file's data at {size}")
    if end != size:
        raise CheckpointError(f"the tensors cover {end} bytes of data, the file has {size}")
