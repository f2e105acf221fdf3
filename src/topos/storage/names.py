"""Names, as a file has them: any nesting of symbols, whose classes are plain ones when it is read."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from topos.errors import CheckpointError
from topos.graph import Adjoints, Network, Symbol
from topos.storage.text import Facts

MOST_BITS = 4096
"""Of an integer among names: JSON has no bound, its readers do."""


def names_document(part: Any, network: Network, what: str = "names") -> Any:
    """A nesting of symbols as JSON: what JSON does not have is an object that says what it is.

    Tuples (named ones too), lists and dicts, `Adjoints`, dataclasses (a dict by field) and modules (a dict of `visit`)
    may hold symbols, texts, numbers, booleans and `None`. Raises `CheckpointError` that says where anything else is.
    """
    if isinstance(part, Symbol):
        return {"symbol": network.spec.index_of(part, what, len(network))}
    if part is None or isinstance(part, bool | int | str):
        return _plain(part, what)
    if isinstance(part, float):
        return float(part) if math.isfinite(part) else {"float": repr(part)}
    if isinstance(part, Adjoints):
        wrt = [names_document(pair, network, f"{what}: of") for pair in part]
        return {"adjoints": wrt, "target": names_document(part.target, network, f"{what}: target")}
    if isinstance(part, tuple | list):
        kind = "tuple" if isinstance(part, tuple) else "list"
        return {kind: [names_document(item, network, f"{what}[{at}]") for at, item in enumerate(part)]}
    return {"dict": _pairs(_mapping(part, what), network, what)}


def _plain(part: Any, what: str) -> Any:
    if isinstance(part, int) and part.bit_length() > MOST_BITS:
        raise CheckpointError(f"{what}: an integer of {part.bit_length()} bits, of at most {MOST_BITS}")
    return part


def _mapping(part: Any, what: str) -> Mapping[Any, Any]:
    if isinstance(part, Mapping):
        return part
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    visit = getattr(part, "visit", None)
    if callable(visit) and not isinstance(part, type):
        return _by_path(visit(), what)
    hint = "; detach it before sealing" if hasattr(part, "symbol") else ""
    raise CheckpointError(f"{what}: wants symbols, numbers or texts, got {type(part).__name__}{hint}")


def _by_path(pairs: Iterable[tuple[str, Any]], what: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, symbol in pairs:
        if found.setdefault(path, symbol) != symbol:
            raise CheckpointError(f"{what}: two symbols of the module have the path {path}")
    return found


def _pairs(part: Mapping[Any, Any], network: Network, what: str) -> list[list[Any]]:
    return [
        [names_document(key, network, f"{what}: a key"), names_document(value, network, f"{what}[{key!r}]")]
        for key, value in part.items()
    ]


def names_of(document: Any, network: Network) -> Any:
    """The nesting that a document stands for. Raises `CheckpointError` for a container that is not known."""
    if isinstance(document, list):
        raise CheckpointError(f"names: wants an object that says its kind, got {document!r:.40}")
    if not isinstance(document, dict):
        return document
    facts = Facts("names", document)
    kind = next(iter(document), "")
    if kind not in _READ:
        raise CheckpointError(f"names: has an unknown fact {kind!r}")
    answer = _READ[kind](facts, network)
    facts.end()
    return answer


def _symbol(facts: Facts, network: Network) -> Symbol:
    index = facts.take("symbol", int)
    if not 0 <= index < len(network):
        raise CheckpointError(f"names: symbol %{index} is not one of the network's {len(network)} nodes")
    return Symbol(network.spec.family, index)


def _float(facts: Facts, network: Network) -> float:
    text = facts.take("float", str)
    if text not in ("inf", "-inf", "nan"):
        raise CheckpointError(f"names: a float cannot be {text!r:.40}")
    return float(text)


def _adjoints(facts: Facts, network: Network) -> Adjoints:
    pairs = [names_of(pair, network) for pair in facts.take("adjoints", list)]
    target = names_of(facts.take("target", dict), network)
    symbols = [target, *(symbol for pair in pairs for symbol in (pair if isinstance(pair, tuple) else (None,)))]
    if not all(isinstance(symbol, Symbol) for symbol in symbols) or any(len(pair) != 2 for pair in pairs):
        raise CheckpointError("names: adjoints want a target and pairs of symbols")
    return Adjoints(target, pairs)


def _dict(facts: Facts, network: Network) -> dict[Any, Any]:
    pairs = facts.take("dict", list)
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise CheckpointError(f"names: a dict wants pairs, got {pairs!r:.40}")
    try:
        return {names_of(key, network): names_of(value, network) for key, value in pairs}
    except TypeError as error:
        raise CheckpointError(f"names: {error}") from None


_READ: dict[str, Any] = {
    "symbol": _symbol,
    "float": _float,
    "adjoints": _adjoints,
    "tuple": lambda facts, network: tuple([names_of(part, network) for part in facts.take("tuple", list)]),
    "list": lambda facts, network: [names_of(part, network) for part in facts.take("list", list)],
    "dict": _dict,
}
