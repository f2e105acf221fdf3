"""The one thread that talks to LLVM.

llvmlite is imported on first use. All of its calls run on one thread of ours, for three reasons: Ctrl-C, which Python
raises in the main thread alone, never cuts an LLVM call short or leaves a lock of llvmlite taken; a thousand callers
need no lock of ours; and a fork waits until the thread is between two pieces of work, so that a child never inherits
LLVM half way.
"""

from __future__ import annotations

import atexit
import importlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from queue import SimpleQueue
from typing import Any, TypeVar

from topos.errors import BackendUnavailable

Answer = TypeVar("Answer")


class _Desk:
    """The thread's work, in order of arrival; each piece is done while `quiet` is held."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.quiet = threading.Lock()
        self.starting = threading.RLock()  # a finalizer may come back to it
        self.thread: threading.Thread | None = None
        self.closed = False

    def put(self, work: Callable[[], None]) -> None:
        if self.closed or threading.current_thread() is self.thread:
            work()
            return
        self.queue.put(work)
        if self.thread is None or not self.thread.is_alive():
            with self.starting:
                if self.thread is None or not self.thread.is_alive():
                    self.thread = threading.Thread(target=self._serve, name="topos-llvm", daemon=True)
                    self.thread.start()

    def _serve(self) -> None:
        while (work := self.queue.get()) is not None:
            with self.quiet:
                work()
            # The last piece of work holds what it was asked about, such as a library that is to be let go.
            del work
        self.queue.put(None)  # for a second thread, which a Ctrl-C at the wrong moment may have started

    def close(self) -> None:
        """The end of the interpreter: what was asked for is finished, since LLVM cannot be left in the middle."""
        self.closed = True
        if self.thread is not None:
            self.queue.put(None)
            self.thread.join()


_desk = _Desk()


def ask(work: Callable[[], Answer]) -> Answer:
    """What `work` answers on LLVM's thread. A Ctrl-C here leaves the work to finish there."""
    return begun(work).result()


def begun(work: Callable[[], Answer]) -> Future[Answer]:
    """What `work` is going to answer on LLVM's thread, while whoever asks goes on."""
    future: Future[Answer] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    _desk.put(run)
    return future


def later(work: Callable[[], None]) -> None:
    """Leaves `work`, which must not fail, to LLVM's thread. May be called from a finalizer: it takes no lock."""
    if _desk.thread is None:
        _desk.queue.put(work)
    else:
        _desk.put(work)


@cache
def available() -> str | None:
    """Why there is no native code here, or `None` where there is."""
    try:
        llvm = importlib.import_module("llvmlite.binding")
    except ImportError:
        return "llvmlite is not installed"
    except (OSError, RuntimeError) as error:
        return f"llvmlite does not load: {error}"
    return ask(lambda: _prepared(llvm))


def _prepared(llvm: Any) -> str | None:
    try:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.check_jit_execution()
    except (OSError, RuntimeError) as error:
        return f"LLVM cannot make code for this machine: {error}"
    return None


def binding() -> Any:
    """`llvmlite.binding`, ready to make code for this machine. llvmlite has no type stubs.

    Raises `BackendUnavailable` where `available()` gives a reason why there is no native code.
    """
    if reason := available():
        raise BackendUnavailable(f"native code: {reason}")
    return importlib.import_module("llvmlite.binding")


def _before_fork() -> None:
    _desk.quiet.acquire()


def _in_parent() -> None:
    _desk.quiet.release()


def _in_child() -> None:
    _desk.__init__()  # type: ignore[misc]


atexit.register(lambda: _desk.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
