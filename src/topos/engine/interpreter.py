"""The interpreter: rows evaluated in order by the kernels that define the bits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from topos.element import Element
from topos.element.machine import check_arithmetic
from topos.engine.feeds import read_feeds
from topos.engine.liveness import freed_by
from topos.engine.report import Watch
from topos.engine.run import Run, Shown
from topos.engine.sources import Sources
from topos.engine.state import State
from topos.errors import ElementError
from topos.graph import Network, Parameters
from topos.graph.spec import Spec
from topos.op import Opcode
from topos.records import NamedTuple
from topos.shape import Shape
from topos.tensor import Tensor, services
from topos.tensor.evaluate import Kernel, kernel_of


class Step(NamedTuple):
    """One row to evaluate: its kernel, what it reads, and which rows are freed after it."""

    row: int
    kernel: Kernel
    opcode: Opcode
    element: Element
    shape: Shape
    operands: tuple[int, ...]
    frees: tuple[int, ...]


def steps_of(spec: Spec, rows: Iterable[int], freed_after: Mapping[int, int]) -> list[Step]:
    """The steps of the rows that are no sources, in order."""
    dying = freed_by(freed_after)
    return [
        Step(
            index,
            kernel_of(row.opcode),
            row.opcode,
            spec.element_of(index),
            row.shape,
            row.operands,
            tuple(dying.get(index, ())),
        )
        for index, row in ((index, spec.rows[index]) for index in rows)
        if row.operands
    ]


def execute(steps: Sequence[Step], values: dict[int, Tensor], watch: Watch | None = None) -> None:
    """Evaluates the steps over the sources in `values`, where each result is put and what is dead goes.

    An operation that a user's element does not define, or answers wrongly, raises `ElementError` that names the node.
    """
    check_arithmetic()
    of, counted = Tensor.of, services.counting()
    with np.errstate(all="ignore"):
        if watch is not None:
            for index in sorted(values):
                watch.see(index, values[index])
        try:
            for row, kernel, opcode, element, shape, operands, frees in steps:
                values[row] = of(kernel(opcode, element, [values[operand] for operand in operands]), element, shape)
                if counted:
                    services.count(services.formula_of(opcode), services.REFERENCE)
                if watch is not None:
                    watch.see(row, values[row])
                for dead in frees:
                    del values[dead]
        except ElementError as error:
            raise error.placed([f"node %{row} {opcode.name} {shape}"]) from None


def owned(tensor: Tensor, borrowed: Sequence[Any]) -> Tensor:
    """A result that neither reads a caller's array after the call nor keeps a larger buffer alive."""
    if tensor.ids is not None or tensor.element is None:
        return tensor
    array = tensor.dense(tensor.element)
    root, base = array, array.base
    while base is not None:  # a window's base is no array, but has one
        root = base if isinstance(base, np.ndarray) else root
        base = getattr(base, "base", None)
    if root.nbytes > array.nbytes or any(np.may_share_memory(array, other) for other in borrowed):
        return Tensor.of(array.copy(), tensor.element, tensor.shape)
    return tensor


def whole(network: Network, parameters: Parameters | State, feeds: Mapping[Any, Any] | None) -> Run:
    """Every row of a network evaluated and kept: what `network.forward` answers."""
    spec, length = network.spec, len(network)
    fed = read_feeds(spec, length, feeds, copy=True)
    values = Sources(spec, range(length)).payloads(parameters, fed.fixed)
    execute(steps_of(spec, range(length), {}), values)
    return Run(Shown(spec, length, None, True), values)
