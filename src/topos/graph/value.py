"""The operands of recording: positions on a live tape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

from topos.element import Element
from topos.errors import RecordedError
from topos.graph.symbol import Symbol
from topos.op import Composites, Opcode, Recordable
from topos.shape import Shape
from topos.tensor import Tensor

if TYPE_CHECKING:
    from topos.graph.recording import Recording
    from topos.graph.tape import Tape


class Trace(Composites):
    """A recorded payload: what a derivative rule sees when it writes. Each instruction appends a node to the tape."""

    __slots__ = ("index", "recording")

    def __init__(self, recording: Recording, index: int) -> None:
        self.recording = recording
        self.index = index

    def apply(self, opcode: Opcode, operands: tuple[Any, ...]) -> Self:
        """Records one instruction; everything is checked before anything is appended."""
        for operand in operands:
            if type(operand) is not type(self) and isinstance(operand, Recordable) and _takes_over(operand):
                return operand.apply(opcode, operands)  # type: ignore[return-value]
        return type(self)(self.recording, self.recording.append(opcode, operands))

    @property
    def shape(self) -> Shape:
        return self.recording.row(self.index).shape

    @property
    def element(self) -> Element | None:
        return self.recording.row(self.index).element

    def zero_like(self) -> Self:
        return self.counted(0)

    def one_like(self) -> Self:
        return self.counted(1)

    def counted(self, count: int) -> Self:
        return type(self)(self.recording, self.recording.constant(self.index, count))

    def __array__(self, *arguments: Any, **options: Any) -> NoReturn:
        raise RecordedError("array: a recorded value has no numbers yet; run an entry and read run.of(symbol)")

    def mark(self) -> int:
        return self.recording.mark()

    def reset(self, mark: int) -> None:
        self.recording.reset(mark)


def _takes_over(payload: Recordable) -> bool:
    """Whether it is a user's payload, which takes recorded values into itself (a dual number does)."""
    return not isinstance(payload, Trace | Tensor)


class Value(Trace):
    """An operand bound to its tape; operators record and do not consume it.

    Beside it may stand a Python number (a leaf, spread by a recorded `Broadcast` where the rank is above 0), an array
    or tensor (a leaf of its own shape), or a symbol of the same family. `==` is identity of the node. After the tape is
    sealed it raises `SealedError`: take `.symbol()` before.

    >>> from topos import Tape
    >>> tape = Tape()
    >>> x = tape.input([1, 2, 3])
    >>> y = 2 * x[:2]
    >>> y.shape, y.symbol(), x.payload()
    ([2], %4, Tensor([1., 2., 3.], f32))
    """

    __slots__ = ()

    @property
    def tape(self) -> Tape:
        """The tape it is bound to."""
        self.recording.row(self.index)
        return cast("Tape", self.recording)

    def symbol(self) -> Symbol:
        """Its detached name, which outlives the tape."""
        return self.recording.symbol_at(self.index)

    def payload(self) -> Tensor:
        """What a source was recorded with: a leaf's constant, a parameter's initial, an input's default."""
        return self.recording.payload_at(self.index)

    @property
    def absent(self) -> int | None:
        """The id with which a selection selects nothing; `None` where every id selects, and for what is none."""
        return self.recording.absent_at(self.index)

    def named(self, name: str) -> Self:
        """Itself, after its node was given a name (inside a scope, prefixed by it)."""
        self.recording.name_at(self.index, name)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and self.index == other.index and self.recording is other.recording

    def __hash__(self) -> int:
        return hash((id(self.recording), self.index))

    def __float__(self) -> NoReturn:
        raise RecordedError("float: a recorded value has no number yet; run an entry and read run.of(symbol)")

    def __len__(self) -> int:
        if not self.shape:
            raise RecordedError("len: a value of rank 0 has no length")
        return self.shape[0]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Value is bound to its tape and is neither copied nor pickled; take .symbol()")

    def __repr__(self) -> str:
        return self.recording.label_at(self.index)
