"""Writing a safetensors file: the same bytes for the same tensors, and numbers where kernels like to read them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from topos.element.element import Array
from topos.errors import CheckpointError
from topos.storage.atomic import replacing
from topos.storage.dtypes import code_of, little, written
from topos.storage.header import LONGEST, METADATA
from topos.storage.text import spelled
from topos.tensor.memory import LINE


def write(path: str | os.PathLike[str], arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Replaces a file by one that holds these arrays, of any strides and order of bytes, and these strings.

    Data begins on a cache line, and so does every tensor that fills whole ones; others lie behind them, widest numbers
    first. Raises `CheckpointError` that names the tensor for what the format does not have; then no file is touched.
    """
    held = {name: written(array, name) for name, array in arrays.items()}
    order = sorted(held, key=lambda name: (held[name].nbytes % LINE != 0, -held[name].dtype.itemsize, name))
    header = _header(held, order, metadata)
    with replacing(path) as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for name in order:
            file.write(_bytes(held[name]))


def _header(arrays: Mapping[str, Array], order: list[str], metadata: Mapping[str, str]) -> bytes:
    document: dict[str, Any] = {METADATA: _checked(metadata)} if metadata else {}
    end = 0
    for name in order:
        array = arrays[name]
        if name == METADATA:
            raise CheckpointError(f"tensor {name!r}: the format keeps this name for itself")
        facts = {"dtype": code_of(array.dtype), "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        document[name], end = facts, end + array.nbytes
    try:
        text = spelled(document, "the header").encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(f"a name is no text: {error.reason}") from None
    padding = -(8 + len(text)) % LINE
    if len(text) + padding > LONGEST:
        raise CheckpointError(f"the header would have {len(text) + padding} bytes, of at most {LONGEST}")
    return text + b" " * padding


def _checked(metadata: Mapping[str, str]) -> dict[str, str]:
    for name, value in metadata.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise CheckpointError(f"metadata: wants strings by strings, got {value!r:.40} under {name!r:.40}")
    return dict(sorted(metadata.items()))


def _bytes(array: Array) -> memoryview:
    """The numbers in row-major order, copied only where they do not lie so."""
    return little(np.asarray(array, order="C")).reshape(-1).view(np.uint8).data
