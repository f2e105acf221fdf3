"""The construction phase: an append-only list of instructions, checked at the line that records them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from topos.element import Element, f32
from topos.errors import ConsumedError, ElementError, KinshipError, SealedError, ShapeError
from topos.graph.adjoints import Adjoints
from topos.graph.append import append
from topos.graph.describe import described_spec
from topos.graph.detach import detach
from topos.graph.network import Network
from topos.graph.node import Nodes
from topos.graph.place import here, line
from topos.graph.recorded import recorded_gradients
from topos.graph.spec import Ids, Row, Spec
from topos.graph.symbol import Symbol
from topos.graph.value import Trace, Value
from topos.op import INPUT, LEAF, PARAMETER, Opcode, Source
from topos.op.movement import whole
from topos.shape import Shape
from topos.tensor import Tensor
from topos.tensor.tensor import constant


class Tape:
    """Records a spec: sources by the methods here, everything else by operators and methods of `Value`.

    `element` is the common number of its nodes. A call that fails leaves the tape as long as it was. Sealing
    (`into_network`) consumes the tape.

    >>> Tape.record(lambda tape: (tape.input([1, 2]) * 2).sum())
    (Network(5 nodes, f32), %4)
    """

    __slots__ = ("_consumed", "_scopes", "_spec", "_writing")

    def __init__(self, element: Element = f32) -> None:
        if not isinstance(element, Element):
            raise ElementError(f"tape: wants an element such as f32, got {element!r}")
        self._spec: Spec | None = Spec(element)
        self._consumed = ""
        self._scopes: list[str] = []
        self._writing: int | None = None

    @classmethod
    def record(cls, function: Callable[[Tape], Any], element: Element = f32) -> tuple[Network, Any]:
        """Records `function(tape)`, detaches what it answers and seals: `(network, names)`."""
        tape = cls(element)
        names = detach(function(tape))
        return tape.into_network(), names

    # sources
    def leaf(self, payload: Any, *, name: str | None = None, element: Element | None = None) -> Value:
        """A constant of the spec; a selection payload makes a constant selection."""
        tensor = self._payload(payload, element)
        return self._source(LEAF, tensor.shape, tensor.element, tensor, name)

    def parameter(self, payload: Any, *, name: str | None = None, element: Element | None = None) -> Value:
        """A slot of the caller's `Parameters`, with its initial payload."""
        tensor = self._dense("parameter", payload, element)
        return self._source(PARAMETER, tensor.shape, tensor.element, tensor, name)

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
            tensor = constant(Shape(shape), element or self._live().element, 0)
        else:
            tensor = self._dense("input", payload, element)
            if shape is not None and tensor.shape != Shape(shape):
                raise ShapeError(f"input: shape {Shape(shape)} was asked for, the payload has {tensor.shape}")
        return self._source(INPUT, tensor.shape, tensor.element, tensor, name)

    def selection(
        self, shape: Iterable[int], vocab: int, *, absent: int | None = None, name: str | None = None
    ) -> Value:
        """An input of integer ids of `shape`, standing for one-hot rows `[volume(shape), vocab]`.

        An id equal to `absent` selects nothing. It is fed with ids; unfed, a run raises `FeedError`.
        """
        extents, classes = Shape(shape), whole(vocab, "selection", "vocab")
        none = None if absent is None else whole(absent, "selection", "absent", -(2**63))
        ids = Ids(extents, classes, none)
        return self._source(INPUT, Shape((extents.volume, classes)), None, ids, name)

    # reading
    def resolve(self, symbol: Symbol) -> Value:
        """The live value that a symbol names."""
        return Value(self, self._live().index_of(symbol, "resolve"))

    def nodes(self) -> Sequence[Any]:
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
        return self._differentiated(self.index_of(target, "vjp"), seed, wrt, "vjp")

    def _differentiated(self, target: int, seed: Any, wrt: Any, rule: str) -> Adjoints:
        asked = wrt if isinstance(wrt, Iterable) and not isinstance(wrt, Value) else [wrt]
        indices = [self.index_of(entry, rule) for entry in asked]
        mark = self.mark()
        try:
            gradients = recorded_gradients(self, target, seed, indices)
        except BaseException:
            self.reset(mark)
            raise
        finally:
            self.write(None)
        pairs = [(Value(self, i), Value(self, g)) for i, g in zip(indices, gradients, strict=True)]
        return Adjoints(Value(self, target), pairs)

    # phases
    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefixes the names given inside it: `h0.` for `scope("h0")`."""
        self._live()
        if not isinstance(name, str) or not name:
            raise KinshipError(f"scope: must be a non-empty string, got {name!r}")
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def into_network(self) -> Network:
        """Seals the spec and consumes the tape."""
        spec = self._live()
        self._spec, self._consumed = None, line(here())
        return Network(spec)

    @classmethod
    def over(cls, spec: Spec) -> Tape:
        """A live tape over a spec that was sealed."""
        tape = cls(spec.element)
        tape._spec = spec
        return tape

    # what values and rules ask
    @property
    def spec(self) -> Spec:
        """The rows, while the tape is live."""
        return self._held()

    def append(self, opcode: Opcode, operands: tuple[Any, ...]) -> int:
        """Checks and appends one instruction; plain payloads among its operands become leaves before it."""
        return append(self, self._held(), opcode, operands, self._writing)

    def constant(self, like: int, count: int) -> int:
        """Appends a leaf filled with a count, of a row's shape and element."""
        spec = self._held()
        row = spec.rows[like]
        element = row.element or spec.element
        return self.place(LEAF, row.shape, element, constant(row.shape, element, count))

    def place(self, opcode: Source, shape: Shape, element: Element | None, payload: Tensor | Ids) -> int:
        """Appends a source with its payload, or with what its ids must look like."""
        spec = self._held()
        index = len(spec.rows)
        if isinstance(payload, Ids):
            spec.ids[index] = payload
        else:
            spec.payloads[index] = payload.among(spec.element)
        place = here() if self._writing is None else spec.rows[self._writing].place
        spec.rows.append(Row(opcode, (), shape, element, place, self._writing))
        return index

    def index_of(self, operand: Any, rule: str) -> int:
        """The row of one of this tape's values or of a symbol of its family."""
        if isinstance(operand, Trace):
            if operand._tape is not self:
                operand._tape._held()
                raise KinshipError(f"{rule}: a value of another tape stands beside this one's")
            self.row(operand.index)
            return operand.index
        return self._held().index_of(operand, rule)

    def row(self, index: int) -> Row:
        """A row of the live spec."""
        rows = self._held().rows
        if index >= len(rows):
            raise KinshipError(f"value: node %{index} was taken back when the call that recorded it failed")
        return rows[index]

    def write(self, origin: int | None) -> None:
        """From now on nodes are those that the derivative rule of row `origin` writes; `None`: the user's own."""
        self._writing = origin

    def mark(self) -> int:
        """How many nodes there are, for `reset`."""
        return len(self._held().rows)

    def reset(self, mark: int) -> None:
        """Takes back what was recorded after `mark`, if the tape is still live."""
        if self._spec is not None:
            self._spec.truncate(mark)

    def symbol_at(self, index: int) -> Symbol:
        """A row's detached name."""
        self.row(index)
        return Symbol(self._held().family, index)

    def payload_at(self, index: int) -> Tensor:
        """What a source was recorded with."""
        return self._held().payload(index)

    def name_at(self, index: int, name: str) -> None:
        """Names a row, inside the scopes that are open."""
        self.row(index)
        self._held().name(index, self._scoped(name))

    def label_at(self, index: int) -> str:
        """A row for people."""
        self.row(index)
        return self._held().label(index)

    # inner
    def _live(self) -> Spec:
        if self._spec is None:
            raise ConsumedError(f"tape: consumed{self._where()} by into_network; network.into_tape() reopens the spec")
        return self._spec

    def _held(self) -> Spec:
        """The live spec, for a value."""
        if self._spec is None:
            raise SealedError(
                f"value: its tape was sealed{self._where()}; take value.symbol() before sealing, "
                "or reopen with network.into_tape() and tape.resolve(symbol)"
            )
        return self._spec

    def _where(self) -> str:
        return f" at {self._consumed}" if self._consumed else ""

    def _payload(self, payload: Any, element: Element | None) -> Tensor:
        if element is not None and not isinstance(element, Element):
            raise ElementError(f"payload: wants an element such as f32, got {element!r}")
        return Tensor(payload, element or self._live().element)

    def _dense(self, rule: str, payload: Any, element: Element | None) -> Tensor:
        tensor = self._payload(payload, element)
        if tensor.ids is not None:
            raise ElementError(f"{rule}: a selection is fed to tape.selection(shape, vocab), or is a leaf")
        return tensor

    def _scoped(self, name: str) -> str:
        return ".".join([*self._scopes, name]) if isinstance(name, str) and name else name

    def _source(
        self, opcode: Source, shape: Shape, element: Element | None, payload: Tensor | Ids, name: str | None
    ) -> Value:
        mark = len(self)
        try:
            index = self.place(opcode, shape, element, payload)
            if name is not None:
                self.name_at(index, name)
        except BaseException:
            self.reset(mark)
            raise
        return Value(self, index)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Tape is neither copied nor pickled: the spec is written once; topos.save is its file form")

    def __repr__(self) -> str:
        return "Tape(sealed)" if self._spec is None else f"Tape({len(self._spec.rows)} nodes, {self._spec.element})"
