"""What a run answers: the declared values, and the gradients of a retaining one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any, NoReturn

import numpy as np

from topos.element import Element
from topos.element.machine import check_arithmetic
from topos.engine.report import Report, Watch
from topos.errors import KinshipError, PostureError, ShapeError, UnobservedError
from topos.graph import Adjoints, Field, Parameters, Symbol, Table, Value
from topos.graph.nesting import mapped
from topos.graph.reverse import sweep
from topos.graph.spec import Row, Spec
from topos.op import Parameter
from topos.records import NamedTuple
from topos.shape import Shape
from topos.tensor import Tensor
from topos.tensor.tensor import constant


class Gradients(Field):
    """The cotangent of every node of one target's run; what the target does not depend on has a zero."""

    __slots__ = ("_spec", "target")

    def __init__(self, spec: Spec, target: int, cotangents: Mapping[int, Tensor], evaluated: Iterable[int]) -> None:
        zeros: dict[tuple[Shape, Element], Tensor] = {}

        def zero(row: Row) -> Tensor:
            kind = row.shape, row.element or spec.element
            if kind not in zeros:
                zeros[kind] = constant(*kind, 0)
            return zeros[kind]

        entries = {i: cotangents[i] if i in cotangents else zero(spec.rows[i]) for i in evaluated}
        super().__init__(spec.family, entries)
        self._spec = spec
        self.target = Symbol(spec.family, target)

    def of(self, symbol: Symbol) -> Tensor:
        """The gradient with respect to a node. Raises `KinshipError` for one that this run did not evaluate."""
        tensor = self.get(self._spec.index_of(symbol, "gradients"))
        if tensor is None:
            raise KinshipError(f"gradients: {symbol} was not evaluated by this run")
        return tensor

    def parameters(self, parameters: Parameters) -> Parameters:
        """The gradients of the table's slots; a slot that this run did not evaluate is absent."""
        self._expect_kin(parameters)
        return Parameters(self.family, {index: self.get(index) for index in parameters.rows()})

    def _with(self, entries: Mapping[int, Tensor | None]) -> Any:
        return Field(self.family, entries)

    def __reduce__(self) -> tuple[Any, ...]:
        return Field, (self.family, self._entries)


class Shown(NamedTuple):
    """What the runs of one plan have in common: the nodes that they cover, and which of them may be read."""

    spec: Spec
    length: int
    readable: frozenset[int] | None
    retains: bool


class Run:
    """The values of one evaluation. Results own their buffers and outlive later calls.

    >>> from topos import Tape
    >>> network, (weight, cube) = Tape.record(lambda tape: [weight := tape.parameter(2.0), weight * weight * weight])
    >>> run = network.forward(network.parameters())
    >>> run.of({"cube": cube}), run.backward(cube).of(weight)
    ({'cube': Tensor(8., f32)}, Tensor(12., f32))
    """

    __slots__ = ("_shown", "_values", "_watch")

    def __init__(self, shown: Shown, values: Mapping[int, Tensor], watch: Watch | None = None) -> None:
        self._shown = shown
        self._values = values
        self._watch = watch

    def of(self, symbols: Any) -> Any:
        """The value of a symbol; for a nesting of symbols the same nesting of tensors, where other leaves stay.

        Raises `UnobservedError` for a node that the entry does not declare.
        """
        if type(symbols) is Symbol:
            return self._value(symbols)
        if isinstance(symbols, tuple | list | dict) or is_dataclass(symbols):
            return mapped(symbols, self._leaf)
        return self._value(symbols)

    def backward(self, symbol: Symbol) -> Gradients:
        """The gradients of a rank-0 node with respect to every node, by the rules over tensors.

        Raises `PostureError` for a forward-only run, `ShapeError` for a target that is not of rank 0.
        """
        self._expect_retaining("backward")
        spec, values = self._shown.spec, self._values
        target = spec.index_of(symbol, "backward", self._shown.length)
        if target not in values:
            raise UnobservedError(f"backward: {spec.label(target)} was not evaluated by this run")
        if spec.rows[target].shape:
            raise ShapeError(f"backward: the target must have rank 0, got {spec.label(target)}")
        seed = constant(spec.rows[target].shape, spec.element_of(target), 1)
        check_arithmetic()
        with np.errstate(all="ignore"):
            cotangents = sweep(spec.rows, target, seed, values.__getitem__)
        return Gradients(spec, target, cotangents, values)

    def recorded_gradients(self, adjoints: Adjoints) -> Parameters:
        """Recorded gradients as a table over this run's parameters; a slot that was not asked for is absent."""
        if not isinstance(adjoints, Adjoints):
            raise KinshipError(f"recorded_gradients: wants Adjoints, got {type(adjoints).__name__}")
        pairs = adjoints.detach() if any(isinstance(wrt, Value) for wrt, _ in adjoints) else adjoints
        spec = self._shown.spec
        rows = spec.rows[: self._shown.length]
        entries: dict[int, Tensor | None] = {i: None for i, row in enumerate(rows) if type(row.opcode) is Parameter}
        for wrt, gradient in pairs:
            if wrt.index in entries:
                entries[wrt.index] = self._value(gradient)
        return Parameters(spec.family, entries)

    def field(self) -> Table:
        """Every evaluated value. Raises `PostureError` for a run that did not retain them."""
        self._expect_retaining("field")
        return Field(self._shown.spec.family, self._values)

    def report(self) -> Report | None:
        """The first value that is not finite and the first NaN, or `None`; of an entry with `diagnose()`."""
        if self._watch is None:
            raise PostureError("report: this run was not watched; declare it with entry.diagnose()")
        return self._watch.report()

    def __repr__(self) -> str:
        readable = self._values if self._shown.readable is None else self._shown.readable
        return f"Run({len(readable)} of {self._shown.length} nodes readable)"

    def __copy__(self) -> Run:
        return self

    def __deepcopy__(self, memo: Any) -> Run:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Run holds its spec and is not pickled; keep what run.of(symbols) or run.field() answers")

    def _leaf(self, part: Any) -> Any:
        return self._value(part) if isinstance(part, Symbol | Value | Adjoints) else part

    def _value(self, symbol: Any) -> Tensor:
        spec, length, readable, _ = self._shown
        if type(symbol) is Symbol and symbol.family is spec.family and readable and symbol.index in readable:
            return self._values[symbol.index]
        if isinstance(symbol, Adjoints):
            raise KinshipError("run: read adjoints with run.recorded_gradients(adjoints) or run.of(adjoints.roots())")
        index = spec.index_of(symbol, "run", length)
        if index not in (self._values if readable is None else readable):
            raise UnobservedError(f"run: {spec.label(index)} was not declared; observe it: entry.observe([symbol])")
        return self._values[index]

    def _expect_retaining(self, what: str) -> None:
        if not self._shown.retains:
            raise PostureError(f"{what}: this run did not retain its values; declare it with entry.backward()")
