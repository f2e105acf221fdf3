"""Entries, as a file has them: what is read and carried, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topos.engine import BoundEntry, Entry, Numerics
from topos.errors import CheckpointError
from topos.graph import Network, Symbol
from topos.storage.text import Facts

Entries = Mapping[str, Entry | BoundEntry]


def entries_document(entries: Any, network: Network) -> dict[str, Any]:
    """Entries by label as JSON. Raises `CheckpointError` for one that asks for backends, which are of one machine."""
    if not isinstance(entries, Mapping) or not all(isinstance(name, str) for name in entries):
        raise CheckpointError(f"entries: wants entries by label, got {type(entries).__name__}")
    return {name: _document(name, entry, network) for name, entry in entries.items()}


def _document(name: str, entry: Any, network: Network) -> dict[str, Any]:
    entry = entry.entry if isinstance(entry, BoundEntry) else entry
    if not isinstance(entry, Entry):
        raise CheckpointError(f"entry {name!r}: wants an Entry, got {type(entry).__name__}")
    if entry.backends is not None:
        raise CheckpointError(f"entry {name!r}: asks for backends, which no file holds; ask for them after loading")
    BoundEntry.bind(network, entry)  # its symbols are the network's
    return {
        "roots": [symbol.index for symbol in entry.roots],
        "observe": [symbol.index for symbol in entry.observe],
        "carry": [[source.index, after.index] for source, after in entry.carry.items()],
        "backward": bool(entry.backward),
        "numerics": entry.numerics.value,
        "diagnose": bool(entry.diagnose),
    }


def entries_of(document: Any, network: Network) -> dict[str, BoundEntry]:
    """The entries of a file, bound to its network. Raises `CheckpointError`, or what binding raises."""
    if not isinstance(document, dict):
        raise CheckpointError(f"entries: wants an object, got {document!r:.40}")
    return {name: _entry(Facts(f"entry {name!r}", facts), network) for name, facts in document.items()}


def _entry(facts: Facts, network: Network) -> BoundEntry:
    family = network.spec.family
    roots, observe = ([Symbol(family, index) for index in facts.integers(name)] for name in ("roots", "observe"))
    pairs = facts.take("carry", list)
    if not all(isinstance(pair, list) and [type(index) for index in pair] == [int, int] for pair in pairs):
        raise CheckpointError(f"{facts.what}: carry wants pairs of nodes, got {pairs!r:.60}")
    carry = {Symbol(family, source): Symbol(family, after) for source, after in pairs}
    backward, numerics, diagnose = (
        facts.take("backward", bool),
        facts.take("numerics", str),
        facts.take("diagnose", bool),
    )
    facts.end()
    postures = {posture.value: posture for posture in Numerics}
    if numerics not in postures:
        raise CheckpointError(f"{facts.what}: no numerics are called {numerics!r}")
    entry = Entry(roots, observe, carry, backward, postures[numerics], diagnose)
    return BoundEntry.bind(network, entry)
