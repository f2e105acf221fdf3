"""LLVM text to machine code that can be called.

Each text has an object, so that equal kernels are compiled once, the cache on disk holds them one by one, and several
are made at a time (`emission`); small ones may have one object together. A `Library` is some objects loaded together.
"""

from __future__ import annotations

import ctypes
import re
import time
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache as once
from functools import partial
from typing import Any

from topos._version import __version__
from topos.backend.native import cache, counts
from topos.backend.native.emission import CODE_GENERATION_LEVEL, CompilationError, Emission, Wanted, machine, optimised
from topos.backend.native.llvm import ask, begun, binding, later
from topos.backend.native.target import Target, current
from topos.records import NamedTuple

# The large code model, because the loader may put the sections of an object further apart than the small one reaches;
# measured, it costs nothing in loops.
OPTIONS = f"always-inline sroa level={CODE_GENERATION_LEVEL} static large"

_REMEMBERED_BYTES = 16 << 20

_TakesPointer = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_TakesReference = ctypes.CFUNCTYPE(None)

_DEFINED = re.compile(r"(?!internal |private )[^@\n]*@([\w.$-]+)\(")
_DECLARED = re.compile(r"[^@\n]*@(?!llvm\.)([\w.$-]+)\(")


class Piece(NamedTuple):
    """A text as the loader knows it: the key of its object, and the functions that it defines and declares."""

    key: str
    defines: Sequence[str]
    declares: Sequence[str]


class Library:
    """Machine code in memory; it stays there as long as the library is referenced, and is freed afterwards.

    `addresses` maps every function that the texts define, internal ones aside, to where it is; `pieces` are the texts.
    """

    __slots__ = ("__weakref__", "addresses", "pieces", "target")

    def __init__(self, pieces: Sequence[Piece], addresses: Mapping[str, int], target: Target, engine: Any) -> None:
        self.pieces = pieces
        self.addresses = addresses
        self.target = target
        # At exit the process ends with its code: other threads may still be in it.
        weakref.finalize(self, _retire, engine).atexit = False

    def __repr__(self) -> str:
        return f"Library({', '.join(self.addresses)})"


def compiled(texts: str | Iterable[str], target: Target | None = None) -> Library:
    """The texts as one library: each compiled, or taken from this process or the cache on disk, then loaded together.

    A function may call one of another text by declaring it. Equal texts count once. A name stands for one text in the
    cache too, as that of a `Kernel` does: an object may hold more functions than are asked for.

    Asked for the same again, by any thread, while the library is alive, the answer is the same library.
    """
    target = current() if target is None else target
    texts = tuple(dict.fromkeys([texts] if isinstance(texts, str) else texts))
    binding()
    pieces = [_piece(text, target) for text in texts]
    library = _held(pieces)
    if library is None:
        _check_once(pieces)
        objects = _objects(texts, pieces, target)
        library = ask(lambda: _loaded(pieces, objects, target))
    return library


def _piece(text: str, target: Target) -> Piece:
    return Piece(_key(text, target), _names("define", _DEFINED, text), _names("declare", _DECLARED, text))


def _names(word: str, pattern: re.Pattern[str], text: str) -> list[str]:
    """The functions in the lines that begin with a word; to search whole texts would take as long as to write them."""
    lines = f"\n{text}".split(f"\n{word} ")[1:]
    return [found[1] for line in lines if (found := pattern.match(line))]


def restored(pieces: Sequence[Piece], target: Target) -> Library | None:
    """The library of texts that were compiled before, or `None` where not all of their objects are kept."""
    binding()
    library = _held(pieces)
    if library is not None:
        return library
    objects = [content for content in _kept(pieces) if content is not None]
    return ask(lambda: _loaded(pieces, objects, target)) if len(objects) == len(pieces) else None


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
    what = _described(_names("define", _DEFINED, text))
    return ask(lambda: str(machine(target).emit_assembly(optimised(text, what, target))))


def _key(text: str, target: Target) -> str:
    return cache.key_of(text, *circumstances(target))


def circumstances(target: Target) -> tuple[str, ...]:
    """What decides machine code beside its text."""
    return target.cpu, target.features, OPTIONS, __version__, *_versions()


@once
def _versions() -> tuple[str, ...]:
    llvm = binding()
    release = ".".join(map(str, llvm.llvm_version_info))
    return ask(lambda: (__import__("llvmlite").__version__, release, llvm.get_process_triple()))


