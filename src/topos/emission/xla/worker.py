"""One process of a launched program: joins the others, runs the script, and ends with them."""

from __future__ import annotations

import os
import runpy
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import NoReturn

from topos.emission.xla.client import join, leave, virtual_devices


def main(arguments: Sequence[str]) -> None:
    """Runs the script. Whatever it raises ends this process at once: the others would be waited for in vain."""
    rank, total, devices, coordinator, address, wait_s, script, *rest = arguments
    threading.Thread(target=_end_with_the_launcher, daemon=True).start()
    try:
        virtual_devices(int(devices))
        if int(total) > 1:
            join(coordinator, int(rank), int(total), address or None, int(wait_s))
        sys.argv = [script, *rest]
        sys.path[0] = os.path.dirname(os.path.abspath(script))
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as stop:
            if stop.code:
                raise
        if int(total) > 1:
            leave()
    except SystemExit as stop:
        if not isinstance(stop.code, int):
            print(stop.code, file=sys.stderr)
        _end(stop.code if isinstance(stop.code, int) else 1)
    except BaseException:
        traceback.print_exc()
        _end(1)


def _end_with_the_launcher() -> None:
    """The launcher holds the other end of this process's input, and never writes."""
    os.read(0, 1)
    os._exit(1)


def _end(status: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
