"""Texts and their objects: made once, remembered by this process, and kept on disk.

Each text has an object, so that equal kernels are compiled once, and the cache on disk holds them one by one.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import cache as once
from functools import partial

from topos._version import __version__
from topos.backend.native import cache, counts
from topos.backend.native.emission import CODE_GENERATION_LEVEL, Emission, Wanted
from topos.backend.native.llvm import ask, begun, binding
from topos.backend.native.target import Target
from topos.records import NamedTuple

# The large code model, because the loader may put the sections of an object further apart than the small one reaches;
# measured, it costs nothing in loops.
OPTIONS = f"always-inline sroa level={CODE_GENERATION_LEVEL} static large"

_REMEMBERED_BYTES = 16 << 20

_DEFINED = re.compile(r"(?!internal |private )[^@\n]*@([\w.$-]+)\(")
_DECLARED = re.compile(r"[^@\n]*@(?!llvm\.)([\w.$-]+)\(")


class Piece(NamedTuple):
    """A text as the loader knows it: the key of its object, and the functions that it defines and declares."""

    key: str
    defines: Sequence[str]
    declares: Sequence[str]


def piece_of(text: str, target: Target) -> Piece:
    """A text as the loader knows it."""
    return Piece(_key(text, target), names_of(text), names_of(text, "declare", _DECLARED))


def names_of(text: str, word: str = "define", pattern: re.Pattern[str] = _DEFINED) -> list[str]:
    """The functions in the lines that begin with a word; to search whole texts would take as long as to write them."""
    lines = f"\n{text}".split(f"\n{word} ")[1:]
    return [found[1] for line in lines if (found := pattern.match(line))]


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


def described(names: Sequence[str]) -> str:
    """The functions of a text, for people."""
    return ", ".join(names) or "a text without functions"


class Ahead:
    """Texts that are compiled while whoever writes them goes on with the next."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._emission = Emission((), target, closed=False)
        self._on_disk = cache.current()
        self._met: set[str] = set()
        self._steps: deque[Future[tuple[dict[str, bytes], list[str]]]] = deque()

    def want(self, text: str) -> None:
        """One of the texts that are going to be compiled; it is begun at once, unless it is kept somewhere."""
        if text in self._met:
            return
        self._met.add(text)
        piece = piece_of(text, self._target)
        # To look needs no lock, and to ask would wait for what LLVM is at.
        if piece.key not in _remembered and not (self._on_disk is not None and self._on_disk.holds(piece.key)):
            self.add(text, piece)
            self._go_on()

    def add(self, text: str, piece: Piece) -> None:
        """A text that nobody has, for a later step."""
        self._emission.add(Wanted(text, piece.key, described(piece.defines)))

    def close(self) -> None:
        """All texts are written: their writer's processor makes objects too."""
        self._emission.close()

    def objects(self) -> dict[str, bytes]:
        """The objects of the texts added since the last time, by key, all of them made and on disk."""
        self._go_on()
        objects: dict[str, bytes] = {}
        while self._steps:
            made, fresh = self._steps.popleft().result()
            self._go_on()  # while these are written to disk
            objects.update(made)
            if self._on_disk is not None:
                for key in fresh:
                    self._on_disk.put(key, made[key])
        return objects

    def _go_on(self) -> None:
        if self._emission.has_enough() and (not self._steps or self._steps[-1].done()):
            self._steps.append(begun(partial(_made, self._emission)))


def objects_of(texts: Sequence[str], pieces: Sequence[Piece], ahead: Ahead) -> list[bytes]:
    """The object of each text; those that nobody has are made together."""
    objects = ahead.objects()
    rest = [(text, piece) for text, piece in zip(texts, pieces, strict=True) if piece.key not in objects]
    for (text, piece), content in zip(rest, kept([piece for _, piece in rest]), strict=True):
        if content is None:
            ahead.add(text, piece)
        else:
            objects[piece.key] = content
    objects |= ahead.objects()
    return [objects[piece.key] for piece in pieces]


def kept(pieces: Sequence[Piece]) -> list[bytes | None]:
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
            counts.count(counts.HIT, described(piece.defines), elapsed_s)
    return objects


# What follows runs on LLVM's thread alone, and so without locks.
_remembered: OrderedDict[str, bytes] = OrderedDict()
_remembered_bytes = 0


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
    known = emission.known(_recalled)
    fresh = emission.step()
    return {**known, **fresh}, [key for key, content in fresh.items() if _remember(key, content)]
