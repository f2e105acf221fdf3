"""A file that is replaced whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new file to write to, in the same folder, which takes the place of `path` at the end of the block.

    Before it does, its bytes are on the disk: whoever opens `path`, at whatever moment a process or a machine stopped,
    finds the old file or the new one. An error in the block leaves nothing behind. A link is followed. Raises `OSError`
    for a device, a pipe or a folder, whose place no file takes.
    """
    target = os.path.realpath(os.fsdecode(path))
    _expect_room(target)
    folder = os.path.dirname(target)
    partial = os.path.join(folder, f".topos-{os.urandom(8).hex()}.partial")
    try:
        with open(partial, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):  # who could read the old file can read the new one
            os.chmod(partial, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(partial, target)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename == partial:
            error.filename = target  # what the caller asked for
        with suppress(OSError):
            os.unlink(partial)
        raise
    _keep(folder)


def _expect_room(target: str) -> None:
    """Raises `OSError` that names the file where none can be: before anything is written."""
    if not os.path.isdir(os.path.dirname(target)):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", os.path.dirname(target))
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    if os.path.exists(target) and not os.path.isfile(target):
        raise OSError(errno.EINVAL, "is a device or a pipe, and no file", target)


def _keep(folder: str) -> None:
    """Writes a folder's entries to the disk, where folders can be opened."""
    flags: Any = getattr(os, "O_DIRECTORY", None)
    if flags is None:
        return
    with suppress(OSError):  # a folder that may not be read, or a file system that has no such thing
        descriptor = os.open(folder, os.O_RDONLY | flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
