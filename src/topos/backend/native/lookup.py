"""Entries of the constant tables that the elementary functions look things up in."""

from __future__ import annotations

from struct import pack

from topos.backend.native.registers import Operand, constant, listed, literal, splat, vector, zeros
from topos.backend.native.target import Target
from topos.backend.native.text import Function
from topos.element.vocabulary import Table

EIGHT = 8
"""Lanes of binary64 in the longest registers."""


def entries(function: Function, target: Target, table: Table, index: Operand) -> Operand:
    """The entries at lanes of 64-bit indices, modulo the table's length.

    Long registers hold a table of sixteen between two of them, those of AVX2 between four, and long ones gather from
    other tables. Elsewhere entries are loaded one by one: where those processors have a gather, it is often slower.
    """
    count = len(table.values)
    eights = index.type.lanes % EIGHT == 0
    longest = eights and target.vector_bytes == 8 * EIGHT
    if count == 2 * EIGHT and (longest or (eights and target.has_avx2)):
        return (_picked if longest else _picked_by_halves)(function, table, index)
    function.need(table_definition(table))
    inside = function.let(index.type, f"and {index}, {constant(index.type, count - 1).text}")
    return _gathered(function, table, inside) if longest else _loaded(function, table, inside)


def _picked(function: Function, table: Table, index: Operand) -> Operand:
    """The instruction looks at the last four bits of an index alone."""
    item, part = vector("double", EIGHT), vector("i64", EIGHT)
    low, high = (listed(item, table.values[half : half + EIGHT]) for half in (0, EIGHT))
    parts = []
    for start in range(0, index.type.lanes, EIGHT):
        lanes = listed(vector("i32", EIGHT), tuple(range(start, start + EIGHT)))
        some = function.let(part, f"shufflevector {index}, {index.type.text} poison, {lanes}")
        parts.append(function.call(item, "x86.avx512.vpermi2var.pd.512", low, some, high))
    return _joined(function, parts)


def _picked_by_halves(function: Function, table: Table, index: Operand) -> Operand:
    """The lower and the upper 32 bits of eight entries at a time, each from two registers that hold eight of them.

    The instruction looks at the last three bits of an index, and the fourth chooses between the registers. Lanes are
    taken in an order that leaves every one in its half of a register, where moving them costs least.
    """
    item, words = vector("i32", EIGHT), vector("i32", 2 * index.type.lanes)
    halves = function.let(words, f"bitcast {index} to {words.text}")
    patterns = [int.from_bytes(pack("<d", value), "little") for value in table.values]
    parts = []
    for start in range(0, index.type.lanes, EIGHT):
        lower = listed(item, tuple(2 * (start + lane) for lane in _CROSSED))
        some = function.let(item, f"shufflevector {halves}, {words.text} poison, {lower}")
        moved = function.let(item, f"shl {some}, splat (i32 28)")
        upper = function.let(item.of("i1"), f"icmp slt {moved}, zeroinitializer")
        found = []
        for shift in (0, 32):
            bits = [pattern >> shift & 0xFFFFFFFF for pattern in patterns]
            eights = (listed(item, tuple(bits[half : half + EIGHT])) for half in (EIGHT, 0))
            chosen, other = (function.call(item, "x86.avx2.permd", eight, some) for eight in eights)
            found.append(function.let(item, f"select {upper}, {chosen}, {other}"))
        joined = vector("i32", 2 * EIGHT)
        both = function.let(joined, f"shufflevector {found[0]}, {found[1]}, {listed(joined, _UNCROSSED)}")
        parts.append(function.let(vector("double", EIGHT), f"bitcast {both} to <{EIGHT} x double>"))
    return _joined(function, parts)


_CROSSED = (0, 1, 4, 5, 2, 3, 6, 7)
_UNCROSSED = tuple(half + _CROSSED[lane] for lane in range(EIGHT) for half in (0, EIGHT))


def _joined(function: Function, parts: list[Operand]) -> Operand:
    """Lanes one after another, as many parts as a power of two."""
    while len(parts) > 1:
        joined = vector("double", 2 * parts[0].type.lanes)
        lanes = listed(vector("i32", joined.lanes), tuple(range(joined.lanes)))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [function.let(joined, f"shufflevector {left}, {right}, {lanes}") for left, right in pairs]
    return parts[0]


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
