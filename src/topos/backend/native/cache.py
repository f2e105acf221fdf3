"""Compiled objects on disk, by what they were made from.

Each object is one file, written beside its place and renamed into it, so that a reader sees all of it or nothing and
any number of processes may fill the same folder. The file begins with a checksum over its key and content: one that was
cut short, or that is something else, is a miss.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

from topos.backend.native.settings import environment

LIMIT_BYTES = 256 << 20

_MAGIC = b"topos object 01\n"
_SUFFIX = ".object"
_UNFINISHED = ".unfinished"
# An unfinished file of this age was left by a process that died.
_ABANDONED_S = 3600.0


class CacheWarning(UserWarning):
    """A file in the cache of compiled code is not what was written there; its code is compiled again."""


class Cache:
    """A folder of compiled objects, bounded in size: what was used longest ago goes first."""

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._held_bytes: int | None = None  # as far as this process knows; None before it has looked

    def get(self, key: str) -> bytes | None:
        """The object of a key, or `None`. A damaged file is told of once per process."""
        path = self.folder / (key + _SUFFIX)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + hashlib.blake2b().digest_size
        if content[:start] != _header(key, content[start:]):
            _tell_of(path)
            return None
        with suppress(OSError):
            os.utime(path)
        return content[start:]

    def holds(self, key: str) -> bool:
        """Whether there is a file for a key, damaged or not."""
        return os.path.exists(os.path.join(self.folder, key + _SUFFIX))

    def put(self, key: str, content: bytes) -> None:
        """Keeps an object; where the folder cannot be written, does nothing."""
        with suppress(OSError):
            self._write(key, _header(key, content) + content)
            if self._held_bytes is None:
                self._held_bytes = sum(size for _, size, _ in self._files())
            else:
                self._held_bytes += len(content)
            if self._held_bytes > self.limit_bytes:
                self._held_bytes = self.trim(self.limit_bytes * 3 // 4)

    def trim(self, limit_bytes: int) -> int:
        """Removes what was used longest ago until the rest is within the limit; how many bytes are left."""
        files = sorted(self._files())
        held = sum(size for _, size, _ in files)
        for _, size, path in files:
            if held <= limit_bytes:
                break
            with suppress(OSError):
                path.unlink()
            held -= size
        return held

    def clear(self) -> None:
        """Removes every object, and nothing else that may stand in the folder."""
        self._held_bytes = None
        self.trim(-1)

    def _write(self, key: str, content: bytes) -> None:
        handle, name = tempfile.mkstemp(prefix=key[:8], suffix=_UNFINISHED, dir=self.folder)
        try:
            with open(handle, "wb") as file:
                file.write(content)
            os.replace(name, self.folder / (key + _SUFFIX))
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise

    def _files(self) -> list[tuple[float, int, Path]]:
        """When each object was last used, its size and its path; unfinished files of the dead are removed."""
        found = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    facts = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(_SUFFIX):
                        found.append((facts.st_mtime, facts.st_size, Path(entry.path)))
                    elif entry.name.endswith(_UNFINISHED) and facts.st_mtime < time.time() - _ABANDONED_S:
                        os.unlink(entry.path)
        return found


def key_of(*facts: str) -> str:
    """The name of an object: a hash of everything that decides its bytes."""
    return hashlib.blake2b("\0".join(facts).encode(), digest_size=20).hexdigest()


def current() -> Cache | None:
    """The cache of this process, in the folder that TOPOS_CACHE names or else in the user's.

    `None` where the folder is unsafe or cannot be made, and where TOPOS_CACHE is there and empty.
    """
    named = os.environ.get("TOPOS_CACHE")
    if named is not None and not named.strip():
        return None
    return _opened(Path(named) if named is not None else _user_folder() / "topos")


def _user_folder() -> Path:
    if sys.platform == "win32":
        return Path(environment("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(environment("XDG_CACHE_HOME") or Path.home() / ".cache")


@cache
def _opened(folder: Path) -> Cache | None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
    except OSError:
        return None
    return Cache(folder) if _trusted(facts) else None


def _trusted(facts: os.stat_result) -> bool:
    """What is read from the folder is run: nobody but this user and the superuser may be able to write there."""
    if not hasattr(os, "geteuid"):
        return True
    return facts.st_uid in (0, os.geteuid()) and not facts.st_mode & stat.S_IWOTH


def _header(key: str, content: bytes) -> bytes:
    return _MAGIC + hashlib.blake2b(content, key=key.encode()).digest()


_told = False


def _tell_of(path: Path) -> None:
    global _told
    if _told:
        return
    _told = True
    message = f"the cache of compiled code holds a damaged file, {path.name} in {path.parent}; it is compiled again"
    warnings.warn(message, CacheWarning, stacklevel=4)
