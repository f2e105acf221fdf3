"""Who is asked in which order, and what becomes of an answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from topos.backend.backend import Backend
from topos.element import Element
from topos.errors import BackendUnavailable
from topos.shape import Shape
from topos.tensor import Tensor

OUT_OF_THE_BOX = ("FUSED", "SIMD")
"""The default chain: the defining bits, and so `FAST` and `EXACT` agree until somebody adds to it."""


def default() -> tuple[Backend, ...]:
    """The chain of an entry that names none: the names in TOPOS_BACKENDS, such as `BLAS,FUSED,SIMD`, or our own.

    Raises `BackendUnavailable` for a name that is none of ours.
    """
    text = os.environ.get("TOPOS_BACKENDS", "").strip()
    names = [name.strip().upper() for name in text.split(",")] if text else OUT_OF_THE_BOX
    known = {backend.name: backend for backend in Backend.ALL}
    for name in names:
        if name not in known:
            raise BackendUnavailable(f"TOPOS_BACKENDS: no backend is called {name!r}; there are {', '.join(known)}")
    return tuple(known[name] for name in dict.fromkeys(names))


def asked(backend: Backend, question: Callable[[], Any]) -> Any:
    """What a backend answers; `None` where it raises, which poisons it, or is poisoned already.

    To run out of memory is no fault of a backend: it declines.
    """
    if backend.is_poisoned:
        return None
    try:
        return question()
    except MemoryError:
        return None
    except Exception as error:
        backend.poison(error)
        return None


def accepted(answer: Any, element: Element, shape: Shape) -> Tensor:
    """An array that a backend answered as a tensor. Raises `ElementError` for another dtype or shape."""
    return Tensor.of(answer, element, shape)
