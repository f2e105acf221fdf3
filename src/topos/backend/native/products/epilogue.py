"""What is done with finished results instead of storing them: a function over lanes, written by whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable

from topos.records import NamedTuple


class Finish(NamedTuple):
    """The function that an epilogue writes: `void @name(parameters)`.

    The parameters are `%arguments` (the kernel's, in which the epilogue's own pointers stand behind left, right and
    out), `%value`, `%batch`, `%row` and `%column`. `%value` holds `lanes` results of the product's element, bf16 as the
    f32 numbers that they are; of one lane it is no vector. The first `active` exist: those of one product of the batch
    (its number in row-major order of the task's leading axes), from a row and a column on, along the columns, or along
    the rows where `along_rows`.
    """

    name: str
    lanes: int
    active: int
    along_rows: bool
    parameters: str


class Definition(NamedTuple):
    """The text of the function, `define void @name(parameters) ...`, and what it needs beside it by its first line."""

    text: str
    helpers: tuple[str, ...] = ()


class Epilogue(NamedTuple):
    """`define` writes the function, which stores what is to be stored; `pointers` is how many arguments are its own.

    A product with an epilogue stores nothing itself: `out` may be the first of several results, or no result at all.
    """

    define: Callable[[Finish], Definition]
    pointers: int = 0


def parameters(scalar: str, lanes: int) -> str:
    """The parameters of the function."""
    value = scalar if lanes == 1 else f"<{lanes} x {scalar}>"
    return f"ptr %arguments, {value} %value, i64 %batch, i64 %row, i64 %column"


def internal(definition: str) -> str:
    """The definition, to be seen by its own module alone and written out where it is called."""
    head, rest = definition.split("{", 1)
    return head.replace("define void", "define internal void", 1) + "alwaysinline {" + rest
