"""The threads that share the tiles of a kernel.

They are daemon threads of Python, parked in compiled code without the interpreter's lock: awake for a moment after each
job, asleep afterwards. They start with the first job, and again after a fork or another thread count. Which thread runs
which tile never shows in the bits.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from topos.backend.native import pool_text
from topos.backend.native.compiler import Library, compiled
from topos.backend.native.flags import architecture, mode
from topos.backend.native.processors import allowed
from topos.backend.native.settings import environment, whole_number
from topos.errors import SettingError

MOST_THREADS = 1024

# How long a worker stays awake without work: longer than what Python does between two calls of a training loop.
_SPIN_S = 200e-6

_serial = count()


class Pool:
    """One state in memory, the code that works on it, and the threads in that code."""

    def __init__(self, wait: str | None = None) -> None:
        self._wait = wait or pool_text.waiting()
        # The state is part of the code: equal texts are one library, and would be one pool.
        self._name = f"; pool {next(_serial)}\n"
        self._lock = threading.Lock()
        self._library: Library | None = None
        self._threads: list[threading.Thread] = []
        self._leaving: list[threading.Thread] = []
        self._count: int | None = None
        self._epoch = 0
        self._closed = False
        self.running = False
        self._run: Callable[[int, int, int], object] = self._run_first

    # The number of threads -------------------------------------------------------------------------------------------
    def threads(self, number: int | None = None) -> int:
        """How many threads share the tiles, the caller's among them; with `number`, from now on so many."""
        if number is not None:
            if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST_THREADS:
                raise SettingError(f"threads: wants a whole number from 1 to {MOST_THREADS}, got {number!r}")
            with self._lock:
                if number != self._count:
                    self._count = number
                    self._dismiss()
        if self._count is None:
            text = environment("TOPOS_THREADS")
            self._count = allowed() if text is None else whole_number(text, "TOPOS_THREADS", MOST_THREADS)
        return self._count

    # Running ---------------------------------------------------------------------------------------------------------
    def address(self) -> int:
        """Where native code finds `void run(ptr function, ptr arguments, i64 tiles)`; the same for ever."""
        return self._loaded().addresses["pool_run"]

    def ready(self) -> None:
        """Starts the threads where they are not running: before a native call that may use them.

        Without it such a call is as right, and slower: it runs all tiles itself.
        """
        if not self.running:
            self._start()

    def run(self, function: int, arguments: int, tiles: int) -> None:
        """Runs the compiled `void function(ptr arguments, i64 tile)` over tiles `0 .. tiles - 1`, in any order."""
        if not self.running:
            self._start()
        self._run(function, arguments, tiles)

    def close(self) -> None:
        """Lets the threads go and waits for them; jobs still run, on the thread that asks for them."""
        with self._lock:
            self._closed = True
            self._dismiss()
        for thread in self._leaving:
            thread.join()
        self.running = True  # as far as it ever will be

    # Within ----------------------------------------------------------------------------------------------------------
    def _run_first(self, function: int, arguments: int, tiles: int) -> None:
        self._loaded()
        self._run(function, arguments, tiles)

    def _loaded(self) -> Library:
        if self._library is None:
            library = compiled(self._name + pool_text.pool_text(architecture(), self._wait) + mode())
            run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
            self._run = run(library.addresses["pool_run_from_python"])
            self._library = library
        return self._library

    def _start(self) -> None:
        library = self._loaded()
        with self._lock:
            if self.running or self._closed:
                return
            wanted = self.threads() - 1
            self._epoch += 1
            if not self._word(pool_text.EPOCH).value:
                _function(library, "pool_prepare")()
            _function(library, "pool_set_epoch")(self._epoch)
            # Where threads outnumber processors, one that spins keeps another from its work.
            self._word(pool_text.SPIN).value = self._spin() if wanted < allowed() else 0
            worker = _function(library, "pool_worker")
            # A system that refuses more threads gets by with fewer.
            with suppress(RuntimeError):
                for at in range(wanted):
                    thread = threading.Thread(target=worker, args=(self._epoch,), name=f"topos-{at + 1}", daemon=True)
                    thread.start()
                    self._threads.append(thread)
            self._word(pool_text.WORKERS).value = len(self._threads)
            self.running = True

    def _spin(self) -> int:
        """How many pauses take the time that a worker stays awake; a pause takes 10 to 150 cycles."""
        pause, pauses, best_s = _function(self._loaded(), "pool_pause"), 500, float("inf")
        for _ in range(3):
            began = time.perf_counter()
            pause(pauses)
            best_s = min(best_s, time.perf_counter() - began)
        return int(_SPIN_S / best_s * pauses)

    def _dismiss(self) -> None:
        """Tells the threads to leave; they do after the tile they are in."""
        if self._threads and self._library is not None:
            self._word(pool_text.WORKERS).value = 0
            self._epoch += 1
            _function(self._library, "pool_set_epoch")(self._epoch)
        self._leaving = [thread for thread in self._leaving + self._threads if thread.is_alive()]
        self._threads = []
        self.running = False

    def _word(self, offset: int) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self._state() + offset)

    def _state(self) -> int:
        return int(ctypes.CFUNCTYPE(ctypes.c_void_p)(self._loaded().addresses["pool_state"])())

    def in_child(self) -> None:
        """After a fork: the threads are in the parent, and a job that was under way is its own."""
        self._lock = threading.Lock()
        self._threads, self._leaving = [], []
        if self._library is not None:
            ctypes.memset(self._state(), 0, pool_text.STATE_BYTES)
        self.running = self._closed


def _function(library: Library, name: str) -> Callable[..., object]:
    """A function of the pool that takes nothing or one number."""
    takes = [] if name == "pool_prepare" else [ctypes.c_int64]
    return ctypes.CFUNCTYPE(None, *takes)(library.addresses[name])


_pool = Pool()


def pool() -> Pool:
    """The pool of this process."""
    return _pool


def threads(number: int | None = None) -> int:
    """How many threads a kernel may use; `threads(n)` sets it.

    At first it is TOPOS_THREADS, or as many as this process may keep busy. The bits do not depend on it.
    """
    return _pool.threads(number)


atexit.register(lambda: _pool.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _pool.in_child())
