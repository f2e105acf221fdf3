"""LLVM text to machine code that can be called.

A text is compiled to an object by itself, so that equal kernels are compiled once, the cache on disk holds them one by
one, and a Ctrl-C waits for one kernel at most. A `Library` is several objects loaded together.
"""

from __future__ import annotations

import ctypes
import re
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache as once
from typing import Any

from topos._version import __version__
from topos.backend.native import cache, counts
from topos.backend.native.llvm import ask, binding, later
from topos.backend.native.target import Target, current
from topos.errors import ToposError

# Scalar replacement, then code generation level 1: the same machine code as level 2 and 3, and the same speed as after
# the whole pipeline of -O2, in half its time.
CODE_GENERATION_LEVEL = 1
# The large code model, because the loader may put the sections of an object further apart than the small one reaches;
# measured, it costs nothing in loops.
OPTIONS = f"always-inline sroa level={CODE_GENERATION_LEVEL} static large"

_REMEMBERED_BYTES = 16 << 20

_TakesPointer = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_TakesReference = ctypes.CFUNCTYPE(None)

_DEFINED = re.compile(r"^define (?!internal |private )[^@\n]*@([\w.$-]+)\(", re.MULTILINE)
_DECLARED = re.compile(r"^declare [^@\n]*@(?!llvm\.)([\w.$-]+)\(", re.MULTILINE)


class CompilationError(ToposError):
    """LLVM refuses a text, or texts do not fit together: a fault of whoever wrote them."""


class Library:
    """Machine code in memory; it stays there as long as the library is referenced, and is freed afterwards.

    `addresses` maps every function that the texts define, internal ones aside, to where it is.
    """

    __slots__ = ("__weakref__", "addresses", "target")

    def __init__(self, addresses: Mapping[str, int], target: Target, engine: Any) -> None:
        self.addresses = addresses
        self.target = target
        # At exit the process ends with its code: other threads may still be in it.
        weakref.finalize(self, _retire, engine).atexit = False

    def __repr__(self) -> str:
        return f"Library({', '.join(self.addresses)})"


def compiled(texts: str | Iterable[str], target: Target | None = None) -> Library:
    """The texts as one library: each compiled, or taken from this process or the cache on disk, then loaded together.

    A function may call one of another text by declaring it. Equal texts count once. Asked for the same again, by any
    thread, while the library is alive, the answer is the same library.
    """
    target = current() if target is None else target
    texts = tuple(dict.fromkeys([texts] if isinstance(texts, str) else texts))
    binding()
    keys = [_key(text, target) for text in texts]
    name = cache.key_of(*keys)
    library = ask(lambda: _loaded_libraries.get(name))
    if library is None:
        objects = [_object(text, key, target) for text, key in zip(texts, keys, strict=True)]
        library = ask(lambda: _loaded(name, texts, objects, target))
    return library


def function(library: Library, name: str) -> Callable[[int], None]:
    """A compiled `void name(ptr)` to be called with an address, without the interpreter's lock. It keeps its library.

    A call costs about 200 ns; each further argument would cost as much again, so there is one, the address of a table.
    """
    return _called(_TakesPointer, library, name)


def function_of_reference(library: Library, name: str) -> Callable[[Any], None]:
    """The same, to be called with a reference that `ctypes.byref` has made before: nothing is left to convert."""
    return _called(_TakesReference, library, name)


def _called(kind: Any, library: Library, name: str) -> Callable[[Any], None]:
    called = kind(library.addresses[name])
    called.library = library
    return called  # type: ignore[no-any-return]


def assembly(text: str, target: Target | None = None) -> str:
    """The text as assembly, to read."""
    target = current() if target is None else target
    return ask(lambda: str(_machine(target).emit_assembly(_optimised(text, target))))


def _key(text: str, target: Target) -> str:
    return cache.key_of(text, target.cpu, target.features, OPTIONS, __version__, *_versions())


@once
def _versions() -> tuple[str, ...]:
    llvm = binding()
    release = ".".join(map(str, llvm.llvm_version_info))
    return ask(lambda: (__import__("llvmlite").__version__, release, llvm.get_process_triple()))


