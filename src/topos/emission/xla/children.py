"""A process of a launched program, as its launcher sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import IO

_READ_S = 2.0
_GLOO = "[Gloo] Rank", "connected peer ranks"
"""What gloo says of its connections, which is left out."""


class Child:
    """Runs `worker` with a rank; what it prints comes out line by line, after `[rank]` where there are several."""

    def __init__(self, rank: int, total: int, facts: Sequence[str]) -> None:
        self.rank = rank
        self._total = total
        self._last: deque[str] = deque(maxlen=10)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "topos.emission.xla.worker", str(rank), *facts],
            stdin=subprocess.PIPE,  # its end tells a worker that the launcher is gone
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C goes to the launcher, which stops everyone
        )
        pipes = (self._process.stdout, sys.stdout), (self._process.stderr, sys.stderr)
        self._readers = [threading.Thread(target=self._pass_on, args=pair, daemon=True) for pair in pipes]
        for reader in self._readers:
            reader.start()

    def status(self) -> int | None:
        """Its exit status; negative for the signal that killed it, `None` while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Ends it, where it has not ended, at once: one that waits for another in XLA hears no milder word."""
        process = self._process
        if process.poll() is None:  # or the number may be somebody else's by now
            with suppress(OSError):
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)  # with whatever it started
                else:
                    process.kill()
        process.wait()
        for reader in self._readers:
            reader.join(_READ_S)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def report(self) -> str:
        """How it ended, and the last lines that it printed."""
        status = self._process.poll() or 0
        if status < 0:
            ended = f"was killed by signal {-status} ({signal.Signals(-status).name})"
        else:
            ended = f"ended with exit status {status}"
        lines = "".join(f"\n  {line}" for line in self._last)
        return f"launch: process {self.rank} of {self._total} {ended}{'; it last printed' if lines else ''}{lines}"

    def _pass_on(self, source: IO[str], sink: IO[str]) -> None:
        head = f"[{self.rank}] " if self._total > 1 else ""
        for line in of_script(source):
            self._last.append(line.rstrip())
            sink.write(f"{head}{line.rstrip()}\n")
            sink.flush()


def of_script(lines: Iterable[str]) -> Iterator[str]:
    """The lines without gloo's.

    It writes what it says and the end of the line one after the other, from several threads: of two that say something
    at once, both stand in one line, and an empty one follows.
    """
    left = 0  # ends of lines that are still to come
    for line in lines:
        said = max(line.count(words) for words in _GLOO)
        if said:
            left += said - 1
        elif left and not line.strip():
            left -= 1
        else:
            left = 0
            yield line
