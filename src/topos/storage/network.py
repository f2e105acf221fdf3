"""A network in a file: its spec as versioned JSON in the header, its payloads as the tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topos.element import Element
from topos.engine import BoundEntry
from topos.errors import CheckpointError, ToposError, restated
from topos.graph import Network
from topos.records import NamedTuple
from topos.storage.elements import NamedElements, given_elements
from topos.storage.entries import Entries, entries_document, entries_of
from topos.storage.names import names_document, names_of
from topos.storage.nodes import Reader, node_document
from topos.storage.opcodes import named_element
from topos.storage.payloads import Found, Stored
from topos.storage.places import Lines, places_of
from topos.storage.tables import Tables, tables_document, tables_of
from topos.storage.tensors import Path, TensorFile, naming
from topos.storage.text import Facts, parsed, spelled
from topos.storage.writing import write

VERSION = 1
"""Of the document. A later one goes on reading this one, and runs what it says to the same bits."""

DOCUMENT = "topos"
"""The name of the document in the metadata of the file."""


class Loaded(NamedTuple):
    """What a file of a network holds: the network, its table or tables, its entries by label, bound, and its names."""

    network: Network
    parameters: Any
    entries: dict[str, BoundEntry]
    names: Any


def save(
    path: Path,
    network: Network,
    parameters: Tables | None = None,
    entries: Entries | None = None,
    names: Any = None,
    *,
    lines: bool = False,
) -> None:
    """Writes a network, and what is used with it, to one safetensors file that any later version runs to the same bits.

    `parameters` is a table of the network, `Parameters` or a `State`, or several by label (weights and moments);
    `entries` are entries by label; `names` is any nesting of symbols, as `detach` answers it. What was recorded is
    stored as it was: a number that fills a tensor once, a selection as its ids, a view in row-major order. `lines`
    keeps the lines of the program that recorded it. The file takes the place of one at `path` whole or not at all.

    Raises `CheckpointError` for what no file holds: backends, elements of one name, live values.

    >>> import tempfile
    >>> from topos import Tape, load, save
    >>> network, loss = Tape.record(lambda tape: (tape.parameter([1, 2], name="w") * 2).sum())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/loss.safetensors", network, names={"loss": loss})
    ...     again = load(f"{folder}/loss.safetensors")
    >>> again.network.entry(again.names["loss"]).interpret(again.parameters).of(again.names)
    {'loss': Tensor(6., f32)}
    """
    with naming(path):
        document, stored = _document(network, parameters, {} if entries is None else entries, names, lines)
        write(path, stored.arrays, {DOCUMENT: spelled(document, "the spec")})


def load(path: Path, *, elements: Mapping[str, Element] | None = None, mapped: bool = True) -> Loaded:
    """What `save` wrote: a network, its table (the initials where none was given), entries and names.

    Nothing in a file is run. `elements` are the user's, by the names that the file has for them. Large payloads share a
    memory map of the file; without `mapped` they are copied, and a plan that is run again keeps them packed. Named
    tuples come back as tuples, dataclasses and modules as dicts. Raises `CheckpointError` that names the file, and the
    node or tensor, for a spec of another version, an unknown instruction or fact, and whatever the rules refuse.
    """
    file = TensorFile(path, mapped=mapped)
    try:
        return _loaded(file, {} if elements is None else elements)
    except ToposError as error:
        raise restated(error, CheckpointError, f"{file.path}: {error}") from None
    except RecursionError:
        raise CheckpointError(f"{file.path}: the names are nested too deeply") from None


def _document(
    network: Network, parameters: Any, entries: Any, names: Any, with_lines: bool
) -> tuple[dict[str, Any], Stored]:
    if not isinstance(network, Network):
        hint = "; seal it: tape.into_network()" if hasattr(network, "into_network") else ""
        raise CheckpointError(f"save: wants a Network, got {type(network).__name__}{hint}")
    spec, stored, elements, lines = network.spec, Stored(), NamedElements(), Lines() if with_lines else None
    common = elements.name(spec.element)
    nodes = [node_document(spec, index, stored, elements, lines) for index in range(len(network))]
    aliases = {name: index for name, index in spec.by_name.items() if spec.names.get(index) != name}
    document = {
        "version": VERSION,
        "element": common,
        "elements": elements.document(),
        "nodes": nodes,
        "aliases": aliases,
        "places": lines.document if lines is not None else [],
        "parameters": tables_document(parameters, network, stored),
        "entries": entries_document(entries, network),
        "names": _named(names, network),
    }
    return {fact: value for fact, value in document.items() if value not in ({}, [], None)}, stored


def _named(names: Any, network: Network) -> Any:
    try:
        return names_document(names, network)
    except RecursionError:
        raise CheckpointError("names: are nested too deeply") from None


def _loaded(file: TensorFile, given: Mapping[str, Element]) -> Loaded:
    text = file.metadata.get(DOCUMENT)
    if text is None:
        raise CheckpointError("holds no network, only tensors; see load_tensors")
    facts = Facts("the spec", parsed(text, "the spec"))
    version = facts.take("version", int)
    if version != VERSION:
        raise CheckpointError(f"the spec is of version {version}; this topos reads version {VERSION}")
    elements, found = given_elements(facts.take("elements", dict, {}), given), Found(file)
    common = named_element(facts, facts.take("element", str), elements)
    reader = Reader(common, elements, found, places_of(facts.take("places", list, [])))
    for node in facts.take("nodes", list, []):
        reader.record(node)
    network = reader.network()
    _alias(network, facts.take("aliases", dict, {}))
    parameters = tables_of(facts.take("parameters", dict, None), network, found)
    entries = entries_of(facts.take("entries", dict, {}), network)
    names = names_of(facts.take("names", object, None), network)
    facts.end()
    return Loaded(network, parameters, entries, names)


def _alias(network: Network, aliases: dict[str, Any]) -> None:
    """The former names of nodes that were sealed under them, which still find these."""
    spec = network.spec
    for name, index in aliases.items():
        if type(index) is not int or not 0 <= index < len(network):
            raise CheckpointError(f"aliases: {name!r} names {index!r:.40}, which is no node")
        spec.check_name(name)
        spec.by_name[name] = index
