"""Stages that run one after another in one kernel, over memory that a worker keeps for itself."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from topos.backend.native.arena import FirstFit
from topos.backend.native.kernel import Kernel, named
from topos.backend.native.products.frame import argument
from topos.backend.native.products.regions import base
from topos.backend.native.products.text import Text
from topos.backend.native.program import Call, Pointer
from topos.tensor.memory import LINE, whole_lines

FunctionWriter = Callable[[str, dict[str, str]], str]
"""What answers the text of a function of some name, and adds to what that needs beside it."""


class Stages:
    """The calls of some stages, and where in a worker's memory the values between them and the scratch of each lie.

    `sizes` are the bytes of those values, in the order in which they are computed; one takes the place of another that
    no stage reads any more, unless that is `lasting`. `further` names the parameter that each stage has beside a
    kernel's own. The scratch of the stages `apart` is the caller's.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        sizes: Mapping[int, int],
        further: Sequence[str],
        apart: Container[int] = (),
        lasting: Container[int] = (),
    ) -> None:
        self.calls, self.further = calls, further
        self.values: dict[int, int] = {}
        self.scratch: list[int] = []
        memory = FirstFit()
        for row, size in sizes.items():
            used = [at for at, call in enumerate(calls) if any(operand.row == row for operand in call.operands)]
            self.values[row] = memory.take(size, min(used), len(calls) if row in lasting else max(used))
        self.bytes = memory.bytes
        for at, call in enumerate(calls):
            self.scratch.append(self.bytes)
            self.bytes += 0 if at in apart else whole_lines(call.scratch_bytes)

    def call(self, pointers: list[Pointer], tiles: int, write: FunctionWriter) -> Call:
        """The kernel and its operands; `write` answers the text of the function that runs the stages."""
        size = tiles * self.bytes + LINE if self.bytes else 0
        return Call((self.kernel("cascade", tiles, size, write),), pointers)

    def kernel(self, stem: str, tiles: int, scratch_bytes: int, write: FunctionWriter) -> Kernel:
        """A kernel that runs the stages over a scratch of so many bytes."""
        helpers: dict[str, None] = {}
        stages: dict[str, str] = {}
        for call, further in zip(self.calls, self.further, strict=True):
            for kernel in call.kernels:
                helpers.update(dict.fromkeys(kernel.helpers))
                stages[kernel.name] = kernel.internal(further)
        own: dict[str, str] = {}

        def text(name: str) -> str:
            return "\n".join([write(name, own), *stages.values()])

        kernel = named(stem, text, tiles, scratch_bytes)
        return kernel._replace(helpers=tuple({**helpers, **dict.fromkeys(own.values())}))

    def begin(self, text: Text, places: int) -> tuple[list[str], str]:
        """The tables of the stages' arguments; answers the kernel's arguments and the worker's memory."""
        arguments = self.tables(text, places)
        if not self.bytes:
            return arguments, "poison"
        start = base(text, argument(text, places))
        return arguments, text.at(start, text.mul("%worker", self.bytes))

    def tables(self, text: Text, places: int) -> list[str]:
        """The tables of the stages' arguments; answers the kernel's arguments."""
        for at, call in enumerate(self.calls):
            text.do(f"%table_{at} = alloca [{len(call.operands) + 1} x ptr], align 16")
        return [argument(text, place) for place in range(places)]

    def fill(self, text: Text, at: int, scratch: str, place: Callable[[Pointer], str]) -> None:
        """The arguments of a stage, each where `place` says."""
        call = self.calls[at]
        pointers = [place(operand) for operand in call.operands]
        if call.scratch_bytes:
            pointers.append(scratch)
        for index, pointer in enumerate(pointers):
            text.do(f"store ptr {pointer}, ptr {text.at(f'%table_{at}', 8 * index)}, align 8")

    def run(self, text: Text, at: int, kernel: Kernel, further: str, worker: str = "0") -> None:
        """Every tile of a kernel of a stage."""
        text.loop("0", str(kernel.tiles), 1, lambda index, _: tile(text, at, kernel, index, worker, further))


def tile(text: Text, at: int, kernel: Kernel, index: str, worker: str, further: str) -> None:
    """One tile of a kernel of a stage."""
    text.do(f"call void @{kernel.name}(ptr %table_{at}, i64 {index}, i64 {worker}, i64 {further})")
