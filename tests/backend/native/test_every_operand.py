"""Elementary functions of every binary32, with fused multiply-add and without: what `add_product` is used for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos import op
from topos.backend.native.target import Target
from topos.element import f32
from topos.testing import assert_same_bits

from .chains import chain_kernel
from .compiled import compiled, targets

BLOCK = 1 << 16
FUSED = next((target for target in targets() if target.has_fma), None)
EVERY = pytest.mark.parametrize("operation", list(op.MapOperation), ids=lambda operation: operation.name)

pytestmark = pytest.mark.skipif(FUSED is None, reason="this processor has no fused multiply-add")


def check(operation: op.MapOperation, first: int, last: int) -> None:
    """Both ways over the binary32 whose bits are `first` to `last`."""
    assert FUSED is not None
    once, twice = (calls(operation, target) for target in (FUSED, FUSED._replace(has_fma=False)))
    for start in range(first, last, BLOCK):
        x = np.arange(start, start + BLOCK, dtype=np.int64).astype(np.uint32).view(np.float32)
        assert_same_bits(once(x), twice(x))


def calls(operation: op.MapOperation, target: Target) -> Any:
    kernel = compiled(chain_kernel(op.MAPS[operation], f32, BLOCK, target), target)

    def call(x: Any) -> Any:
        result = np.empty_like(x)
        kernel(x, result)
        return result

    return call


@EVERY
def test_operands_around_one(operation: op.MapOperation) -> None:
    for one in (0x3F800000, 0xBF800000):
        check(operation, one - 4 * BLOCK, one + 4 * BLOCK)


@pytest.mark.exhaustive
@EVERY
def test_every_operand(operation: op.MapOperation) -> None:
    check(operation, 0, 1 << 32)
