"""Files that are not as the format says are refused, file and tensor named, before room for their data is made."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file

from topos import CheckpointError, load, load_tensors

A = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def file(header: Any, data: int = 8, *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + bytes(data)


def with_a(**facts: Any) -> dict[str, Any]:
    return {"a": A | facts}


def beside(offsets: list[int]) -> dict[str, Any]:
    return {"a": A, "b": A | {"data_offsets": offsets}}


TWICE = b'{"a":' + json.dumps(A).encode() + b',"a":' + json.dumps(A).encode() + b"}"
OBJECT = "is not a JSON object from its first byte on, with nothing but spaces after"
MALFORMED: dict[str, tuple[bytes, str]] = {
    "seven bytes": (bytes(7), "the file has 7 bytes; a safetensors file begins with 8 that give a length"),
    "no header": (file(b"", 0), f"the header {OBJECT}"),
    "past the end": (
        file(with_a(), length=1000),
        "the header has 1000 bytes, of at most 69; is it a safetensors file?",
    ),
    "length 2**63-1": (
        file(with_a(), length=2**63 - 1),
        f"the header has {2**63 - 1} bytes, of at most 69; is it a safetensors file?",
    ),
    "length 2**64-1": (
        file(with_a(), length=2**64 - 1),
        f"the header has {2**64 - 1} bytes, of at most 69; is it a safetensors file?",
    ),
    "bad json": (
        file(b"{nope}", 0),
        "the header: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ),
    "bad utf-8": (file(b'{"\xff":1}', 0), "the header is not UTF-8: invalid start byte at byte 2"),
    "a list": (file([]), f"the header {OBJECT}"),
    "spaces before": (file(b"  " + json.dumps(with_a()).encode()), f"the header {OBJECT}"),
    "a line feed after": (file(json.dumps(with_a()).encode() + b"\n"), f"the header {OBJECT}"),
    "not a number": (file(b'{"a":NaN}', 0), "the header: NaN is no number of JSON"),
    "deep": (file(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 0), "the header: is nested too deeply"),
    "no offsets": (file(with_a(data_offsets=[])), "tensor 'a': data_offsets wants a begin and an end, got []"),
    "one offset": (file(with_a(data_offsets=[0])), "tensor 'a': data_offsets wants a begin and an end, got [0]"),
    "reversed": (file(with_a(data_offsets=[8, 0])), "tensor 'a': data_offsets wants a begin and an end, got [8, 0]"),
    "before the data": (
        file(with_a(data_offsets=[-8, 0])),
        "tensor 'a': data_offsets wants a begin and an end, got [-8, 0]",
    ),
    "past the data": (
        file(with_a(shape=[4], data_offsets=[0, 16])),
        "tensor 'a': its bytes end at 16, the file's data at 8",
    ),
    "too many places": (
        file(with_a(shape=[3])),
        "tensor 'a': F32 [3] has 96 bits, its data_offsets [0, 8] another number",
    ),
    "negative": (file(with_a(shape=[-2])), "tensor 'a': shape: extents must not be negative, got [-2]"),
    "a float": (file(with_a(shape=[2.0])), "tensor 'a': shape wants a list of integers, got [2.0]"),
    "a boolean": (file(with_a(shape=[True, 2])), "tensor 'a': shape wants a list of integers, got [True, 2]"),
    "no list": (file(with_a(shape=2)), "tensor 'a': shape wants a list of integers, got 2"),
    "huge": (
        file(with_a(shape=[2**32, 2**32])),
        "tensor 'a': shape: at most 64 axes and 2**59 elements, got 2 axes and 18446744073709551616 elements in "
        "[4294967296, 4294967296]",
    ),
    "unknown dtype": (file(with_a(dtype="F33")), "tensor 'a': no dtype is called 'F33'"),
    "no dtype": (file({"a": {"shape": [2], "data_offsets": [0, 8]}}), "tensor 'a': has no dtype"),
    "no object": (file({"a": 3}), "tensor 'a': wants an object, got 3"),
    "overlap": (file(beside([4, 12]), 12), "tensor 'b': its bytes begin at 4, those before it end at 8"),
    "hole": (file(beside([12, 20]), 20), "tensor 'b': its bytes begin at 12, those before it end at 8"),
    "shared": (file(beside([0, 8])), "tensor 'b': its bytes begin at 0, those before it end at 8"),
    "bytes after": (file(with_a(), 10), "the tensors cover 8 bytes of data, the file has 10"),
    "twice": (file(TWICE), "the header: the name 'a' stands twice in one object"),
    "metadata of numbers": (
        file({"__metadata__": {"x": 1}}, 0),
        "the header: __metadata__ holds strings, got 1 under 'x'",
    ),
    "metadata of nothing": (file({"__metadata__": 1}, 0), "the header: __metadata__ wants an object, got 1"),
    "half a number": (
        file(with_a(dtype="F4", shape=[3], data_offsets=[0, 1]), 1),
        "tensor 'a': F4 [3] has 12 bits, its data_offsets [0, 1] another number",
    ),
}
WELL_FORMED: dict[str, tuple[bytes, dict[str, list[int]]]] = {
    "plain": (file(with_a()), {"a": [2]}),
    "empty": (file({}, 0), {}),
    "no places": (file(with_a(shape=[0, 3], data_offsets=[0, 0]), 0), {"a": [0, 3]}),
    "rank 0": (file(with_a(shape=[], data_offsets=[0, 4]), 4), {"a": []}),
    "spaces after": (file(json.dumps(with_a()).encode() + b"     "), {"a": [2]}),
    "any order": (file({"b": A | {"data_offsets": [8, 16]}, "a": A}, 16), {"a": [2], "b": [2]}),
    "metadata": (file({"__metadata__": {"x": "1"}, "a": A}), {"a": [2]}),
}
OTHERS_ACCEPT = {"spaces before", "a line feed after", "twice"}
"""What version 0.8.0 of the safetensors library reads."""


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("read", [load_tensors, load])
def test_a_malformed_file_is_refused_and_named(name: str, read: Any, tmp_path: Path) -> None:
    content, message = MALFORMED[name]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError) as caught:
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert str(caught.value) == f"{path}: {message}"
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("name", MALFORMED)
def test_another_reader_refuses_it_too(name: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(MALFORMED[name][0])
    if name in OTHERS_ACCEPT:
        load_file(tmp_path / "x")
    else:
        with pytest.raises((SafetensorError, KeyError)):
            load_file(tmp_path / "x")


@pytest.mark.parametrize("name", WELL_FORMED)
def test_a_well_formed_file_is_read(name: str, tmp_path: Path) -> None:
    content, shapes = WELL_FORMED[name]
    (tmp_path / "x").write_bytes(content)
    found = load_tensors(tmp_path / "x")
    assert {tensor: list(found[tensor].shape) for tensor in found} == shapes
    assert {tensor: list(array.shape) for tensor, array in load_file(tmp_path / "x").items()} == shapes


def test_a_sparse_file_of_a_large_header_is_read_no_further(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with open(path, "wb") as sparse:
        sparse.write((2**40).to_bytes(8, "little"))
        sparse.truncate(2**30)
    with pytest.raises(CheckpointError) as caught:
        load_tensors(path)
    assert str(caught.value) == f"{path}: the header has {2**40} bytes, of at most 100000000; is it a safetensors file?"
