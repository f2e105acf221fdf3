"""What programs are made of whose windows are worked out where they are read, and how they are lowered and checked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from topos import Tape, Value, bf16, f32, f64
from topos.backend.native.groups import Lowering
from topos.backend.native.worked_out import with_worked_out
from topos.graph.spec import Spec

from .. import plans

checked = partial(plans.checked, counts=(1, 2))
WORKED_OUT = "its windows are worked out where they are folded"
ELEMENTS = pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)


def numbers(*shape: int) -> Any:
    """Few different numbers, so that windows have ties, and both zeros among them."""
    drawn = np.random.default_rng(sum(shape)).integers(-3, 4, shape) / 2.0
    return np.where(drawn == 0.5, -0.0, drawn)


def gradient(value: Value, source: Value, tape: Tape) -> Value:
    """Of a sum weighted with numbers of either sign, zeros among them."""
    ((_, slope),) = tape.differentiate((value * tape.leaf(numbers(*value.shape))).sum(), [source])
    return slope


def worked_out(spec: Spec, scheduled: Sequence[int], kept: frozenset[int]) -> Lowering:
    """A lowering with what is worked out where it is read, and nothing else."""
    lowering = Lowering(spec, scheduled, kept)
    lowering.groups = with_worked_out(lowering, lowering.groups)
    return lowering
