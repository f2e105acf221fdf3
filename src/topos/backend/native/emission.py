"""Texts to objects: parsed, optimised, and turned into machine code on every processor that this process may use.

Each module has a context of its own, and each thread a machine of its own, so that LLVM shares nothing between them.
Only the last step, by far the longest, is called without the lock that llvmlite holds around each of its calls. What
LLVM does for a module takes as long as the code of a small kernel, so small texts share modules where there are many.
"""

from __future__ import annotations

import ctypes
import threading
import time
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache as once
from importlib import import_module
from typing import Any

from topos.backend.native import counts
from topos.backend.native.llvm import binding
from topos.backend.native.processors import allowed
from topos.backend.native.target import Target
from topos.errors import ToposError
from topos.records import NamedTuple

# Scalar replacement, then code generation level 1: the same machine code as level 2 and 3, and the same speed as after
# the whole pipeline of -O2, in half its time.
CODE_GENERATION_LEVEL = 1

_MOST_THREADS = 8
_MODULE_BYTES, _MOST_MODULE_BYTES = 16 << 10, 48 << 10
"""Of text: beyond, what a module takes beside its functions is little; and so many where there is much text."""
_MODULES = 4
"""Of a thread at least, so that all threads end at about the same time."""
_SLICE_S = 0.25
"""How long LLVM is busy at a time: what a fork and the end of the process wait for, beside one module."""


class CompilationError(ToposError):
    """LLVM refuses a text, or texts do not fit together: a fault of whoever wrote them."""


class Wanted(NamedTuple):
    """A text, the key of its object, and the functions that it defines."""

    text: str
    key: str
    what: str

    def declared(self) -> list[str] | None:
        """The lines before its functions, which other texts may have too; `None` where it has a module of its own.

        Functions beside the first one are named after it.
        """
        declared, _, functions = self.text.partition("define ")
        lines = declared.splitlines()
        is_shared = all(line.startswith("@") or (line.startswith("declare ") and "@llvm." in line) for line in lines)
        own, *others = [head.partition("@")[2].partition("(")[0] for head in functions.split("\ndefine ")]
        has_other = any(not name.startswith(f"{own}_") for name in others)
        return lines if is_shared and not (has_other or "\ndeclare " in functions or "\n@" in functions) else None


def joined(texts: Sequence[Wanted]) -> str:
    """One module of some texts: one as it stands, several as what they declare, each line once, and their functions."""
    if len(texts) == 1:
        return texts[0].text
    declared = dict.fromkeys(line for wanted in texts for line in wanted.declared() or ())
    functions = ["".join(wanted.text.partition("define ")[1:]) for wanted in texts]
    return "\n".join([*declared, *functions])


