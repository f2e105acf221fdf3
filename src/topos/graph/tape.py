"""The construction phase: an append-only list of instructions, checked at the line that records them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from topos.element import Element, f32
from topos.errors import ElementError, KinshipError, ShapeError
from topos.graph.adjoints import Adjoints
from topos.graph.describe import counted, described_spec
from topos.graph.detach import detach
from topos.graph.network import Network
from topos.graph.node import Nodes
from topos.graph.place import here, line
from topos.graph.recorded import recorded_gradients
from topos.graph.recording import Recording
from topos.graph.spec import Ids, Spec
from topos.graph.symbol import Symbol
from topos.graph.value import Value
from topos.op import INPUT, LEAF, PARAMETER, Source
from topos.op.movement import whole
from topos.shape import Shape
from topos.tensor import Tensor
from topos.tensor.tensor import constant


class Tape(Recording):
    """Records a spec: sources by the methods here, everything else by operators and methods of `Value`.

    `element` is the common number of its nodes. A call that fails leaves the tape as long as it was. Sealing
    (`into_network`) consumes the tape.

    >>> Tape.record(lambda tape: (tape.input([1, 2]) * 2).sum())
    (Network(5 nodes, f32), %4)
    """

    __slots__ = ()

    def __init__(self, element: Element = f32) -> None:
        if not isinstance(element, Element):
            raise ElementError(f"tape: wants an element such as f32, got {element!r}")
        super().__init__(Spec(element))

    @classmethod
    def record(cls, function: Callable[[Tape], Any], element: Element = f32) -> tuple[Network, Any]:
        """Records `function(tape)`, detaches what it answers and seals: `(network, names)`."""
        tape = cls(element)
        names = detach(function(tape))
        return tape.into_network(), names

    # sources
    def leaf(self, payload: Any, *, name: str | None = None, element: Element | None = None) -> Value:
        """A constant of the spec; a selection payload makes a constant selection."""
        return self._source(LEAF, self._payload(payload, element), name)

    def parameter(self, payload: Any, *, name: str | None = None, element: Element | None = None) -> Value:
        """A slot of the caller's `Parameters`, with its initial payload."""
        return self._source(PARAMETER, self._dense("parameter", payload, element), name)

    def input(
        self,
        payload: Any = None,
        *,
        shape: Iterable[int] | None = None,
        name: str | None = None,
        element: Element | None = None,
    ) -> Value:
        """A source that is fed per run; unfed, it takes `payload`, or zeros of `shape`."""
        if payload is None:
            if shape is None:
                raise ShapeError("input: wants a default payload, or the shape of one that is zero")
            tensor = constant(Shape(shape), self._element(element), 0)
        else:
            tensor = self._dense("input", payload, element)
            if shape is not None and tensor.shape != Shape(shape):
                raise ShapeError(f"input: shape {Shape(shape)} was asked for, the payload has {tensor.shape}")
        return self._source(INPUT, tensor, name)

    def selection(
        self, shape: Iterable[int], vocab: int, *, absent: int | None = None, name: str | None = None
    ) -> Value:
        """An input of integer ids of `shape`, standing for one-hot rows `[volume(shape), vocab]`.

        An id equal to `absent` selects nothing. It is fed with ids; unfed, a run raises `FeedError`.
        """
        extents, classes = Shape(shape), whole(vocab, "selection", "vocab")
        none = None if absent is None else whole(absent, "selection", "absent", -(2**63))
        return self._source(INPUT, Ids(extents, classes, none), name)

    # reading
    @property
    def element(self) -> Element:
        """The common number of its nodes."""
        return self._live().element

    @property
    def path(self) -> str:
        """The scopes that are open, outermost first and joined by dots; empty outside of any."""
        return ".".join(self._scopes)

    def resolve(self, symbol: Symbol | Value) -> Value:
        """The live value that a symbol names; a value of this tape is its own."""
        self._live()
        return Value(self, self.index_of(symbol, "resolve"))

    def nodes(self) -> Nodes:
        """The nodes recorded so far."""
        spec = self._live()
        return Nodes(spec, len(spec.rows))

    def __len__(self) -> int:
        return len(self._live().rows)

    def describe(self, *, names: bool = False, lines: bool = False) -> str:
        """One line per node, with names and source lines on request; the last line counts them."""
        spec = self._live()
        return described_spec(spec, len(spec.rows), "tape", names, lines)

    # differentiation
    def differentiate(self, target: Any, wrt: Any) -> Adjoints:
        """Records the gradients of a rank-0 target with respect to each entry of `wrt` (symbols or values)."""
        self._live()
        index = self.index_of(target, "differentiate")
        if self.row(index).shape:
            raise ShapeError(
                f"differentiate: the target must have rank 0, got {self.label_at(index)}; tape.vjp takes a seed"
            )
        return self._differentiated(index, None, wrt, "differentiate")

    def vjp(self, target: Any, seed: Any, wrt: Any) -> Adjoints:
        """Records the product of `seed` (of the target's shape) with the target's derivative in each entry of `wrt`."""
        self._live()
        if seed is None:
            raise ElementError("vjp: wants a seed of the target's shape, got None; tape.differentiate seeds with one")
        return self._differentiated(self.index_of(target, "vjp"), seed, wrt, "vjp")

    def _differentiated(self, target: int, seed: Any, wrt: Any, rule: str) -> Adjoints:
        asked = wrt if isinstance(wrt, Iterable) and not isinstance(wrt, Value | np.ndarray | str) else [wrt]
        indices = [self.index_of(entry, rule) for entry in asked]
        mark = self.mark()
        try:
            gradients = recorded_gradients(self, target, seed, indices)
            pairs = [(Value(self, i), Value(self, g)) for i, g in zip(indices, gradients, strict=True)]
            return Adjoints(Value(self, target), pairs)
        except BaseException:
            self.write(None)
            self.reset(mark)
            raise

    # phases
    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefixes the names given inside it: `h0.` for `scope("h0")`."""
        self._live()
        if not isinstance(name, str) or not name:
            raise KinshipError(f"scope: must be a non-empty string, got {name!r}")
        depth = len(self._scopes)
        try:
            self._scopes.append(name)
            yield
        finally:
            del self._scopes[depth:]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keeps what its block records whole, or, where the block raises, nothing of it.

        >>> tape = Tape()
        >>> x = tape.input([1, 2])
        >>> try:
        ...     with tape.transaction():
        ...         (x * 2) @ x
        ... except ShapeError:
        ...     print(len(tape))
        1
        """
        self._live()
        mark = self.mark()
        try:
            yield
        except BaseException:
            self.reset(mark)
            raise

    def into_network(self) -> Network:
        """Seals the spec and consumes the tape."""
        spec = self._live()
        self._spec, self._consumed = None, line(here())
        return Network(spec)

    @classmethod
    def over(cls, spec: Spec) -> Tape:
        """A live tape over a spec that was sealed."""
        tape = cls.__new__(cls)
        Recording.__init__(tape, spec)
        return tape

    # inner
    def _payload(self, payload: Any, element: Element | None) -> Tensor:
        return Tensor(payload, self._element(element))

    def _element(self, element: Element | None) -> Element:
        if element is not None and not isinstance(element, Element):
            raise ElementError(f"payload: wants an element such as f32, got {element!r}")
        return self._live().element if element is None else element

    def _dense(self, rule: str, payload: Any, element: Element | None) -> Tensor:
        tensor = self._payload(payload, element)
        if tensor.ids is not None:
            raise ElementError(f"{rule}: a selection is fed to tape.selection(shape, vocab), or is a leaf")
        return tensor

    def _source(self, opcode: Source, payload: Tensor | Ids, name: str | None) -> Value:
        mark = len(self)
        try:
            index = self.place(opcode, payload)
            if name is not None:
                self.name_at(index, name)
        except BaseException:
            self.reset(mark)
            raise
        return Value(self, index)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Tape is neither copied nor pickled; seal it, and topos.save(path, network) writes it")

    def __repr__(self) -> str:
        return (
            "Tape(sealed)"
            if self._spec is None
            else f"Tape({counted(len(self._spec.rows), 'node')}, {self._spec.element})"
        )
