"""How a spec prints: one line per node, in columns that are part of the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from topos.graph.spec import Row, Spec
from topos.op import Input, Parameter


def column(text: str, width: int) -> str:
    """Padded to the width; a text that fills it is followed by two spaces."""
    return text.ljust(width) if len(text) < width else text + "  "


def node_lines(
    spec: Spec,
    indices: Iterable[int],
    *,
    names: bool = False,
    lines: bool = False,
    status: Callable[[int], str] | None = None,
) -> list[str]:
    """A line per row: index, instruction, operands and attributes, shape, and its status in a plan."""
    return [_line(index, spec.rows[index], spec, status(index) if status else None, names, lines) for index in indices]


def _line(index: int, row: Row, spec: Spec, status: str | None, names: bool, lines: bool) -> str:
    operands = ", ".join(map(str, row.operands))
    attributes = " ".join(f"{attribute}={fact}" for attribute, fact in row.opcode.facts())
    shape = spec.extents(index)
    text = f"{index:>4}  {column(row.opcode.name, 15)}"
    text += column("  ".join(part for part in (operands, attributes) if part), 19)
    extra = [status] if status is not None else []
    if names:
        extra.append(spec.names.get(index, ""))
    if lines:
        extra.append(spec.written(index))
    shown = "  ".join(part for part in extra if part)
    return f"{text}{column(shape, 13)}{shown}" if shown else f"{text}{shape}"


def counted(count: int, noun: str) -> str:
    """`1 input`, `2 inputs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def described_spec(spec: Spec, length: int, kind: str, names: bool, lines: bool) -> str:
    """The rows of a tape or a network and, last, how many there are of what."""
    kinds = [type(row.opcode) for row in spec.rows[:length]]
    summary = (
        f"{kind}: {counted(length, 'node')}, {counted(kinds.count(Parameter), 'parameter')}, "
        f"{counted(kinds.count(Input), 'input')}"
    )
    return "\n".join([*node_lines(spec, range(length), names=names, lines=lines), summary])
