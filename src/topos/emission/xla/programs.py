"""Compiled forms by what they were made from: kept in this process, and on disk beside the native code.

A form on disk is told by its text, the versions of jax and XLA, the devices and the processor; one that was cut short,
or that this XLA takes no more, is compiled again.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from functools import cache as once

from topos.backend.native import cache
from topos.backend.native.target import host
from topos.emission.xla.client import Devices, Loaded, compiled, loaded
from topos.errors import ToposError
from topos.records import NamedTuple

HELD = 64
"""How many forms a process keeps for whoever asks again."""


class Program(NamedTuple):
    """A compiled form and where it came from: `compiled`, or `loaded` from the disk."""

    form: Loaded
    origin: str


_lock = threading.Lock()
_held: OrderedDict[str, Program] = OrderedDict()


def program(text: str, devices: Devices, is_shardy: bool) -> Program:
    """The compiled form of a module, made once. Raises `EngineError` with what XLA says of it."""
    processor = _processor()
    folder = None if processor is None else cache.current()
    told = *devices.facts, processor or "", os.environ.get("XLA_FLAGS", "")
    key = cache.key_of("xla", text, str(is_shardy), *told)
    with _lock:
        found = _held.get(key)
        if found is None:
            found = _held[key] = _made(key, text, devices, is_shardy, folder)
            if len(_held) > HELD:
                _held.popitem(last=False)
        _held.move_to_end(key)
    return found


def forget() -> None:
    """Keeps no form in this process any more."""
    with _lock:
        _held.clear()


def _made(key: str, text: str, devices: Devices, is_shardy: bool, folder: cache.Cache | None) -> Program:
    content = None if folder is None else folder.get(key)
    form = None if content is None else loaded(content, devices, is_shardy)
    if form is not None:
        return Program(form, "loaded")
    form = compiled(text, devices, is_shardy)
    content = None if folder is None else form.serialized()
    if folder is not None and content is not None:
        folder.put(key, content)
    return Program(form, "compiled")


@once
def _processor() -> str | None:
    """What compiled forms run on; `None` where nobody can tell, and nothing is kept on disk."""
    try:
        target = host()
    except (ToposError, ImportError):
        return None
    return f"{target.cpu} {target.features}"
