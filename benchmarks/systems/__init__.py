"""One module per system: its reading of the models' vocabulary, and how it runs a step.

Each has a class `System` with `version`, `threads`, `load`, `step` and `magnitude`; the vocabulary is its methods.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple


class Peer(NamedTuple):
    """Where a system is: the library it needs, its module here, and what its constructor is given."""

    library: str
    module: str
    options: dict[str, Any]


SYSTEMS = {
    "topos": Peer("topos", "with_topos", {}),
    "torch": Peer("torch", "with_torch", {"compiled": False}),
    "torch.compile": Peer("torch", "with_torch", {"compiled": True}),
    "jax": Peer("jax", "with_jax", {}),
    "tinygrad": Peer("tinygrad", "with_tinygrad", {}),
    "numpy": Peer("numpy", "with_numpy", {}),
}


def installed() -> list[str]:
    """The systems whose library is here."""
    return [name for name, peer in SYSTEMS.items() if find_spec(peer.library) is not None]


def system(name: str) -> Any:
    """A system, ready to build steps; imports its library."""
    peer = SYSTEMS[name]
    return import_module(f"{__name__}.{peer.module}").System(**peer.options)
