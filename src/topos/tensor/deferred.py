"""Instructions of a rule kept back until somebody reads a number, so that they run together.

A tensor whose instruction is kept back is a tensor like any other, except that its numbers are worked out when they
are first read. Whoever holds one sees no difference.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from topos.element import Element
from topos.element.element import Array
from topos.op import Cast, Elementwise, Fold, Movement, Opcode, Reduction
from topos.shape import Shape
from topos.tensor import offer
from topos.tensor.beside import Beside
from topos.tensor.memory import address_of
from topos.tensor.offer import known, offered, served, worth
from topos.tensor.work import Step, Work

if TYPE_CHECKING:
    from topos.tensor.tensor import Tensor

MOST_STEPS = 128
"""After so many instructions, what is wanted by then is worked out: a loop in a rule makes no kernel without end."""

_FUSED = (Elementwise, Cast, Movement, Reduction)


class Node:
    """An instruction kept back, over other nodes and tensors that have their numbers; `array` is set when it has run.

    `holder` tells whether the tensor that shows its numbers is still there.
    """

    __slots__ = ("array", "element", "holder", "opcode", "operands", "shape")

    def __init__(self, opcode: Opcode, element: Element, shape: Shape, operands: tuple[Node | Tensor, ...]) -> None:
        self.opcode = opcode
        self.element = element
        self.shape = shape
        self.operands = operands
        self.array: Array | None = None
        self.holder: weakref.ref[Holder] | None = None

    ids: Array | None = None
    vocab = 0

    def dense(self, element: Element) -> Array:
        """Its numbers, once it has run: as an operand of those that could not run with it."""
        assert self.array is not None
        return self.array


class Holder:
    """What a tensor has in place of its numbers; the tensor alone keeps it, so that it goes when the tensor goes."""

    __slots__ = ("__weakref__", "deferral", "node")

    def __init__(self, deferral: Deferral, node: Node) -> None:
        self.deferral = deferral
        self.node = node
        node.holder = weakref.ref(self)

    def numbers(self) -> Array:
        """The tensor's array, worked out now with everything else that is kept back and still wanted."""
        if self.node.array is None:
            self.deferral.run()
        array = self.node.array
        assert array is not None
        return array


class Deferrable(Beside):
    """What a tensor works out when it is first asked for; afterwards that is an attribute like any other.

    These are its numbers, where they are kept back; `address`, where they (or its ids) lie next to one another in
    row-major order as long as it lives; and `is_complete`, whether every row of a selection selects something.
    """

    __slots__ = ("_array", "_holder", "_memory", "address", "ids", "is_complete")
    _array: Array | None
    _holder: Holder | None
    _memory: Array
    address: int
    ids: Array | None
    is_complete: bool

    if not TYPE_CHECKING:  # a type checker is to miss what is not there

        def __getattr__(self, name: str) -> Any:
            """Called for what is not set."""
            if name == "address":
                numbers = self.ids if self._array is None else self._array
                flags = numbers.flags  # read-only arrays will do
                is_plain = flags.c_contiguous and flags.aligned
                self._memory = numbers if is_plain else np.require(numbers, None, ("C", "ALIGNED"))
                self.address = address_of(self._memory)
            elif name == "is_complete":
                self.is_complete = self.ids is None or not (self.ids < 0).any()
            elif name == "_array":
                holder = holder_of(self)
                if holder is not None:
                    self._array = holder.numbers()
                    self._holder = None
            else:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            return object.__getattribute__(self, name)


def holder_of(tensor: Deferrable) -> Holder | None:
    """What keeps a tensor's numbers back; `None` where it has them."""
    try:
        return object.__getattribute__(tensor, "_holder")  # type: ignore[no-any-return]
    except AttributeError:
        return None


