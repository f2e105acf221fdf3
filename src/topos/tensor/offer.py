"""Work of eager tensors is offered to native kernels where one may pay, and left to NumPy everywhere else.

Which layer answers the offer is not known here: it is imported when there has been enough work to be worth that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from topos.element import Element
from topos.element.built_in import BUILT_IN
from topos.element.element import Array
from topos.loading import loaded
from topos.op import NEG, Indexing, MatMul, Opcode
from topos.shape import Shape
from topos.tensor.work import Step, Work, step_ns

if TYPE_CHECKING:
    from topos.tensor.tensor import Tensor

LEAST_PLACES = 1 << 10
"""Instructions over fewer places are not even looked at: a call costs more than it can save."""
LEAST_PRODUCTS = 1 << 14
"""The same of products, by multiplications."""
LEAST_NS = 60e3
"""Less than this of NumPy's time is not worth saving: a native call costs 20 to 30 microseconds beside its numbers."""
PASS_NS = 0.125
"""What a byte of a result costs in any case: single additions of f32 and f64 wait for memory, whoever does them."""
RULE_NS = 120e3
"""What a rule's cheapest instruction takes NumPy where keeping back pays: 0.1 ms a rule, 10 microseconds a step."""
LOADED_NS = 150e6
"""So much work has NumPy done before the native layer is loaded for it, which takes about as long."""

Answer = Callable[[Work, float], "list[Array] | None"]

_ANSWERS = "topos.backend.native.eager"
_LOADED = "topos.backend.native.lowered"
_seen_ns = 0.0


def offered(opcode: Opcode, element: Element, tensors: Sequence[Tensor], shape: Shape) -> Array | None:
    """The result of one instruction over checked operands, or `None` where NumPy has to compute it."""
    saved_ns = step_ns(opcode, element, [tensor.shape for tensor in tensors], shape)
    saved_ns -= PASS_NS * prod(shape) * element.dtype.itemsize
    dense = tensors[:1] if isinstance(opcode, Indexing) else tensors  # no kernel takes a selection for its one-hot
    if saved_ns < LEAST_NS or not known(element, dense):
        return None
    sources = {id(tensor): tensor for tensor in tensors}
    places = list(sources)
    operands = tuple(~places.index(id(tensor)) for tensor in tensors)
    arrays = served(Work(list(sources.values()), [Step(opcode, element, shape, operands)], (0,)), saved_ns)
    return None if arrays is None else arrays[0]


def multiplies(opcode: Opcode, shapes: Sequence[Shape]) -> bool:
    """Whether an instruction is a product worth a look."""
    return type(opcode) is MatMul and prod(shapes[0]) * shapes[1][-1] >= LEAST_PRODUCTS


def known(element: Element, tensors: Sequence[Tensor]) -> bool:
    """Whether native kernels may read these numbers: they know some elements, and selections only as ids."""
    return element in BUILT_IN and all([tensor.element in BUILT_IN for tensor in tensors])


def worth(tensor: Tensor) -> bool:
    """Whether a rule over such a tensor is worth a kernel: its cheapest instruction takes NumPy long enough."""
    if tensor.shape.volume < LEAST_PLACES or tensor.element is None:
        return False
    return step_ns(NEG, tensor.element, [tensor.shape], tensor.shape) >= RULE_NS


def served(work: Work, saved_ns: float) -> list[Array] | None:
    """What is wanted of some work, by native kernels that save about so much time; `None` where NumPy is to do it."""
    global _seen_ns
    if _ANSWERS not in sys.modules:
        _seen_ns += saved_ns
        if _seen_ns < LOADED_NS and _LOADED not in sys.modules:
            return None
    answer: Answer = loaded("topos.backend.native.eager.served")
    return answer(work, saved_ns)