def _object(text: str, key: str, target: Target) -> bytes:
    content = ask(lambda: _recalled(key))
    if content is not None:
        return content
    on_disk, began = cache.current(), time.perf_counter()
    if on_disk is not None and (content := on_disk.get(key)) is not None:
        found = content
        if ask(lambda: _remember(key, found)):
            counts.count(counts.HIT, _described(text), time.perf_counter() - began)
        return content
    content, fresh = ask(lambda: _made(text, key, target))
    if fresh and on_disk is not None:
        on_disk.put(key, content)
    return content


def _described(text: str) -> str:
    return ", ".join(_DEFINED.findall(text)) or "a text without functions"


# What follows runs on LLVM's thread alone, and so without locks.
_remembered: OrderedDict[str, bytes] = OrderedDict()
_remembered_bytes = 0
_loaded_libraries: weakref.WeakValueDictionary[str, Library] = weakref.WeakValueDictionary()


def _recalled(key: str) -> bytes | None:
    if key in _remembered:
        _remembered.move_to_end(key)
    return _remembered.get(key)


def _remember(key: str, content: bytes) -> bool:
    """Keeps an object at hand, and lets the oldest go; whether it is new."""
    global _remembered_bytes
    if key in _remembered:
        return False
    _remembered[key] = content
    _remembered_bytes += len(content)
    while _remembered_bytes > _REMEMBERED_BYTES:
        _remembered_bytes -= len(_remembered.popitem(last=False)[1])
    return True


def _made(text: str, key: str, target: Target) -> tuple[bytes, bool]:
    """The object of a text, and whether it was made just now: another thread may have asked first."""
    if (content := _recalled(key)) is not None:
        return content, False
    began = time.perf_counter()
    content = bytes(_machine(target).emit_object(_optimised(text, target)))
    _remember(key, content)
    counts.count(counts.COLD, _described(text), time.perf_counter() - began)
    return content, True


def _optimised(text: str, target: Target) -> Any:
    llvm, machine = binding(), _machine(target)
    # A context of its own: the types and constants of the shared one would never be freed.
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
    except RuntimeError as error:
        raise CompilationError(f"LLVM refuses {_described(text)}: {error}") from None
    try:
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        module.close()  # before its context, which goes first where a traceback is what holds them
        raise CompilationError(f"LLVM refuses {_described(text)}: {error}") from None
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    if "alwaysinline" in text:
        passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.run(module, builder)
    return module


@once
def _machine(target: Target) -> Any:
    llvm = binding()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=target.cpu, features=target.features, opt=CODE_GENERATION_LEVEL, reloc="static", codemodel="jitdefault"
    )


def _loaded(name: str, texts: Sequence[str], objects: Sequence[bytes], target: Target) -> Library:
    library = _loaded_libraries.get(name)
    if library is not None:
        return library
    llvm = binding()
    module = llvm.parse_assembly("", llvm.create_context())
    machine = llvm.Target.from_triple(_machine(target).triple).create_target_machine(jit=True)
    # LLVM knows the process's own functions (those of libc) from the first engine on, and not before.
    engine = llvm.create_mcjit_compiler(module, machine)
    try:
        names = _checked_names(texts)
        for content in objects:
            engine.add_object_file(llvm.ObjectFileRef.from_data(content))
        engine.finalize_object()
        addresses = {name: engine.get_function_address(name) for name in names}
    except BaseException:
        engine.close()  # here and now: the traceback's frames would be cleared on any thread, the context first
        raise
    library = _loaded_libraries[name] = Library(addresses, target, engine)
    return library


def _checked_names(texts: Sequence[str]) -> list[str]:
    """What the texts define; LLVM ends the process over a name that is missing, so that is found here."""
    names = [name for text in texts for name in _DEFINED.findall(text)]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise CompilationError(f"two texts define {', '.join(twice)}")
    missing = {name for text in texts for name in _DECLARED.findall(text)} - set(names)
    missing = {name for name in missing if not binding().address_of_symbol(name)}
    if missing:
        raise CompilationError(f"nothing defines {', '.join(sorted(missing))}")
    return names


def _retire(engine: Any) -> None:
    later(engine.close)
