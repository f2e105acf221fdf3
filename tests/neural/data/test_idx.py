"""IDX files: what the format says is read, and what it does not say is refused by name."""

import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from topos import FeedError
from topos.neural.data import read_idx
from topos.testing import assert_same_bits

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def header(code: int, *shape: int) -> bytes:
    return bytes([0, 0, code, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


@pytest.fixture
def written(tmp_path: Path):
    def write(content: bytes, packed: bool = False) -> Path:
        file = tmp_path / ("t-idx" + (".gz" if packed else ""))
        file.write_bytes(gzip.compress(content) if packed else content)
        return file

    return write


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("code", CODES)
def test_every_type_is_read_in_the_order_of_the_machine(written, code: str, packed: bool) -> None:
    array = (np.arange(-30, 30).reshape(3, 4, 5) * (1 if code != "u1" else 4)).astype(code)
    file = written(header(CODES[code], 3, 4, 5) + array.astype(f">{code}").tobytes(), packed)
    found = read_idx(file)
    assert_same_bits(found, array)
    assert found.dtype.isnative
    found[0] = 1  # an array of the caller's own


def test_a_file_by_hand(written) -> None:
    content = bytes.fromhex("00 00 08 02  00 00 00 02  00 00 00 03  01 02 03 04 05 ff")
    assert read_idx(str(written(content))).tolist() == [[1, 2, 3], [4, 5, 255]]
    assert read_idx(written(header(0x0C) + struct.pack(">i", -7))).tolist() == -7


@pytest.mark.parametrize("shape", [(0,), (0, 28, 28), (3, 0)])
def test_nothing_is_read_of_no_numbers(written, shape: tuple[int, ...]) -> None:
    assert read_idx(written(header(0x08, *shape))).shape == shape


BIG = header(0x0E, 2**32 - 1, 2**32 - 1)
REFUSED = [
    (b"", "is no IDX file: it begins with nothing"),
    (b"\0\0\x08", "is no IDX file: it begins with 00 00 08"),
    (b"\x89PNG\r\n", "is no IDX file: it begins with 89 50 4e 47"),
    (header(0x0A, 1) + b"\0", "is no IDX file: it begins with 00 00 0a 01"),
    (header(0x08, 1, 2)[:-1], "ends inside its header, which promises 2 extents"),
    (header(0x08, 2, 3) + b"12345", "promises 6 bytes of numbers, [2, 3] of uint8, and holds 5"),
    (header(0x08, 2, 3) + b"1234567", "promises 6 bytes of numbers, [2, 3] of uint8, and holds more"),
    (BIG, f"promises {8 * (2**32 - 1) ** 2} bytes of numbers, [4294967295, 4294967295] of float64, and is too short"),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("content", "fact"), REFUSED)
def test_a_malformed_file_is_refused_by_name(written, content: bytes, fact: str, packed: bool) -> None:
    file = written(content, packed)
    with pytest.raises(FeedError) as caught:
        read_idx(file)
    if packed or "holds 5" not in fact:
        assert str(caught.value) == f"read_idx: {file} {fact}"


def test_a_promise_is_not_given_room_for(written) -> None:
    """A plain file of a few bytes, and a compressed one, that promise two gigabytes."""
    content = header(0x08, 2**31) + b"1"
    for packed in (False, True):
        file = written(content, packed)
        tracemalloc.start()
        with pytest.raises(FeedError):
            read_idx(file)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2**20


def test_a_shape_that_no_array_has_is_refused(written) -> None:
    file = written(header(0x08, *[1] * 255) + b"1")
    with pytest.raises(FeedError, match="has a shape that no array has: "):
        read_idx(file)
    file = written(header(0x08, 0, *[2**32 - 1] * 3))
    with pytest.raises(FeedError, match="has a shape that no array has: "):
        read_idx(file)


@pytest.mark.parametrize("cut", [12, 20, -9, -1])
def test_a_compressed_file_that_is_cut_or_damaged_is_refused(written, cut: int) -> None:
    file = written(header(0x08, 1000) + np.arange(1000, dtype=np.uint32).astype(np.uint8).tobytes(), packed=True)
    whole = file.read_bytes()
    file.write_bytes(whole[:cut])
    with pytest.raises(FeedError, match=f"^read_idx: {file} cannot be decompressed: "):
        read_idx(file)
    file.write_bytes(whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:])  # the checksum
    with pytest.raises(FeedError, match=f"^read_idx: {file} cannot be decompressed: "):
        read_idx(file)


def test_a_file_that_is_not_there_is_pythons_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_idx(tmp_path / "none")
