"""Runs a script in several processes that share one mesh of devices.

    python -m topos.emission.xla.launch --processes 2 --devices 2 script.py ...

Each process runs the whole script; jax's distributed runtime connects them, gloo on processors. They meet on 127.0.0.1
at a free port and are reached from nowhere else, unless `--coordinator` names an address: then every host runs this
launcher with it, and says by `--first` and `--here` which of the processes are its own. Who fails is reported, and the
others are stopped; so they are by Ctrl-C, and when the launcher itself is killed.
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from topos.emission.xla.children import Child

LOOPBACK = "127.0.0.1"
_LOOK_S, _GRACE_S = 0.05, 0.5
_WAIT = "how long they wait for each other to start, to end, and to say that they live (default 60)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the arguments, runs the script, and answers its exit status: 1 where a process failed, 124 out of time."""
    options = _parser().parse_args(arguments)
    here = options.processes if options.here is None else options.here
    if not 0 <= options.first <= options.first + here <= options.processes or here < 1:
        _parser().error(f"--first {options.first} and --here {here} are not among {options.processes} processes")
    if here < options.processes and options.coordinator is None:
        _parser().error("processes on several hosts want --coordinator ADDRESS:PORT, the same for all")
    return launch(
        [options.script, *options.arguments],
        ranks=range(options.first, options.first + here),
        total=options.processes,
        devices=options.devices,
        coordinator=options.coordinator or f"{LOOPBACK}:{_free_port()}",
        address=options.address or (LOOPBACK if options.coordinator is None else None),
        wait_s=options.wait,
        timeout_s=options.timeout,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="topos launch", description="Run a script in processes that share a mesh.")
    add = parser.add_argument
    add("--processes", type=_count, default=1, metavar="N", help="how many in all (default 1)")
    add("--devices", type=_count, default=1, metavar="N", help="virtual devices of each on a processor (default 1)")
    add("--coordinator", metavar="ADDRESS:PORT", help="where they meet: an address of the host of process 0")
    add("--address", help="of this host, where its processes are reached by the others")
    add("--first", type=int, default=0, metavar="RANK", help="the first process of this host (default 0)")
    add("--here", type=_count, metavar="N", help="how many run on this host (default all)")
    add("--wait", type=_count, default=60, metavar="SECONDS", help=_WAIT)
    add("--timeout", type=_count, metavar="SECONDS", help="stop everything after so long")
    add("script")
    add("arguments", nargs=argparse.REMAINDER)
    return parser


def launch(
    command: Sequence[str],
    *,
    ranks: Sequence[int],
    total: int,
    devices: int,
    coordinator: str,
    address: str | None,
    wait_s: int,
    timeout_s: float | None,
) -> int:
    """Runs the processes `ranks` of `total`, and answers the exit status when all have ended or were stopped."""
    facts = [str(total), str(devices), coordinator, address or "", str(wait_s), *command]
    before = signal.signal(signal.SIGTERM, _ended) if _is_main_thread() else None
    children: list[Child] = []
    try:
        for rank in ranks:
            children.append(Child(rank, total, facts))
        return _watched(children, None if timeout_s is None else time.monotonic() + timeout_s)
    except KeyboardInterrupt:
        print("launch: interrupted; every process was stopped", file=sys.stderr)
        return 130
    finally:
        for child in children:
            child.stop()
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _watched(children: Sequence[Child], end: float | None) -> int:
    """Waits until all have ended well, or one has not."""
    while True:
        statuses = [child.status() for child in children]
        if any(statuses):
            time.sleep(_GRACE_S)  # whoever fails because another did has failed too by then
            return _reported(children)
        if all(status == 0 for status in statuses):
            return 0
        if end is not None and time.monotonic() > end:
            running = [str(child.rank) for child in children if child.status() is None]
            print(f"launch: out of time; stopped process {', '.join(running)}", file=sys.stderr)
            return 124
        time.sleep(_LOOK_S)


def _reported(children: Sequence[Child]) -> int:
    """Says who failed: first those who were killed, for the others may have failed of that."""
    running = [child for child in children if child.status() is None]
    for child in children:
        child.stop()
    failed = [child for child in children if child not in running and child.status()]
    for child in sorted(failed, key=lambda child: (child.status() or 0) >= 0):
        print(child.report(), file=sys.stderr)
    if running:
        print(f"launch: stopped process {', '.join(str(child.rank) for child in running)}", file=sys.stderr)
    return 1


def _ended(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def _is_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"wants a whole number of at least 1, got {text!r}")
    return number


def _free_port() -> int:
    """A port of this host that nobody listens at."""
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        port: int = found.getsockname()[1]
    return port


if __name__ == "__main__":
    sys.exit(main())
