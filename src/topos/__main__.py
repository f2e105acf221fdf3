"""The command `topos`, also `python -m topos`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and answers the exit status: 0, 2 for bad usage, 1 for a closed pipe, 130 for an interrupt."""
    try:
        status = command(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read has gone; what is still buffered must not raise once more when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def command(arguments: Sequence[str] | None) -> int:
    """Reads the arguments and runs what they ask for."""
    import argparse

    from topos._version import __version__

    parser = argparse.ArgumentParser(
        prog="topos", description="Record a graph, inspect it, differentiate it, plan it, run it."
    )
    parser.add_argument("--version", action="version", version=f"topos {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("walkthrough", help="print every reading of one small graph")
    commands.add_parser("backends", help="say of each backend whether it is ready here, or why not")
    commands.add_parser("launch", add_help=False, help="run a script in processes that share a mesh of devices")
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["launch"]:  # its options are its own
            from topos.emission.xla import launch

            return launch.main(given[1:])
        chosen = parser.parse_args(given)
    except SystemExit as stop:
        return int(stop.code or 0)

    if chosen.command == "backends":
        backends()
        return 0
    from topos import walkthrough

    walkthrough.main()
    return 0


def backends() -> None:
    """Prints a line per backend: its name, its place in the default chain, and its status."""
    from topos import Backend, ToposError
    from topos.backend.chain import default

    try:
        chain, trouble = default(), ""
    except ToposError as error:
        chain, trouble = (), str(error)
    for backend in Backend.ALL:
        place = str(chain.index(backend) + 1) if backend in chain else "-"
        print(f"{backend.name:11} {place:2} {backend.status()}")
    print(trouble or f"asked by default: {', '.join(backend.name for backend in chain)}; TOPOS_BACKENDS names others")


if __name__ == "__main__":
    sys.exit(main())
