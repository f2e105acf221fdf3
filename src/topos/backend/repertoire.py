"""Which compositions a plan fuses: what its backends cover, whatever machine it is described on."""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import partial

from topos.backend.backend import Backend, Dispatch
from topos.backend.chain import OUT_OF_THE_BOX, asked
from topos.backend.formula import Formula
from topos.element import Element
from topos.engine.entry import Entry
from topos.engine.numerics import Numerics
from topos.engine.reading import Anything
from topos.errors import SettingError
from topos.tensor.services import FORMULAS

COMPOSITIONS = tuple(formula for formula in Formula if formula not in FORMULAS.values())
"""The formulas that stand for several instructions together."""


def repertoire(entry: Entry) -> dict[str, Container[Element]]:
    """The compositions that some backend of an entry covers as a whole, and in which elements.

    Those that are asked for single instructions fuse nothing, whatever they cover. Whether a backend is ready does not
    matter: an entry without a chain has the one that topos brings, not the one of this process.
    """
    if entry.diagnose:
        return {}
    chain = tuple(getattr(Backend, name) for name in OUT_OF_THE_BOX) if entry.backends is None else entry.backends
    found: dict[str, Container[Element]] = {}
    for backend in chain:
        for formula in COMPOSITIONS if backend.dispatch is Dispatch.TRANSLATED else ():
            coverage = asked(backend, partial(backend.coverage, formula))
            if coverage is not None and (coverage.fidelity.is_exact or entry.numerics is not Numerics.EXACT):
                found.setdefault(str(formula), coverage.precisions)
    return found


def of_any_element(formulas: Iterable[str]) -> dict[str, Container[Element]]:
    """The formulas of these names, in every element. Raises `SettingError` where one is no formula."""
    names = [str(formula) for formula in formulas]
    for name in names:
        if name not in Formula.__members__:
            raise SettingError(f"patterns: no formula is called {name!r}; topos.Formula has them all")
    return dict.fromkeys(names, Anything())
