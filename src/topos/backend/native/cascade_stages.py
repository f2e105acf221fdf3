"""Stages that run one after another in one kernel, over memory that a worker keeps for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from topos.backend.native.kernel import Kernel, named
from topos.backend.native.products.frame import argument
from topos.backend.native.products.regions import base
from topos.backend.native.products.text import Text
from topos.backend.native.program import Call, Pointer
from topos.tensor.memory import LINE, whole_lines


class Stages:
    """The calls of some stages, and where in a worker's memory the values between them and the scratch of each lie.

    `sizes` are the bytes of those values; `further` names the parameter that each stage has beside a kernel's own.
    """

    def __init__(self, calls: Sequence[Call], sizes: Mapping[int, int], further: Sequence[str]) -> None:
        self.calls, self.further = calls, further
        self.values: dict[int, int] = {}
        self.scratch: list[int] = []
        self.bytes = 0
        for row, size in sizes.items():
            self.values[row], self.bytes = self.bytes, self.bytes + whole_lines(size)
        for call in calls:
            self.scratch.append(self.bytes)
            self.bytes += whole_lines(call.scratch_bytes)

    def call(self, pointers: list[Pointer], tiles: int, write: Callable[[str, dict[str, str]], str]) -> Call:
        """The kernel and its operands; `write` answers the text of the function that runs the stages."""
        helpers: dict[str, None] = {}
        stages: dict[str, str] = {}
        for call, further in zip(self.calls, self.further, strict=True):
            for kernel in call.kernels:
                helpers.update(dict.fromkeys(kernel.helpers))
                stages[kernel.name] = kernel.internal(further)
        own: dict[str, str] = {}

        def text(name: str) -> str:
            return "\n".join([write(name, own), *stages.values()])

        size = tiles * self.bytes + LINE if self.bytes else 0
        kernel = named("cascade", text, tiles, size)
        return Call((kernel._replace(helpers=tuple({**helpers, **dict.fromkeys(own.values())})),), pointers)

    def begin(self, text: Text, places: int) -> tuple[list[str], str]:
        """The tables of the stages' arguments; answers the kernel's arguments and the worker's memory."""
        for at, call in enumerate(self.calls):
            text.do(f"%table_{at} = alloca [{len(call.operands) + 1} x ptr], align 16")
        arguments = [argument(text, place) for place in range(places)]
        if not self.bytes:
            return arguments, "poison"
        start = base(text, argument(text, places))
        return arguments, text.at(start, text.mul("%worker", self.bytes))

    def fill(self, text: Text, at: int, memory: str, place: Callable[[Pointer], str]) -> None:
        """The arguments of a stage, each where `place` says."""
        call = self.calls[at]
        pointers = [place(operand) for operand in call.operands]
        if call.scratch_bytes:
            pointers.append(text.at(memory, self.scratch[at]))
        for index, pointer in enumerate(pointers):
            text.do(f"store ptr {pointer}, ptr {text.at(f'%table_{at}', 8 * index)}, align 8")

    def run(self, text: Text, at: int, kernel: Kernel, further: str) -> None:
        """Every tile of a kernel of a stage."""

        def tile(index: str) -> None:
            text.do(f"call void @{kernel.name}(ptr %table_{at}, i64 {index}, i64 0, i64 {further})")

        if kernel.tiles == 1:
            tile("0")
        else:
            text.loop("0", str(kernel.tiles), 1, lambda index, _: tile(index))
