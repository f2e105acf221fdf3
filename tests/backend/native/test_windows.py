"""Windows added back: steps, dilations, every side of the axis, operands of any strides."""

from __future__ import annotations

import numpy as np
import pytest

from topos import Tape, bf16, f32, f64
from topos.element import Element

pytest.importorskip("llvmlite")

from .kernel_checks import check_kernels, target_named, values_of

WINDOWS = [(9, 3, 1, 1), (70, 3, 1, 1), (40, 5, 2, 1), (33, 2, 1, 3), (30, 20, 1, 1), (30, 18, 3, 1), (64, 3, 3, 2)]
WINDOWS += [(64, 3, 2, 1), (37, 5, 4, 1), (50, 4, 2, 3), (33, 1, 8, 1), (90, 9, 8, 1), (31, 2, 4, 5), (19, 11, 2, 1)]
SIDES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((3,), ()),
    ((2, 3), (5,)),
    ((), (40,)),
    ((3,), (2, 3)),
]


@pytest.mark.parametrize("element", [f32, bf16, f64], ids=str)
@pytest.mark.parametrize(("extent", "size", "step", "dilation"), WINDOWS)
def test_folds(extent: int, size: int, step: int, dilation: int, element: Element) -> None:
    random = np.random.default_rng(0)
    count = (extent - dilation * (size - 1) - 1) // step + 1
    for before, after in SIDES:
        tape = Tape(element)
        shape, axis = (*before, count, size, *after), len(before)
        order = [*reversed(range(len(shape)))]
        x = tape.parameter(random.standard_normal(shape), element=element)
        turned = tape.parameter(random.standard_normal(shape[::-1]), element=element).permute(order)
        values = [each.fold(axis, size, step, dilation, extent) for each in (x, turned)]
        values.append((values[0].unfold(axis, size, step, dilation) * x).fold(axis, size, step, dilation, extent))
        kept = [value.symbol().index for value in values]
        network = tape.into_network()
        assert check_kernels(network.spec, kept, values_of(network, {}), target_named("host")) == []