class Emission:
    """Texts on their way to objects, the longest first. Its steps run on LLVM's thread.

    Further texts may come while others are made; until it is `closed`, a processor is left to whoever writes them.
    """

    def __init__(self, texts: Iterable[Wanted], target: Target, closed: bool = True) -> None:
        self.left = sorted(texts, key=_longest_first)
        self.closed = closed
        self._target = target
        self._objects: dict[str, bytes] = {}
        self._errors: list[BaseException] = []
        self._seats = 1
        self._end: float | None = None  # of the step that is under way
        self._helpers: list[threading.Thread] = []
        self._choosing = threading.Lock()

    def add(self, wanted: Wanted) -> None:
        """One more text, from whoever writes them."""
        with self._choosing:
            insort(self.left, wanted, key=_longest_first)

    def has_enough(self) -> bool:
        """Whether there is text for a module; for half of one while more comes, since to switch threads takes time."""
        held = sum(len(wanted.text) for wanted in self.left)
        return held > 0 if self.closed else held >= _MODULE_BYTES // 2

    def close(self) -> None:
        """No more texts come: a step that is under way goes on with every processor."""
        with self._choosing:
            self.closed = True
            if self._end is not None:
                self._help(self._end, 1 + len(self._helpers))

    def known(self, recall: Callable[[str], bytes | None]) -> dict[str, bytes]:
        """The objects that are found by their keys, whose texts are then left no more."""
        with self._choosing:
            found = {wanted.key: content for wanted in self.left if (content := recall(wanted.key)) is not None}
            self.left = [wanted for wanted in self.left if wanted.key not in found]
        return found

    def step(self) -> dict[str, bytes]:
        """The objects that were made in a short while; what is `left` is for the next step."""
        self._objects = {}
        end = time.perf_counter() + _SLICE_S
        with self._choosing:
            self._end = end
            self._help(end, 0)
        self._take(0, end)
        with self._choosing:
            self._end = None
            helpers, self._helpers = self._helpers, []
        for helper in helpers:
            helper.join()
        if self._errors:
            raise self._errors[0]
        return self._objects

    def _help(self, end: float, busy: int) -> None:
        """As many threads as there are processors, and texts for those not busy yet; the first is the step's own."""
        processors = allowed() if self.closed else allowed() - 1
        self._seats = max(1, min(processors, busy + len(self.left), _MOST_THREADS)) if _emit() else 1
        for seat in range(max(1, busy), self._seats):
            helper = threading.Thread(target=self._take, args=(seat, end), name="topos-llvm-beside")
            with suppress(RuntimeError):  # no more threads, or the interpreter ends: the others do it alone
                helper.start()
                self._helpers.append(helper)

    def _take(self, seat: int, end: float) -> None:
        try:
            while (began := time.perf_counter()) < end and not self._errors and (texts := self._next()):
                content = emitted(texts, self._target, seat)
                elapsed_s = (time.perf_counter() - began) / len(texts)
                for wanted in texts:
                    self._objects[wanted.key] = content
                    counts.count(counts.COLD, wanted.what, elapsed_s)
        except BaseException as error:
            self._errors.append(error)

    def _next(self) -> list[Wanted]:
        """The longest text left, and the next ones after it, up to a module or a thread's share of all; or none."""
        with self._choosing:
            if not self.has_enough():
                return []
            texts = [self.left.pop(0)]
            held = len(texts[0].text)
            share = (held + sum(len(wanted.text) for wanted in self.left)) // self._seats
            most = min(_MOST_MODULE_BYTES, max(_MODULE_BYTES, share // _MODULES))
            while self.left and held < share and held + len(self.left[0].text) <= most:
                if texts[0].declared() is None or self.left[0].declared() is None:
                    break
                texts.append(self.left.pop(0))
                held += len(texts[-1].text)
            return texts


def _longest_first(wanted: Wanted) -> int:
    return -len(wanted.text)


def emitted(texts: Sequence[Wanted], target: Target, seat: int) -> bytes:
    """The object of some texts, made by the thread of a seat."""
    what = ", ".join(wanted.what for wanted in texts)
    owner, module = machine(target, seat), optimised(joined(texts), what, target, seat)
    emit = _emit()
    if emit is None:
        return bytes(owner.emit_object(module))
    ffi = import_module("llvmlite.binding.ffi")
    with ffi.OutputString() as told:
        buffer = emit(owner, module, 1, told)
        if not buffer:
            module.close()  # before its context, as below
            raise CompilationError(f"LLVM makes no code of {what}: {told}")
    try:
        size = ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


@once
def _emit() -> Any:
    """What llvmlite makes objects by, without its lock; `None` where llvmlite is another one than we know."""
    try:
        library = import_module("llvmlite.binding.ffi").lib
        locked = library.LLVMPY_TargetMachineEmitToMemory
        free = ctypes.CDLL(library._name).LLVMPY_TargetMachineEmitToMemory
        free.argtypes, free.restype = locked.argtypes, locked.restype
    except (AttributeError, OSError):
        return None
    return free


def optimised(text: str, what: str, target: Target, seat: int = 0) -> Any:
    """A text as a module that is ready for code generation."""
    llvm = binding()
    # A context of its own: the types and constants of the shared one would never be freed.
    try:
        module = llvm.parse_assembly(_header(target) + text, llvm.create_context())
    except RuntimeError as error:
        raise CompilationError(f"LLVM refuses {what}: {error}") from None
    try:
        module.verify()
    except RuntimeError as error:
        module.close()  # before its context, which goes first where a traceback is what holds them
        raise CompilationError(f"LLVM refuses {what}: {error}") from None
    inlines, has_rooms = "alwaysinline" in text, " = alloca " in text
    if inlines or has_rooms:
        builder = llvm.create_pass_builder(machine(target, seat), llvm.create_pipeline_tuning_options(speed_level=1))
        passes = llvm.create_new_module_pass_manager()
        if inlines:
            passes.add_always_inliner_pass()
        if has_rooms:
            passes.add_sroa_pass()
        passes.run(module, builder)
    return module


@once
def _header(target: Target) -> str:
    """The first lines of every module. Beside those who write texts, each call of LLVM waits for Python's lock."""
    owner = machine(target)
    return f'target datalayout = "{owner.target_data}"\ntarget triple = "{owner.triple}"\n'


@once
def machine(target: Target, seat: int = 0) -> Any:
    """What makes code for a target; each thread that does so has its own."""
    llvm = binding()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=target.cpu, features=target.features, opt=CODE_GENERATION_LEVEL, reloc="static", codemodel="jitdefault"
    )
