"""Checkpoints: tables as tensors by name or by position, and back, checked whole before anything is replaced.

A snapshot is a plain dict of tensors. `topos.save_tensors` writes one to a file, `topos.load_tensors` reads one, by
whomever it was written; a file whose names are others is renamed as any dict is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from topos.engine import State
from topos.errors import CheckpointError
from topos.graph import Field, Network, Parameters, Symbol
from topos.neural.module import Module
from topos.storage import TensorFile
from topos.tensor import Tensor

__all__ = ["Restored", "named_restore", "named_snapshot", "restore", "snapshot"]

Table = Parameters | State | Field
Tables = Table | Mapping[str, Table]
"""One table, or several by label (weights and moments), whose names then begin with their labels."""

Names = Module | Network | Mapping[str, Symbol] | Iterable[tuple[str, Symbol]]
"""What the entries of a table are called: a mapping (`named_parameters(module)`), pairs (`module.visit()`), a module
(what of it the table covers), or a network (everything that the table covers, a nameless node by its number)."""


class Restored(NamedTuple):
    """The tables as they were saved, and what did not fit: names that nobody saved, or wants, or of another shape."""

    table: Any
    missing: list[str]
    extra: list[str]
    mismatched: list[str]


class _Slot(NamedTuple):
    """An entry of a table: its paths, more than one where it is tied, and what it holds."""

    paths: list[str]
    label: str | None
    symbol: Symbol
    tensor: Tensor


def snapshot(tables: Tables) -> dict[str, Tensor]:
    """The entries of a table by their position: `"0"`, `"1"`, ... in recording order; absent ones have none."""
    return {slot.paths[0]: slot.tensor for slot in _slots(tables, None)}


def named_snapshot(tables: Tables, names: Names) -> dict[str, Tensor]:
    """The entries of a table by their names; a tied one once, under its first. What has no name is left out.

    Raises `KinshipError` for a symbol that the table does not cover, `CheckpointError` for a name that stands twice.
    """
    return {slot.paths[0]: slot.tensor for slot in _slots(tables, names)}


def restore(
    tables: Tables,
    saved: Mapping[str, Any],
    *,
    strict: bool = True,
    convert: bool = False,
    skip: Collection[str] = (),
) -> Restored:
    """A table like this one, with what `snapshot` answered: as `named_restore`, by position."""
    return _restored(tables, _slots(tables, None), saved, strict, convert, skip)


def named_restore(
    tables: Tables,
    names: Names,
    saved: Mapping[str, Any],
    *,
    strict: bool = True,
    convert: bool = False,
    skip: Collection[str] = (),
) -> Restored:
    """A table like this one, with the saved tensors in the places of their names; this one stays as it is.

    Every saved tensor needs a place, and every place a tensor, unless `strict` is off. Shapes must be equal, and
    elements too; `convert` rounds each number once. A mismatch is refused, strict or not, unless its name is one of
    `skip`: then the place keeps what it holds. A tied place takes any of its names; where several were saved, they must
    hold the same bits. Raises one `CheckpointError` that lists everything that does not fit.

    >>> from topos import Tape, checkpoint
    >>> network, weight = Tape.record(lambda tape: tape.parameter([1, 2], name="weight"))
    >>> saved = checkpoint.named_snapshot(network.parameters().scale(3), network)
    >>> checkpoint.named_restore(network.parameters(), network, saved).table.of(weight)
    Tensor([3., 6.], f32)
    """
    return _restored(tables, _slots(tables, names), saved, strict, convert, skip)


def _restored(
    tables: Tables, slots: list[_Slot], saved: Mapping[str, Any], strict: bool, convert: bool, skip: Collection[str]
) -> Restored:
    _expect_mapping(saved)
    if isinstance(skip, str):
        skip = (skip,)
    wanted = {path for slot in slots for path in slot.paths}
    extra = [path for path in saved if path not in wanted]
    missing, mismatched = [], {}
    found: dict[str | None, dict[Symbol, Tensor]] = {}
    for slot in slots:
        given = {path: Tensor(saved[path]) for path in slot.paths if path in saved}
        reasons = _reasons(slot, given, convert)
        mismatched.update(reasons)
        if not given:
            missing.append(slot)
        elif not reasons:
            held = slot.tensor.element
            tensor = next(iter(given.values()))
            found.setdefault(slot.label, {})[slot.symbol] = tensor.convert(held) if held is not None else tensor
    refused = {path: reason for path, reason in mismatched.items() if path not in skip}
    if refused or (strict and (missing or extra)):
        raise _error(saved, missing if strict else [], extra if strict else [], refused)
    filled = _filled(tables, found)
    return Restored(filled, [slot.paths[0] for slot in missing], extra, list(mismatched))


def _expect_mapping(saved: Any) -> None:
    if not isinstance(saved, Mapping):
        raise CheckpointError(f"restore: wants tensors by name, got {type(saved).__name__}")


def _reasons(slot: _Slot, given: Mapping[str, Tensor], convert: bool) -> dict[str, str]:
    """What does not fit of the tensors that were saved for one place, by name."""
    found = {}
    first = next(iter(given.items()), None)
    for path, tensor in given.items():
        assert first is not None
        if tensor.shape != slot.tensor.shape or (tensor.element is not slot.tensor.element and not convert):
            rounds = "; convert=True rounds it" if tensor.shape == slot.tensor.shape else ""
            found[path] = f"wants {_facts(slot.tensor)}, got {_facts(tensor)}{rounds}"
        elif tensor.element is not first[1].element or tensor.numpy().tobytes() != first[1].numpy().tobytes():
            found[path] = f"is tied to {first[0]}, and has other bits"
    return found


def _filled(tables: Tables, found: Mapping[str | None, Mapping[Symbol, Tensor]]) -> Any:
    if not isinstance(tables, Mapping):
        return tables.with_payloads(found.get(None, {}))
    return {label: table.with_payloads(found.get(label, {})) for label, table in tables.items()}


def _error(
    saved: Mapping[str, Any], missing: list[_Slot], extra: list[str], mismatched: Mapping[str, str]
) -> CheckpointError:
    rows = [("missing", " or ".join(slot.paths), _facts(slot.tensor)) for slot in missing]
    rows += [("extra", path, _saved_facts(saved, path)) for path in extra]
    rows += [("mismatched", path, reason) for path, reason in mismatched.items()]
    width = max(len(path) for _, path, _ in rows)
    count = "1 tensor does" if len(rows) == 1 else f"{len(rows)} tensors do"
    where = f"{saved.path}: " if isinstance(saved, TensorFile) else ""
    lines = [f"  {kind:10}  {path:{width}}  {facts}" for kind, path, facts in rows]
    return CheckpointError("\n".join([f"{where}restore: {count} not fit", *lines]))


def _facts(tensor: Tensor) -> str:
    return f"{tensor.shape} {tensor.element}"


def _saved_facts(saved: Mapping[str, Any], path: str) -> str:
    if isinstance(saved, TensorFile):  # of what nobody wants, nothing is read
        return f"{saved.shape(path)} {saved.dtype(path).lower()}"
    return _facts(Tensor(saved[path]))


def _slots(tables: Tables, names: Names | None) -> list[_Slot]:
    """The entries that have a name, in the order of the names, labels outermost; without names, every entry."""
    if not isinstance(tables, Mapping):
        return _of_table(None, tables, names)
    pairs = list(names) if names is not None and not isinstance(names, Module | Network | Mapping) else names
    slots = [slot for label, table in tables.items() for slot in _of_table(label, table, pairs)]
    taken: dict[str, _Slot] = {}
    for slot in slots:
        for path in slot.paths:
            first = taken.setdefault(path, slot)
            if first is not slot:
                facts = f"{first.symbol} of table {first.label!r} and for {slot.symbol} of table {slot.label!r}"
                raise CheckpointError(f"names: {path!r} stands for {facts}")
    return slots


def _of_table(label: str | None, table: Table, names: Names | None) -> list[_Slot]:
    if not isinstance(table, Parameters | State | Field):
        raise CheckpointError(f"checkpoint: wants a table, or tables by label, got {type(table).__name__}")
    if names is not None and not isinstance(names, Module | Network | Mapping | Iterable):
        raise CheckpointError(f"names: wants a module, a network or symbols by name, got {type(names).__name__}")
    held = dict(table)
    prefix = "" if label is None else f"{label}."
    slots: dict[Symbol, _Slot] = {}
    taken: dict[str, Symbol] = {}
    for path, symbol in _named(held, names):
        if taken.setdefault(path, symbol) != symbol:
            raise CheckpointError(f"names: {path!r} stands for {taken[path]} and for {symbol}")
        tensor = held[symbol] if symbol in held else table.of(symbol)  # which raises
        if tensor is not None:
            slots.setdefault(symbol, _Slot([], label, symbol, tensor)).paths.append(f"{prefix}{path}")
    return list(slots.values())


def _named(held: Mapping[Symbol, Any], names: Names | None) -> Iterable[tuple[str, Symbol]]:
    if names is None:
        return [(str(position), symbol) for position, symbol in enumerate(held)]
    if isinstance(names, Network):
        return [(node.name or str(node.symbol), node.symbol) for node in names.nodes() if node.symbol in held]
    if isinstance(names, Module):
        return [(path, symbol) for path, symbol in names.visit() if symbol in held]
    return names.items() if isinstance(names, Mapping) else names
