"""Lanes have the bits of the NumPy elements: every elementwise instruction, element and target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos import op
from topos.backend.native.target import Target
from topos.element import Element, bf16, f32, f64
from topos.op.elementwise import Elementwise
from topos.testing import assert_same_bits, same_bits

from .chains import chain_kernel
from .compiled import host, machine, module_text, run, targets
from .samples import ELEMENTS, INSTRUCTIONS, any_bits, by_numpy, operands, result_element

TARGETS = pytest.mark.parametrize("target", targets(), ids=lambda target: target.cpu)
EVERY = pytest.mark.parametrize("opcode", INSTRUCTIONS, ids=repr)
EACH = pytest.mark.parametrize("element", ELEMENTS, ids=repr)


def agree(
    opcode: Any,
    element: Element,
    target: Target,
    arrays: Any,
    offset: int = 0,
    lanes: int = 0,
) -> None:
    kernel = chain_kernel(opcode, element, arrays[0].size, target, lanes)
    dtype = result_element(opcode, element).dtype
    assert_same_bits(run(kernel, target, arrays, dtype, offset), by_numpy(opcode, element, *arrays))


@TARGETS
@EACH
@EVERY
def test_bits(opcode: Any, element: Element, target: Target) -> None:
    agree(opcode, element, target, operands(opcode, element, 20000))


@pytest.mark.exhaustive
@EACH
@EVERY
def test_bits_of_millions(opcode: Any, element: Element) -> None:
    for seed in range(4):
        arrays = operands(opcode, element, 1 << 20, seed + 1)
        for target in targets():
            agree(opcode, element, target, arrays)


@TARGETS
@EVERY
def test_every_bf16(opcode: Any, target: Target) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(bf16.dtype)
    agree(opcode, bf16, target, [every, *(np.roll(every, shift) for shift in range(1, opcode.arity))])


@EACH
@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 7, 8, 16, 32, 64])
@pytest.mark.parametrize(
    "opcode", [op.MUL, op.SELECT, *(op.MAPS[op.MapOperation[name]] for name in ("SIN", "TANH")), op.POWF], ids=repr
)
def test_any_number_of_lanes(opcode: Any, element: Element, lanes: int) -> None:
    agree(opcode, element, host(), operands(opcode, element, 501), lanes=lanes)


# lengths and places
def places(opcode: Any, element: Element, target: Target) -> None:
    arrays = operands(opcode, element, 400)
    for length in range(1, 71):
        numbers = [array[-length:] for array in arrays]
        agree(opcode, element, target, numbers, offset=length % 8)
    for offset in range(8):
        agree(opcode, element, target, [array[-67:] for array in arrays], offset=offset)


@TARGETS
@EACH
def test_lengths_and_offsets(element: Element, target: Target) -> None:
    places(op.MUL, element, target)


@TARGETS
@EACH
@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
def test_every_rest(lanes: int, element: Element, target: Target) -> None:
    for cast in (op.Cast(f32), op.Cast(bf16)):
        numbers = operands(cast, element, 400)[0]
        for length in range(1, lanes + 1):
            agree(cast, element, target, [numbers[-length:]], lanes=lanes)


@pytest.mark.exhaustive
@EACH
@EVERY
def test_lengths_and_offsets_of_all(opcode: Any, element: Element) -> None:
    for target in targets():
        places(opcode, element, target)


def test_nothing_of_length_zero() -> None:
    agree(op.ADD, f32, host(), [np.zeros(0, np.float32)] * 2)


# Fused bodies: each instruction rounds on its own
class Chain(Elementwise):
    """`a * b + c`."""

    __slots__ = ()
    roles = ("a", "b", "c")

    def body(self, m: Any, a: Any, b: Any, c: Any) -> Any:
        return m.add(m.mul(a, b), c)


class Determinant(Elementwise):
    """`a * d - b * c`."""

    __slots__ = ()
    roles = ("a", "b", "c", "d")

    def body(self, m: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return m.sub(m.mul(a, d), m.mul(b, c))


class Regrouped(Elementwise):
    """What reassociation, reciprocals and folding of zeros and ones would change."""

    __slots__ = ()
    roles = ("a", "b", "c")

    def body(self, m: Any, a: Any, b: Any, c: Any) -> Any:
        cancelled = m.sub(m.add(m.add(a, b), c), m.add(a, m.add(b, c)))
        quotients = m.sub(m.div(a, c), m.mul(a, m.div(b, c)))
        return m.add(m.sub(cancelled, quotients), m.sub(a, a))


class Gated(Elementwise):
    """`tanh(a * b + c) * a - exp(-b * b)`, then a maximum and a mask."""

    __slots__ = ()
    roles = ("a", "b", "c")

    def body(self, m: Any, a: Any, b: Any, c: Any) -> Any:
        value = m.sub(m.mul(m.tanh(m.add(m.mul(a, b), c)), a), m.exp(m.mul(m.neg(b), b)))
        return m.select(m.step(a, b), m.maximum(value, m.sin(c)), m.powf(a, b))


@TARGETS
@EACH
@pytest.mark.parametrize("opcode", [Chain(), Determinant(), Regrouped(), Gated()], ids=repr)
def test_fused_bodies(opcode: Any, element: Element, target: Target) -> None:
    agree(opcode, element, target, operands(opcode, element, 20000))


@TARGETS
@EACH
def test_chains_of_instructions(element: Element, target: Target) -> None:
    arrays = [operands(op.NEG, element, 3000, seed)[0] for seed in range(3)]
    kernel = chain_kernel([op.MUL, op.ADD, op.MAPS[op.MapOperation.EXP]], element, arrays[0].size, target)
    expected = element.exp(element.add(element.mul(arrays[0], arrays[1]), arrays[2]))
    assert_same_bits(run(kernel, target, arrays, element.dtype), expected)


@TARGETS
@pytest.mark.parametrize("length", [1, 7, 8, 17])
def test_products_are_rounded_before_they_cancel(length: int, target: Target) -> None:
    for number in (4097.0, 0.1):
        arrays = [np.full(length, number, np.float32)] * 4
        kernel = chain_kernel(Determinant(), f32, length, target)
        assert_same_bits(run(kernel, target, arrays, np.float32), np.zeros(length, np.float32))


@TARGETS
def test_casts_between_all(target: Target) -> None:
    x = operands(op.NEG, f64, 20000)[0]
    chain = [op.Cast(bf16), op.Cast(f32), op.MAPS[op.MapOperation.EXP], op.Cast(f64), op.ADD, op.Cast(bf16)]
    kernel = chain_kernel(chain, f64, x.size, target)
    exponential = f64.cast(f32.exp(f32.cast(bf16.cast(x, f64), bf16)), f32)
    assert_same_bits(run(kernel, target, [x, x], bf16.dtype), bf16.cast(f64.add(exponential, x), f64))


@TARGETS
def test_f64_to_bf16_rounds_once(target: Target) -> None:
    random = np.random.default_rng(5)
    middle = bf16.cast(any_bits(bf16, 4000, random), bf16).view(np.uint16).astype(np.uint32) << 16 | 0x8000
    wide = middle.view(np.float32).astype(np.float64)
    beside = np.concatenate([wide, wide * (1 + 2.0**-40), wide * (1 - 2.0**-40), wide * (1 + 2.0**-24)])
    agree(op.Cast(bf16), f64, target, [beside])


# no library, no freedom
@TARGETS
@EACH
@EVERY
def test_kernels_call_nothing(opcode: Any, element: Element, target: Target) -> None:
    import llvmlite.binding as llvm

    kernel = chain_kernel(opcode, element, 100, target)
    assembly = machine(target).emit_assembly(llvm.parse_assembly(module_text(kernel)))
    assert "call" not in assembly
    flags = {"fast", "contract", "reassoc", "nnan", "ninf", "nsz", "arcp", "afn"}
    assert not flags & set(kernel.text.replace("\n", " ").split())


def test_comparison_sees_contraction() -> None:
    arrays = operands(Chain(), f32, 1000)
    kernel = chain_kernel(Chain(), f32, arrays[0].size, host())
    fused = kernel.text.replace("fmul <", "fmul contract <").replace("fadd <", "fadd contract <")
    if host().has_fma:
        result = run(kernel._replace(text=fused), host(), arrays, np.float32)
        assert not same_bits(result, by_numpy(Chain(), f32, *arrays))


class Everything(Elementwise):
    """Every function and every operation, summed."""

    __slots__ = ()
    roles = ("a", "b")

    def body(self, m: Any, a: Any, b: Any) -> Any:
        value = m.powf(a, b)
        for opcode in (op.SUB, op.DIV, op.MAXIMUM, op.STEP):
            value = m.add(m.select(a, value, b), opcode.body(m, a, b))
        for opcode in op.MAPS.values():
            value = m.add(value, opcode.body(m, a))
        return value


@EACH
@pytest.mark.parametrize("fused", [True, False])
def test_another_architecture_compiles(element: Element, fused: bool) -> None:
    """LLVM ends the process where it cannot write an operation; no hardware is needed to see that it can."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = "aarch64-unknown-linux-gnu"
    kernel = chain_kernel([Everything(), op.Cast(bf16), op.Cast(f64)], element, 101, Target("generic", "", 16, fused))
    module = llvm.parse_assembly(module_text(kernel))
    module.triple = triple
    assembly = llvm.Target.from_triple(triple).create_target_machine(cpu="generic", opt=2).emit_assembly(module)
    opcodes = {line.split()[0] for line in assembly.splitlines() if line.startswith("\t")}
    assert "bl" not in opcodes
    assert ("fmla" in opcodes or "fmls" in opcodes or "fmsub" in opcodes or "fnmsub" in opcodes) == fused


@TARGETS
@EACH
def test_everything_in_one_kernel(element: Element, target: Target) -> None:
    agree(Everything(), element, target, operands(Everything(), element, 5000))
