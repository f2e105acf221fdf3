"""The only payload: an immutable tensor of one element."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from math import prod
from typing import Any, Self

import numpy as np

from topos import reference
from topos.element import Element, f32
from topos.element.element import Array
from topos.element.machine import check_arithmetic
from topos.errors import ElementError, RecordedError, ShapeError
from topos.op import Composites, Elementwise, Indexing, Opcode, Recordable
from topos.op.movement import whole
from topos.op.recordable import is_number
from topos.shape import Shape
from topos.tensor.deferred import OPEN, Deferrable, Holder, elsewhere
from topos.tensor.evaluate import kernel_of
from topos.tensor.memory import owned
from topos.tensor.offer import LEAST_PLACES, multiplies
from topos.tensor.payload import as_array, count_in, digits, element_of, everywhere, number_of, rounded
from topos.tensor.selection import checked_ids


class Tensor(Deferrable, Composites):
    """An immutable tensor: a dense array (of any strides; a constant is one number with all strides 0) or a selection.

    `Tensor(payload)` copies: a number, a list, a NumPy array (f64 and bf16 stay, everything else becomes f32 unless
    `element` is given), anything that speaks DLPack, or a Tensor. Each number is rounded once; an integer that the
    element does not hold exactly raises `ElementError`. Every instruction and composition is a method, and computes the
    defining bits at once.

    >>> weights = Tensor([[0.5, -0.25], [0.25, 0.4]])
    >>> (Tensor([[1, 2]]) @ weights).tanh()
    Tensor([[0.7615942, 0.5005202]], f32)
    """

    __slots__ = ("_common", "element", "shape", "vocab")
    shape: Shape
    element: Element | None
    _common: Element
    vocab: int

    def __new__(cls, payload: Any, element: Element | None = None) -> Tensor:
        if isinstance(payload, Tensor):
            return payload if element is None else payload.expect(element)
        if isinstance(payload, Recordable):
            raise RecordedError(f"payload: wants numbers, got a {type(payload).__name__}; read one with run.of(symbol)")
        if element is not None and not isinstance(element, Element):
            raise ElementError(f"payload: wants an element such as f32, got {element!r}")
        array = as_array(payload)
        element = element or element_of(payload, array)
        taken = rounded(payload, array, element)
        return cls.of(owned(taken, np.may_share_memory(taken, array)), element)

    @classmethod
    def of(cls, array: Array, element: Element, shape: Shape | None = None) -> Tensor:
        """Takes an array of the element's dtype as it is; nobody writes to it from now on.

        NumPy's operators answer scalars for rank 0, which a user's element may hand on. Raises `ElementError` for
        another dtype or another shape than asked for: an element's operation that forgot to come back to its own.
        """
        if type(array) is not np.ndarray:
            array = np.asarray(array)
        if array.dtype != element.dtype:
            raise ElementError(f"element {element}: an operation answered {array.dtype}, wants {element.dtype}")
        if shape is None:
            shape = Shape(array.shape)
        elif not tuple.__eq__(array.shape, shape):
            raise ElementError(f"element {element}: an operation answered shape {Shape(array.shape)}, wants {shape}")
        return cls.held(array, element, shape)

    @classmethod
    def held(cls, array: Array, element: Element, shape: Shape) -> Tensor:
        """An array that is known to be of this element and shape, which nobody writes to."""
        tensor = object.__new__(cls)
        tensor._array = array
        tensor.element = element
        tensor.ids = None
        tensor.shape = shape
        return tensor

    @classmethod
    def awaited(cls, holder: Holder, element: Element, shape: Shape) -> Tensor:
        """What will have its numbers when somebody reads one."""
        tensor = object.__new__(cls)
        tensor._holder = holder
        tensor.element = element
        tensor.ids = None
        tensor.shape = shape
        return tensor

    @classmethod
    def frozen(cls, array: Array) -> Tensor:
        """Keeps a read-only array (a memory map) of an f32, f64 or bf16 dtype without a copy.

        Others may change what it shares from run to run: nothing that is worked out of it is kept.
        Raises `ElementError` for a writable array or one that would need a conversion.
        """
        if not isinstance(array, np.ndarray):
            raise ElementError(f"frozen: wants a NumPy array, got {type(array).__name__}")
        element = element_of(array, array)
        if array.dtype != element.dtype:
            raise ElementError(f"frozen: wants an array of {element}, got {array.dtype}; Tensor(array) converts")
        if array.flags.writeable:
            raise ElementError("frozen: the array must be read-only (array.flags.writeable = False); Tensor copies it")
        return cls.of(np.asarray(array), element)

    @classmethod
    def filled(cls, shape: Iterable[int], number: Any, element: Element = f32) -> Tensor:
        """One number at every place of `shape`, stored once."""
        extents = Shape(shape)
        scalar = Tensor(number, element)
        if scalar.shape.rank:
            raise ShapeError(f"filled: wants one number, got shape {scalar.shape}")
        held = scalar.element or f32
        return cls.of(everywhere(scalar.dense(held), extents), held, extents)

    @classmethod
    def selection(cls, indices: Any, vocab: int, *, absent: int | None = None) -> Tensor:
        """One-hot rows that are never materialised: `[volume(indices), vocab]`, row `i` one at `indices[i]`.

        An index equal to `absent` selects nothing: a zero row. Raises `FeedError` that names position and vocab for
        an index outside `0 .. vocab - 1`.
        """
        vocab = whole(vocab, "selection", "vocab")
        absent = None if absent is None else whole(absent, "selection", "absent", -(2**63))
        ids = checked_ids(indices, vocab, absent, "selection")
        return cls.of_ids(ids.reshape(-1), vocab, f32)

    @classmethod
    def of_ids(cls, ids: Array, vocab: int, common: Element) -> Tensor:
        """A selection of checked int64 ids of rank 1, -1 where nothing is selected; nobody writes to them."""
        tensor = object.__new__(cls)
        tensor._array = None
        tensor._common = common
        tensor.element = None
        ids.setflags(write=False)  # it is handed out
        tensor.ids = ids
        tensor.vocab = vocab
        tensor.shape = Shape((ids.size, vocab))
        return tensor

    def among(self, common: Element) -> Tensor:
        """This tensor as a spec over `common` has it: what an instruction over selections alone answers is of it."""
        if self.ids is None or self._common is common:
            return self
        return Tensor.of_ids(self.ids, self.vocab, common)

    # the payload that instructions run over
    def apply(self, opcode: Opcode, operands: tuple[Any, ...]) -> Tensor:
        """Computes one instruction; an operand that records takes the others onto its tape instead."""
        for operand in operands:
            if type(operand) is not Tensor and isinstance(operand, Recordable) and not isinstance(operand, Tensor):
                return operand.apply(opcode, operands)  # type: ignore[return-value]
        element = opcode.result_element([o.element for o in operands if isinstance(o, Tensor)]) or self._shared()
        spread = self.shape if isinstance(opcode, Elementwise) else None
        tensors = [o if isinstance(o, Tensor) else operand_tensor(o, element, spread) for o in operands]
        shapes = [tensor.shape for tensor in tensors]
        shape = opcode.result_shape(shapes)
        if spread is None and isinstance(opcode, Indexing) and tensors[1].ids is None:
            raise ElementError(f"{opcode.rule}: wants a selection (Tensor.selection), got a dense tensor")
        check_arithmetic()
        if OPEN or prod(shapes[0]) >= LEAST_PLACES or (spread is None and multiplies(opcode, shapes)):
            found = elsewhere(opcode, element, tensors, shape)
            if isinstance(found, Holder):
                return Tensor.awaited(found, element, shape)
            if found is not None:
                return Tensor.held(found, element, shape)
        with np.errstate(all="ignore"):
            return Tensor.of(kernel_of(opcode)(opcode, element, tensors), element, shape)

    def zero_like(self) -> Tensor:
        """Zero at every place."""
        return self.counted(0)

    def one_like(self) -> Tensor:
        """One at every place."""
        return self.counted(1)

    def counted(self, count: int) -> Tensor:
        """The integer `count`, rounded to nearest even, at every place."""
        return constant(self.shape, self.element or self._shared(), count)

    def _shared(self) -> Element:
        return f32 if self.ids is None else self._common

    def dense(self, element: Element) -> Array:
        """The numbers as an array nobody may write to; a selection as its one-hot in `element`."""
        if self._array is not None:
            return self._array
        assert self.ids is not None
        return reference.one_hot(element, self.ids, self.vocab)

    @property
    def absent(self) -> int | None:
        """-1 where a selection has an id that selects nothing, `None` where every id selects, and for what is none."""
        return None if self.ids is None or not (self.ids < 0).any() else -1

    def expect(self, element: Element) -> Tensor:
        """This tensor where it is of `element` (a selection is of any); else `ElementError`."""
        if self.element is not element and self.element is not None:
            raise ElementError(f"payload: wants element {element}, got a tensor of {self.element}; see tensor.convert")
        return self

    def convert(self, element: Element) -> Tensor:
        """The numbers in another element, each rounded once."""
        return self.to(element)

    def as_constant(self) -> Tensor | None:
        """The one number that fills every place as a tensor of rank 0, or `None` where it is not stored so."""
        if self._array is None or any(s and e > 1 for s, e in zip(self._array.strides, self.shape, strict=True)):
            return None
        if not self.shape.volume:
            return None
        assert self.element is not None
        first: Any = (*(0,) * self.shape.rank, ...)
        return Tensor.of(self._array[first], self.element)

    # out
    def numpy(self) -> Array:
        """The numbers as a read-only NumPy array that shares this tensor's buffer; a selection as f32 one-hots."""
        view = self.dense(self.element or f32).view()
        view.flags.writeable = False
        return view

    def scalar(self) -> Any:
        """The one number of a tensor of volume 1, as a NumPy scalar."""
        if self.shape.volume != 1:
            raise ShapeError(f"scalar: wants volume 1, got {self.shape}")
        return self.numpy().reshape(())[()]

    def __float__(self) -> float:
        return float(self.scalar())

    def tolist(self) -> Any:
        """Nested Python lists of Python numbers, a plain number for rank 0."""
        return self.numpy().tolist()

    def __len__(self) -> int:
        if not self.shape:
            raise RecordedError("len: a tensor of rank 0 has no length")
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"a {array.dtype} tensor as {dtype} needs a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **options: Any) -> Any:
        array = self.numpy()
        if array.dtype.kind != "f":
            raise BufferError(f"dlpack: NumPy cannot export {self.element}; export tensor.convert(f32)")
        version = options.get("max_version")
        if version is None or version[0] < 1:  # that protocol cannot say read-only: hand out a copy
            array = array.copy()
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.ids is not None:
            return partial(Tensor.selection, absent=-1), (self.ids, self.vocab)
        return Tensor.of, (np.ascontiguousarray(self.numpy()).reshape(self.shape), self.element)

    def __repr__(self) -> str:
        if self.ids is not None:
            return f"Tensor.selection({digits(self.ids, 'Tensor.selection(')}, {self.vocab})"
        return f"Tensor({digits(self.numpy(), 'Tensor(')}, {self.element})"


def constant(shape: Shape, element: Element, count: int) -> Tensor:
    """A count at every place of `shape`, stored once."""
    return Tensor.of(everywhere(count_in(element, count), shape), element, shape)


def operand_tensor(payload: Any, element: Element, spread: Shape | None) -> Tensor:
    """A plain operand of an eager instruction as a tensor: a number is spread to `spread`, where there is one."""
    number = None if spread is None else number_of(payload, element)
    if number is not None and spread is not None:
        return Tensor.held(everywhere(number, spread), element, spread)
    tensor = Tensor(payload, element)
    return Tensor.filled(spread, tensor, element) if spread and is_number(payload) else tensor
