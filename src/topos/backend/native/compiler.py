"""LLVM text to machine code that can be called.

Each text has an object (`objects`), several are made at a time (`emission`), and small ones may have one together. A
`Library` is some objects loaded together.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from topos.backend.native import cache
from topos.backend.native.emission import CompilationError, machine, optimised
from topos.backend.native.llvm import ask, binding, later
from topos.backend.native.objects import Ahead, Piece, described, kept, names_of, objects_of, piece_of
from topos.backend.native.target import Target, current

_TakesPointer = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_TakesReference = ctypes.CFUNCTYPE(None)


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


def compiled(texts: str | Iterable[str], target: Target | None = None, ahead: Ahead | None = None) -> Library:
    """The texts as one library: each compiled, or taken from this process or the cache on disk, then loaded together.

    A function may call one of another text by declaring it. Equal texts count once. A name stands for one text in the
    cache too, as that of a `Kernel` does: an object may hold more functions than are asked for. What `ahead` has begun
    is finished.

    Asked for the same again, by any thread, while the library is alive, the answer is the same library.
    """
    target = current() if target is None else target
    texts = tuple(dict.fromkeys([texts] if isinstance(texts, str) else texts))
    binding()
    ahead = Ahead(target) if ahead is None else ahead
    ahead.close()
    pieces = [piece_of(text, target) for text in texts]
    library = _held(pieces)
    if library is None:
        _check_once(pieces)
        objects = objects_of(texts, pieces, ahead)
        library = ask(lambda: _loaded(pieces, objects, target))
    return library


def restored(pieces: Sequence[Piece], target: Target) -> Library | None:
    """The library of texts that were compiled before, or `None` where not all of their objects are kept."""
    binding()
    library = _held(pieces)
    if library is not None:
        return library
    objects = [content for content in kept(pieces) if content is not None]
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
    what = described(names_of(text))
    return ask(lambda: str(machine(target).emit_assembly(optimised(text, what, target))))


def _held(pieces: Sequence[Piece]) -> Library | None:
    name = _name(pieces)
    return ask(lambda: _loaded_libraries.get(name))


def _name(pieces: Sequence[Piece]) -> str:
    return cache.key_of(*(piece.key for piece in pieces))


# What follows runs on LLVM's thread alone, and so without locks.
_loaded_libraries: weakref.WeakValueDictionary[str, Library] = weakref.WeakValueDictionary()


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
