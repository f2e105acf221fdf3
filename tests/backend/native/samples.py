"""Operands at which native and NumPy arithmetic must agree: every exponent, the special ones, and the hard ranges."""

from __future__ import annotations

from typing import Any

import numpy as np

from topos import op
from topos.element import Element, bf16, f32, f64
from topos.op import Opcode

Array = np.ndarray[Any, np.dtype[Any]]

ELEMENTS = (f32, f64, bf16)
ELEMENTWISE = [op.ADD, op.SUB, op.MUL, op.DIV, op.NEG, op.POWF, op.MAXIMUM, op.STEP, op.SELECT, op.STOP]
INSTRUCTIONS: list[Any] = [*ELEMENTWISE, *op.MAPS.values(), *map(op.Cast, ELEMENTS)]

SPECIAL = (0.0, 1.0, 2.0, 3.0, 0.5, 1.5, 12.0, 20.0, 88.7, 709.7, 1e6, 3e6, 1e22, 1e38, 1e300, np.inf, np.nan)


def drawn(element: Element, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Ordinary numbers of an element."""
    return np.asarray(element.round(np.random.default_rng([seed, *shape]).normal(0, 2, shape)))


def any_bits(element: Element, count: int, random: np.random.Generator) -> Array:
    """Any bit pattern, NaN with payloads among them."""
    pattern = random.integers(0, 1 << 8 * element.dtype.itemsize, count, dtype=np.uint64, endpoint=False)
    return np.asarray(pattern.astype(f"u{element.dtype.itemsize}").view(element.dtype))


def special(element: Element) -> Array:
    """Zeros, infinities, NaN, the least and greatest numbers, and numbers where bodies change their way."""
    least = {f32: 2.0**-149, f64: 2.0**-1074, bf16: 2.0**-133}[element]
    normal = 2.0**-1022 if element is f64 else 2.0**-126
    numbers = np.array([*SPECIAL, least, 3 * least, normal, normal - least])
    found = element.round(np.concatenate([numbers, -numbers]))
    pattern = found.view(f"u{element.dtype.itemsize}")
    beside = np.concatenate([pattern + 1, pattern - 1]).view(element.dtype)
    return np.concatenate([found, beside])


def hard(element: Element, count: int, random: np.random.Generator) -> Array:
    """Ranges where functions cancel, overflow, reduce or switch."""
    part = count // 8 + 1
    wide = 300 if element is f64 else 38
    turns = random.integers(-(10**6), 10**6, part) * (np.pi / 2)
    ranges = [
        random.uniform(-1.5, 1.5, part),
        random.uniform(-8, 8, part),
        random.uniform(-120, 120, part),
        random.uniform(-760, 760, part),
        10 ** random.uniform(-wide, wide, part) * random.choice([-1.0, 1.0], part),
        1 + random.normal(0, 1e-3, part) * 10 ** random.uniform(-6, 0, part),
        turns,
        np.round(random.uniform(-70, 70, part)),
    ]
    return random.permutation(element.round(np.concatenate(ranges))[:count])


def operands(opcode: Opcode, element: Element, count: int, seed: int = 0) -> list[Array]:
    """`count` or somewhat more operands, mixed; the operands of one instruction meet in all combinations of kinds."""
    random = np.random.default_rng([seed, count, element.dtype.itemsize])
    edge = special(element)
    if opcode.arity == 2:
        pairs = np.repeat(edge, edge.size), np.tile(edge, edge.size)
    else:
        pairs = tuple(random.permutation(np.resize(edge, 3 * edge.size)) for _ in range(opcode.arity))
    mixed = []
    for edges in pairs:
        body = np.concatenate([any_bits(element, count // 2, random), hard(element, count // 2, random)])
        mixed.append(np.concatenate([edges, random.permutation(body)]))
    return mixed


def result_element(opcode: Opcode, element: Element) -> Element:
    """The element of the result."""
    return opcode.element if isinstance(opcode, op.Cast) else element


def by_numpy(opcode: Any, element: Element, *arrays: Array) -> Array:
    """What the NumPy element computes, which is the definition."""
    if isinstance(opcode, op.Cast):
        return np.array(opcode.element.cast(arrays[0], element))
    return np.array(opcode.body(element, *arrays))
