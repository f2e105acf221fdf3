"""Tensors by name: what is written is what is read, by us and by others, in bits."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import topos
from topos import CheckpointError, Tensor, bf16, f32, f64, load_tensors, save_tensors
from topos.storage import writing
from topos.storage.dtypes import BITS, DTYPES
from topos.testing import assert_same_bits
from topos.testing.strategies import arrays, views

GRID = np.array([[0, 1, 2], [3, 4, 5]], np.float32)
VIEWS: dict[str, np.ndarray] = {
    "Fortran order": np.asfortranarray(GRID),
    "transposed": GRID.T,
    "every second column": GRID[:, ::2],
    "reversed": GRID[::-1, ::-1],
    "broadcast": np.broadcast_to(np.array([1, 2], np.int32), (4, 2)),
    "big-endian": GRID.astype(">f4"),
    "big-endian and transposed": GRID.astype(">f8").T,
    "rank 0": np.array(3.5),
    "zero extents": np.zeros((0, 3), np.float32),
    "booleans": np.array([True, False]),
    "bfloat16": GRID.astype(ml_dtypes.bfloat16).T,
    "complex": np.array([1 + 2j], np.complex64),
}


def round_trip(path: Path, tensors: Any) -> topos.TensorFile:
    save_tensors(path, tensors)
    return load_tensors(path)


@pytest.mark.parametrize("name", VIEWS)
def test_an_array_of_any_strides_and_order_of_bytes_loads_back_equal(name: str, tmp_path: Path) -> None:
    array = VIEWS[name]
    held = round_trip(tmp_path / "x", {"a": array}).array("a")
    native = array.astype(array.dtype.newbyteorder("=")) if array.dtype.byteorder == ">" else array
    assert held.dtype == native.dtype
    assert held.shape == array.shape
    assert held.tobytes() == native.tobytes()
    others = load_file(tmp_path / "x")["a"]
    assert others.dtype == native.dtype
    assert others.shape == array.shape
    assert others.tobytes() == native.tobytes()


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
@settings(max_examples=25)
@given(data=st.data())
def test_tensors_come_back_in_bits(element: topos.Element, data: st.DataObject, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("drawn") / "x"
    drawn = data.draw(st.lists(st.one_of(arrays(element), views(element)), max_size=4))
    tensors = {str(position): Tensor.of(array, element) for position, array in enumerate(drawn)}
    found = round_trip(path, tensors)
    assert_same_bits({name: found[name] for name in found}, tensors | {})
    copied = load_tensors(path, mapped=False)
    assert_same_bits({name: copied[name] for name in copied}, tensors | {})
    assert {name: array.tobytes() for name, array in load_file(path).items()} == {
        name: tensor.numpy().tobytes() for name, tensor in tensors.items()
    }


def test_a_file_of_another_writer_is_read(tmp_path: Path) -> None:
    written = {"w": GRID, "half": np.array([0.1, 2], np.float16), "ids": np.array([3, 4]), "b": np.array(1.0)}
    save_file(written, tmp_path / "x", {"from": "elsewhere"})
    found = load_tensors(tmp_path / "x")
    assert found.metadata == {"from": "elsewhere"}
    assert set(found) == set(written)
    assert [found[name].element for name in ("w", "half", "ids", "b")] == [f32, f32, f32, f64]
    assert found["half"].numpy().tobytes() == written["half"].astype(np.float32).tobytes()
    assert found["ids"].tolist() == [3.0, 4.0]
    assert found.array("ids").dtype == np.int64
    assert found.describe().splitlines()[-1].split() in ([["half", "F16", "[2]"], ["w", "F32", "[2, 3]"]])


def test_numbers_that_are_not_exact_or_have_no_reading_are_refused_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "x"
    found = round_trip(path, {"ids": np.array([2**24 + 1]), "z": np.zeros(2, np.complex64)})
    with pytest.raises(CheckpointError) as caught:
        found["ids"]
    exact = "f32: cannot hold the integer 16777217 exactly; f32 has 24 bits"
    assert str(caught.value) == f"{path}: tensor 'ids': {exact}"
    with pytest.raises(CheckpointError) as caught:
        found["z"]
    assert str(caught.value) == f"{path}: tensor 'z': f32: cannot hold values of dtype complex64"
    header = b'{"e":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(2))
    assert load_tensors(path).dtype("e") == "F8_E4M3"
    with pytest.raises(CheckpointError) as caught:
        load_tensors(path)["e"]
    assert str(caught.value) == f"{path}: tensor 'e': dtype F8_E4M3 has no reading"
    assert BITS.keys() > DTYPES.keys()


def test_a_name_that_the_file_does_not_have_is_a_key_error(tmp_path: Path) -> None:
    found = round_trip(tmp_path / "x", {"a": GRID})
    assert "a" in found
    assert "b" not in found
    assert len(found) == 1
    with pytest.raises(KeyError, match="^'b'$"):
        found["b"]
    assert repr(found) == f"TensorFile({str(tmp_path / 'x')!r}, 1 tensors)"


def test_tensors_share_the_memory_map_and_outlive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    found = round_trip(path, {"a": np.arange(1024, dtype=np.float32)})
    first, second = found["a"].numpy(), found["a"].numpy()
    assert np.shares_memory(first, second)
    assert not first.flags.writeable
    assert first.ctypes.data % 64 == 0
    save_tensors(path, {"a": np.zeros(1024, np.float32)})
    assert first[3] == 3.0
    os.unlink(path)
    assert second[1023] == 1023.0
    path.touch()
    copied = load_tensors_again(tmp_path)
    assert not np.shares_memory(copied["a"].numpy(), copied["a"].numpy())


def load_tensors_again(folder: Path) -> topos.TensorFile:
    save_tensors(folder / "y", {"a": GRID})
    return load_tensors(folder / "y", mapped=False)


def test_a_tensor_that_does_not_lie_on_its_boundary_is_copied(tmp_path: Path) -> None:
    header = (
        b'{"o":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}}'
    )
    path = tmp_path / "x"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\x07" + np.array([1.5, -2], np.float32).tobytes())
    found = load_tensors(path)["a"]
    assert found.tolist() == [1.5, -2.0]
    assert found.numpy().flags.aligned
    assert (found + found).tolist() == [3.0, -4.0]


def test_the_same_tensors_make_the_same_bytes(tmp_path: Path) -> None:
    tensors = {"b": GRID, "a": np.array(1.0), "c": np.zeros(3, np.int8), "line": np.zeros(16, np.float32)}
    facts = {"z": "1", "a": "ü"}
    save_tensors(tmp_path / "x", tensors, facts)
    save_tensors(tmp_path / "y", dict(reversed(tensors.items())), dict(reversed(facts.items())))
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()
    assert list(load_tensors(tmp_path / "x")) == ["line", "a", "b", "c"]
    assert load_tensors(tmp_path / "x").metadata == facts


class Wide:
    """More of a header than the format allows."""

    text = "x" * 100_000_000


WITHOUT_A_PLACE: dict[str, tuple[Any, Any, str]] = {
    "a selection": ({"s": Tensor.selection([1], 3)}, {}, "tensor 's': a selection has no numbers of its own"),
    "a list": ({"s": [1.0]}, {}, "tensor 's': wants a Tensor or a NumPy array, got list"),
    "a number for a name": ({3: GRID}, {}, "a tensor's name is a string, got 3"),
    "objects": ({"s": np.array([None])}, {}, "tensor 's': the format has no dtype object"),
    "long doubles": ({"s": np.zeros(1, "S3")}, {}, "tensor 's': the format has no dtype |S3"),
    "the metadata": ({"__metadata__": GRID}, {}, "tensor '__metadata__': the format keeps this name for itself"),
    "a surrogate": ({"\ud800": GRID}, {}, "a name is no text: surrogates not allowed"),
    "a number in the metadata": ({"s": GRID}, {"step": 3}, "metadata: wants strings by strings, got 3 under 'step'"),
    "a long header": ({}, {"x": Wide.text}, "the header would have 100000056 bytes, of at most 100000000"),
}


@pytest.mark.parametrize("name", WITHOUT_A_PLACE)
def test_what_has_no_place_in_the_format_is_refused_and_the_old_file_left(name: str, tmp_path: Path) -> None:
    tensors, metadata, message = WITHOUT_A_PLACE[name]
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(CheckpointError) as caught:
        save_tensors(path, tensors, metadata)
    assert str(caught.value) == f"{path}: {message}"
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


def test_an_error_on_the_way_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    save_tensors(path, {"a": GRID})
    before = path.read_bytes()

    def full(array: np.ndarray) -> memoryview:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        save_tensors(path, {"a": GRID + 1})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x"]


def test_a_folder_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        save_tensors(tmp_path / "nowhere" / "x", {"a": GRID})
    assert caught.value.filename == str(tmp_path.resolve() / "nowhere")
    with pytest.raises(FileNotFoundError):
        load_tensors(tmp_path / "nowhere")


@pytest.mark.skipif(os.name != "posix", reason="modes and links of POSIX")
def test_the_new_file_has_the_mode_of_the_old_one_and_stands_where_a_link_leads(tmp_path: Path) -> None:
    path, link = tmp_path / "x", tmp_path / "link"
    umask = os.umask(0o022)
    try:
        save_tensors(path, {"a": GRID})
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    finally:
        os.umask(umask)
    path.chmod(0o600)
    link.symlink_to(path)
    save_tensors(link, {"b": GRID})
    assert link.is_symlink()
    assert list(load_tensors(path)) == ["b"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_importing_topos_reads_no_json_and_no_safetensors() -> None:
    code = "import sys, topos; print(sorted({'json', 'safetensors', 'mmap'} & set(sys.modules)))"
    plain = subprocess.run(
        [sys.executable, "-c", "import sys, numpy, ml_dtypes; print('json' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "safetensors" not in answer
    assert ("json" in answer) <= (plain == "True\n")


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, error in (("pipe", OSError), ("folder", IsADirectoryError), ("none/file", FileNotFoundError)):
        (tmp_path / "folder").mkdir(exist_ok=True)
        with pytest.raises(error) as caught:
            save_tensors(tmp_path / name, {"a": np.zeros(2)})
        assert caught.value.filename == str(tmp_path / ("none" if name == "none/file" else name))
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]


def test_a_path_of_bytes(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "x")
    save_tensors(path, {"a": np.zeros(2)})  # type: ignore[arg-type]
    assert list(load_tensors(path)) == ["a"]  # type: ignore[arg-type]


@pytest.mark.parametrize("tensors", [None, [1], "x"])
def test_tensors_without_names(tensors: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="save_tensors: wants tensors by name and strings by name, got"):
        save_tensors(tmp_path / "x", tensors)
    assert not list(tmp_path.iterdir())
