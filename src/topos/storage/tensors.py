"""Tensors by name in a safetensors file, for exchange with others."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from topos.element import Element, bf16, f32, f64
from topos.element.element import Array
from topos.errors import CheckpointError, ElementError, restated
from topos.shape import Shape
from topos.storage.dtypes import DTYPES, little
from topos.storage.header import Header, read_header
from topos.storage.writing import write
from topos.tensor import Tensor
from topos.tensor.memory import owned

Path = str | os.PathLike[str]

_ELEMENTS = {"F32": f32, "F64": f64, "BF16": bf16}


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Puts the file's name before what an error inside the block says."""
    try:
        yield
    except CheckpointError as error:
        raise restated(error, CheckpointError, f"{os.fspath(path)}: {error}") from None


class TensorFile(Mapping[str, Tensor]):
    """The tensors of an open safetensors file by name: a read-only mapping, each read when it is asked for.

    F32, F64 and BF16 are tensors of these elements over the file's own memory map; numbers of the other dtypes become
    f32, each of which must be exact. `path` and `metadata` are the file's; `shape` and `dtype` say what it holds, and
    read no data.
    """

    def __init__(self, path: Path, *, mapped: bool = True) -> None:
        self.path = os.fspath(path)
        self._mapped = mapped
        with naming(path), open(path, "rb") as file:
            self._header: Header = read_header(file, os.fstat(file.fileno()).st_size)
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.metadata = self._header.metadata

    def __getitem__(self, name: str) -> Tensor:
        record = self._header.records[name]
        array = self.array(name)
        element = _ELEMENTS.get(record.code)
        if element is not None:
            return self.held(array, element)
        try:
            return Tensor(array, f32)
        except ElementError as error:
            raise restated(error, CheckpointError, f"{self.path}: tensor {name!r}: {error}") from None

    def held(self, array: Array, element: Element) -> Tensor:
        """An array of the file, of an element's dtype, as a tensor."""
        aligned = array.flags.aligned
        return Tensor.of(array if self._mapped and aligned else owned(np.array(array), False), element)

    def array(self, name: str) -> Array:
        """A tensor's numbers as a read-only NumPy array of the dtype that the file has them in."""
        record = self._header.records[name]
        dtype = DTYPES.get(record.code)
        if dtype is None:
            raise CheckpointError(f"{self.path}: tensor {name!r}: dtype {record.code} has no reading")
        start = self._header.begin + record.start
        array: Array = np.frombuffer(self._memory, dtype, record.shape.volume, start if record.shape.volume else 0)
        return little(array).reshape(record.shape)

    def shape(self, name: str) -> Shape:
        """A tensor's shape."""
        return self._header.records[name].shape

    def dtype(self, name: str) -> str:
        """A tensor's dtype as the format calls it: `F32`."""
        return self._header.records[name].code

    def __contains__(self, name: object) -> bool:
        return name in self._header.records

    def __iter__(self) -> Iterator[str]:
        return iter(self._header.records)

    def __len__(self) -> int:
        return len(self._header.records)

    def describe(self) -> str:
        """A line per tensor: its name, dtype and shape."""
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:{width}}  {self.dtype(name):5} {self.shape(name)}" for name in self)

    def __repr__(self) -> str:
        return f"TensorFile({self.path!r}, {len(self)} tensors)"


def save_tensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors by name, and strings by name, to a safetensors file, which other libraries read.

    A payload is a `Tensor` or a NumPy array, of any strides, whose dtype the format has. The file is written beside
    `path` and then takes its place: a process that is killed on the way leaves the file that was there. Raises
    `CheckpointError` that names file and tensor for a payload that has no place in the format.

    >>> import tempfile
    >>> from topos import Tensor, load_tensors, save_tensors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_tensors(f"{folder}/w.safetensors", {"w": Tensor([[1, 2], [3, 4]]).transpose()})
    ...     load_tensors(f"{folder}/w.safetensors")["w"]
    Tensor([[1., 3.],
            [2., 4.]], f32)
    """
    with naming(path):
        if not isinstance(tensors, Mapping) or not isinstance(metadata, Mapping | None):
            kinds = f"{type(tensors).__name__} and {type(metadata).__name__}"
            raise CheckpointError(f"save_tensors: wants tensors by name and strings by name, got {kinds}")
        write(path, {_name(name): _array(name, payload) for name, payload in tensors.items()}, metadata or {})


def load_tensors(path: Path, *, mapped: bool = True) -> TensorFile:
    """The tensors of a safetensors file, by whomever it was written.

    The whole header is checked at once: a malformed file is refused, file and tensor named, before room for any data
    is made. Tensors share a memory map of the file, also when another file has taken its place, and cost nothing until
    they are read; without `mapped`, each is copied when it is asked for. Raises `CheckpointError`, and `OSError` where
    there is no file.
    """
    return TensorFile(path, mapped=mapped)


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise CheckpointError(f"a tensor's name is a string, got {name!r:.40}")
    return name


def _array(name: str, payload: Any) -> Array:
    if isinstance(payload, Tensor):
        if payload.ids is not None:
            raise CheckpointError(f"tensor {name!r}: a selection has no numbers of its own")
        return payload.numpy()
    if not isinstance(payload, np.ndarray):
        raise CheckpointError(f"tensor {name!r}: wants a Tensor or a NumPy array, got {type(payload).__name__}")
    return np.asarray(payload)
