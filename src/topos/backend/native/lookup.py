"""Entries of the constant tables that the elementary functions look things up in."""

from __future__ import annotations

from topos.backend.native.registers import Operand, constant, literal, splat, vector, zeros
from topos.backend.native.target import Target
from topos.backend.native.text import Function
from topos.element.vocabulary import Table

EIGHT = 8
"""Lanes of binary64 in the longest registers."""


def entries(function: Function, target: Target, table: Table, index: Operand) -> Operand:
    """The entries at lanes of 64-bit indices, modulo the table's length.

    Long registers gather. Elsewhere entries are loaded one by one: where those processors have a gather, it is often
    slower.
    """
    count = len(table.values)
    function.need(table_definition(table))
    inside = function.let(index.type, f"and {index}, {constant(index.type, count - 1).text}")
    longest = target.vector_bytes == 8 * EIGHT and index.type.lanes % EIGHT == 0
    return _gathered(function, table, inside) if longest else _loaded(function, table, inside)


def _gathered(function: Function, table: Table, index: Operand) -> Operand:
    item, pointers = index.type.of("double"), index.type.of("ptr")
    places = function.let(pointers, f"getelementptr inbounds double, ptr @{table.name}, {index}")
    every = splat(index.type.of("i1"), "true")
    name = f"masked.gather.{item.suffix}.{pointers.suffix}"
    return function.call(item, name, Operand(pointers, f"align 8 {places.text}"), every, zeros(item))


def _loaded(function: Function, table: Table, index: Operand) -> Operand:
    item, one = index.type.of("double"), vector("double", 1)

    def entry(at: str) -> Operand:
        place = function.let_text(f"getelementptr inbounds double, ptr @{table.name}, i64 {at}")
        return function.let(one, f"load double, ptr {place}, align 8")

    if index.type.lanes == 1:
        return entry(index.text)
    found = Operand(item, "poison")
    for lane in range(index.type.lanes):
        value = entry(function.let_text(f"extractelement {index}, i64 {lane}"))
        found = function.let(item, f"insertelement {found}, {value}, i64 {lane}")
    return found


_definitions: dict[str, str] = {}


def table_definition(table: Table) -> str:
    """A table as an internal constant of the module, named after it. One string per table, made on first use."""
    text = _definitions.get(table.name)
    if text is None:
        numbers = ", ".join(f"double {literal('double', value)}" for value in table.values)
        kind = f"[{len(table.values)} x double]"
        text = f"@{table.name} = internal unnamed_addr constant {kind} [{numbers}], align 64"
        _definitions[table.name] = text
    return text