def _held(pieces: Sequence[Piece]) -> Library | None:
    name = _name(pieces)
    return ask(lambda: _loaded_libraries.get(name))


def _name(pieces: Sequence[Piece]) -> str:
    return cache.key_of(*(piece.key for piece in pieces))


def _kept(pieces: Sequence[Piece]) -> list[bytes | None]:
    """The object of each text, where this process or the cache on disk has it."""
    objects = ask(lambda: [_recalled(piece.key) for piece in pieces])
    on_disk, read = cache.current(), []
    if on_disk is None:
        return objects
    for at, piece in enumerate(pieces):
        began = time.perf_counter()
        if objects[at] is None and (content := on_disk.get(piece.key)) is not None:
            objects[at] = content
            read.append((piece, content, time.perf_counter() - began))
    fresh = ask(lambda: [_remember(piece.key, content) for piece, content, _ in read])
    for (piece, _, elapsed_s), is_new in zip(read, fresh, strict=True):
        if is_new:
            counts.count(counts.HIT, _described(piece.defines), elapsed_s)
    return objects


def _objects(texts: Sequence[str], pieces: Sequence[Piece], target: Target) -> list[bytes]:
    """The object of each text; those that nobody has are made together."""
    kept = dict(zip((piece.key for piece in pieces), _kept(pieces), strict=True))
    missing = [(text, piece) for text, piece in zip(texts, pieces, strict=True) if kept[piece.key] is None]
    emission = Emission([Wanted(text, piece.key, _described(piece.defines)) for text, piece in missing], target)
    on_disk = cache.current()
    making = begun(partial(_made, emission)) if emission.left else None
    while making is not None:
        made, fresh = making.result()
        making = begun(partial(_made, emission)) if emission.left else None  # while these are written to disk
        kept.update(made)
        if on_disk is not None:
            for key in fresh:
                on_disk.put(key, made[key])
    return [content for content in kept.values() if content is not None]


def _described(names: Sequence[str]) -> str:
    return ", ".join(names) or "a text without functions"


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


def _made(emission: Emission) -> tuple[dict[str, bytes], list[str]]:
    """The objects of some texts, and which were made just now: another thread may have asked first."""
    known = {wanted.key: found for wanted in emission.left if (found := _recalled(wanted.key)) is not None}
    emission.left = deque(wanted for wanted in emission.left if wanted.key not in known)
    fresh = emission.step()
    return {**known, **fresh}, [key for key, content in fresh.items() if _remember(key, content)]


def _loaded(pieces: Sequence[Piece], objects: Sequence[bytes], target: Target) -> Library:
    name = _name(pieces)
    library = _loaded_libraries.get(name)
    if library is not None:
        return library
    llvm = binding()
    module = llvm.parse_assembly("", llvm.create_context())
    own = llvm.Target.from_triple(machine(target).triple).create_target_machine(jit=True)
    # LLVM knows the process's own functions (those of libc) from the first engine on, and not before.
    engine = llvm.create_mcjit_compiler(module, own)
    try:
        names = _checked_names(pieces)
        for content in dict.fromkeys(objects):  # small texts may share one
            engine.add_object_file(llvm.ObjectFileRef.from_data(content))
        engine.finalize_object()
        addresses = {name: engine.get_function_address(name) for name in names}
    except BaseException:
        engine.close()  # here and now: the traceback's frames would be cleared on any thread, the context first
        raise
    library = _loaded_libraries[name] = Library(pieces, addresses, target, engine)
    return library


def _checked_names(pieces: Sequence[Piece]) -> list[str]:
    """What the texts define; LLVM ends the process over a name that is missing, so that is found here."""
    names = [name for piece in pieces for name in piece.defines]
    missing = {name for piece in pieces for name in piece.declares} - set(names)
    missing = {name for name in missing if not binding().address_of_symbol(name)}
    if missing:
        raise CompilationError(f"nothing defines {', '.join(sorted(missing))}")
    return names


def _check_once(pieces: Sequence[Piece]) -> None:
    names = Counter(name for piece in pieces for name in piece.defines)
    if twice := sorted(name for name, count in names.items() if count > 1):
        raise CompilationError(f"two texts define {', '.join(twice)}")


def _retire(engine: Any) -> None:
    later(engine.close)