class Deferral:
    """What one block of one thread keeps back, in order."""

    __slots__ = ("_lock", "_nodes")

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._lock = threading.RLock()  # tensors go where they like, and a signal may come at any time

    def keep(self, opcode: Opcode, element: Element, tensors: Sequence[Tensor], shape: Shape) -> Holder | None:
        """Keeps an instruction over checked operands back; `None` for one that is none of native kernels'."""
        if not isinstance(opcode, _FUSED) or isinstance(opcode, Fold) or not known(element, tensors):
            return None
        for tensor in tensors:  # before the lock is taken: two blocks that read each other's would wait in a ring
            holder = holder_of(tensor)
            if holder is not None and holder.deferral is not self:
                holder.numbers()
        with self._lock:
            if len(self._nodes) >= MOST_STEPS:
                self.run()
            operands = tuple([self._operand(tensor) for tensor in tensors])
            if not any([type(operand) is Node for operand in operands]) and not _large(opcode, tensors):
                return None
            node = Node(opcode, element, shape, operands)
            kept = Holder(self, node)
            self._nodes.append(node)
        return kept

    def run(self) -> None:
        """Works out every number that somebody can still read."""
        with self._lock, _keeping(None):  # what is computed on the way is not kept back
            given = list(self._nodes)
            nodes = [node for node in given if node.array is None]
            wanted = [node for node in nodes if node.holder is not None and node.holder() is not None]
            if wanted:
                work = _gathered(nodes, wanted)
                if any(node.array is not None for node in wanted):  # a signal's handler came back here meanwhile
                    return self.run()
                arrays = _served(work)
                for node, array in zip(wanted, work.by_numpy() if arrays is None else arrays, strict=True):
                    node.array = array
            for node in given:
                if node in self._nodes:
                    self._nodes.remove(node)
                node.operands = ()

    def _operand(self, tensor: Tensor) -> Node | Tensor:
        """The node behind a tensor that is kept back here; any other has its numbers."""
        holder = holder_of(tensor)
        return tensor if holder is None or holder.node.array is not None else holder.node


def _large(opcode: Opcode, tensors: Sequence[Tensor]) -> bool:
    """Whether an instruction begins what may be worth a kernel; a movement of numbers that are there costs nothing."""
    return not isinstance(opcode, Movement) and any(worth(tensor) for tensor in tensors)


def _served(work: Work) -> list[Array] | None:
    cost_ns = work.reference_ns
    return served(work, cost_ns) if cost_ns >= offer.LEAST_NS else None


def _gathered(nodes: Sequence[Node], wanted: Sequence[Node]) -> Work:
    """The steps that the wanted nodes need, in order, as work."""
    needed = set(map(id, wanted))
    for node in reversed(nodes):
        if id(node) in needed:
            needed.update(id(operand) for operand in node.operands if isinstance(operand, Node))
    sources: list[Node | Tensor] = []
    places: dict[int, int] = {}
    steps: list[Step] = []
    for node in nodes:
        if id(node) in needed:
            for operand in node.operands:
                if id(operand) not in places:
                    sources.append(operand)
                    places[id(operand)] = -len(sources)
            steps.append(Step(node.opcode, node.element, node.shape, tuple(places[id(o)] for o in node.operands)))
            places[id(node)] = len(steps) - 1
    return Work(sources, steps, tuple(places[id(node)] for node in wanted))


class _Current(threading.local):
    deferral: Deferral | None = None


_current = _Current()
OPEN: list[Deferral] = []
"""Those of all threads whose blocks run now: while there are none, an instruction asks nothing else."""


def current() -> Deferral | None:
    """What keeps this thread's instructions back now, if anything does."""
    return _current.deferral


def elsewhere(opcode: Opcode, element: Element, tensors: Sequence[Tensor], shape: Shape) -> Holder | Array | None:
    """An instruction kept back, or its result by a native kernel; `None` where NumPy has to compute it, now."""
    deferral = current() if OPEN else None
    holder = deferral.keep(opcode, element, tensors, shape) if deferral is not None else None
    if holder is not None:
        return holder
    return None if isinstance(opcode, Movement) else offered(opcode, element, tensors, shape)


class _keeping:
    """Makes a deferral this thread's inside a block, or none."""

    __slots__ = ("_deferral", "_outer")

    def __init__(self, deferral: Deferral | None) -> None:
        self._deferral = deferral

    def __enter__(self) -> None:
        self._outer, _current.deferral = _current.deferral, self._deferral

    def __exit__(self, *facts: object) -> None:
        _current.deferral = self._outer


@contextmanager
def deferring() -> Iterator[None]:
    """Keeps this thread's instructions back inside the block; at its end, what is still wanted has its numbers."""
    deferral = Deferral()
    OPEN.append(deferral)
    try:
        with _keeping(deferral):
            yield
    finally:
        OPEN.remove(deferral)
    deferral.run()


def fused(rule: Callable[..., Any], weight: Tensor, *arguments: Any) -> Any:
    """What `rule(weight, *arguments)` answers, its instructions run together where the weight is large enough.

    The rule runs once, here and now, whatever it does.
    """
    if not worth(weight):
        return rule(weight, *arguments)
    with deferring():
        answer = rule(weight, *arguments)
    return answer
