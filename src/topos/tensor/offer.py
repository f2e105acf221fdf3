"""Work of eager tensors is offered to native kernels where one may pay, and left to NumPy everywhere else.

Which layer answers the offer is not known here: it is imported when there has been enough work to be worth that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

from topos.element import Element
from topos.element.element import Array
from topos.op import Indexing, Opcode
from topos.shape import Shape
from topos.tensor.work import Step, Work, step_ns

if TYPE_CHECKING:
    from topos.tensor.tensor import Tensor

LEAST_PLACES = 1 << 10
"""Elementwise results with fewer places are not even looked at: a call costs more than it can save."""
LEAST_NS = 30e3
"""Less work of NumPy's than this is never offered: a native call costs 10 to 15 microseconds beside its numbers."""
LOADED_NS = 150e6
"""So much work has NumPy done before the native layer is loaded for it, which takes about as long."""

_ANSWERS = "topos.backend.native.eager"
_LOADED = "topos.backend.native.executable"
_seen_ns = 0.0


def offered(opcode: Opcode, element: Element, tensors: Sequence[Tensor], shape: Shape) -> Array | None:
    """The result of one instruction over checked operands, or `None` where NumPy has to compute it."""
    if step_ns(opcode, element, [tensor.shape for tensor in tensors], shape) < LEAST_NS:
        return None
    if any(tensor.ids is not None for tensor in tensors) and not isinstance(opcode, Indexing):
        return None
    sources = {id(tensor): tensor for tensor in tensors}
    places = list(sources)
    operands = tuple(~places.index(id(tensor)) for tensor in tensors)
    arrays = served(Work(list(sources.values()), [Step(opcode, element, shape, operands)], (0,)))
    return None if arrays is None else arrays[0]


def served(work: Work) -> list[Array] | None:
    """What is wanted of some work, by a native kernel, or `None` where NumPy has to compute it."""
    global _seen_ns
    cost_ns = work.reference_ns
    if cost_ns < LEAST_NS:
        return None
    answers = sys.modules.get(_ANSWERS)
    if answers is None:
        _seen_ns += cost_ns
        if _seen_ns < LOADED_NS and _LOADED not in sys.modules:
            return None
        answers = import_module(_ANSWERS)
    return cast(Callable[[Work, float], "list[Array] | None"], answers.served)(work, cost_ns)
