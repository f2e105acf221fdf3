"""What tensors compute at once, by native kernels: a program for each kind of work, made when it pays."""

from __future__ import annotations

import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Hashable, Sequence

from topos.backend.native.eager_program import EagerProgram
from topos.backend.native.layouts import Layout, laid_out
from topos.backend.native.settings import environment
from topos.element import f32
from topos.element.element import Array
from topos.errors import ToposError
from topos.op import MatMul
from topos.tensor.work import Work

PROGRAM_NS, STEP_NS, PRODUCT_NS = 8e6, 1e6, 40e6
"""What LLVM takes: for a program, for each of its instructions, and for a product."""
MOST_KINDS = 512
"""Kinds of work that are remembered; the one that was used least recently goes."""


class _Kind:
    """One kind of work: what a program of it would have saved so far, and would cost; then it, if there is one."""

    __slots__ = ("cost_ns", "forgone_ns", "program", "refused")

    def __init__(self, work: Work) -> None:
        products = sum(isinstance(step.opcode, MatMul) for step in work.steps)
        self.cost_ns = PROGRAM_NS + STEP_NS * len(work.steps) + PRODUCT_NS * products
        self.forgone_ns = 0.0
        self.program: EagerProgram | None = None
        self.refused = False


class _Thread(threading.local):
    making = False


_thread = _Thread()
_kinds: OrderedDict[Hashable, _Kind] = OrderedDict()
_lock = threading.Lock()


def served(work: Work, saved_ns: float) -> list[Array] | None:
    """What is wanted of some work, or `None` where NumPy, which takes `saved_ns` longer, has to compute it.

    A program is made when one would have saved as much as it costs: so nobody ever loses more than that twice.
    """
    if environment("TOPOS_NATIVE") == "0" or _thread.making:
        return None
    laid = [laid_out(source.dense(f32)) if source.ids is None else (source.ids, None) for source in work.sources]
    layouts = [layout for _, layout in laid]
    kind = _kind(_key(work, layouts), work)
    if kind.program is None:
        kind.forgone_ns += saved_ns
        if kind.refused or kind.forgone_ns < kind.cost_ns:
            return None
        kind.program = _made(work, layouts)
        kind.refused = kind.program is None
    return None if kind.program is None else kind.program.run([array for array, _ in laid])


def _key(work: Work, layouts: Sequence[Layout | None]) -> Hashable:
    """What work shares that the same program computes: all but the numbers."""
    sources = tuple(
        (source.element, layout) if layout is not None else source.shape
        for source, layout in zip(work.sources, layouts, strict=True)
    )
    steps = tuple((step.opcode if step.opcode.attributes else type(step.opcode), step.operands) for step in work.steps)
    return sources, steps, work.wanted


def _kind(key: Hashable, work: Work) -> _Kind:
    with _lock:
        kind = _kinds.get(key)
        if kind is None:
            kind = _kinds[key] = _Kind(work)
            if len(_kinds) > MOST_KINDS:
                _kinds.popitem(last=False)
        else:
            _kinds.move_to_end(key)
    return kind


def _made(work: Work, layouts: Sequence[Layout | None]) -> EagerProgram | None:
    """The program of some work, or `None` where there is no native code for it."""
    _thread.making = True  # tensors that the making computes with are not offered
    try:
        program = EagerProgram(work, layouts)
    except (ToposError, OSError, RuntimeError) as error:
        warnings.warn(f"tensor: no native kernel, NumPy computes: {error}", RuntimeWarning, stacklevel=2)
        return None
    finally:
        _thread.making = False
    return program if program.native else None


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
