"""Which compositions a plan fuses: what its backends cover, whatever machine it is described on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from topos.backend.backend import Backend, Dispatch
from topos.backend.chain import OUT_OF_THE_BOX, asked
from topos.backend.fidelity import Coverage
from topos.backend.formula import Formula
from topos.backend.task import Stretch
from topos.engine.entry import Entry
from topos.engine.numerics import Numerics
from topos.engine.pattern.elect import Stored
from topos.engine.reading import Able, Anything
from topos.errors import SettingError
from topos.graph.spec import Spec
from topos.tensor.services import FORMULAS

SINGLE = tuple(dict.fromkeys(Formula(formula) for formula in FORMULAS.values()))
COMPOSITIONS = tuple(formula for formula in Formula if formula not in SINGLE)
"""The formulas that stand for several instructions together."""


def repertoire(entry: Entry) -> dict[str, Able]:
    """The compositions that some backend of an entry covers as a whole, in which elements, and what it stores.

    Those that are asked for single instructions fuse nothing, whatever they cover, and leave those who come later
    pieces of a plan, which fuse nothing either. Whether a backend is ready does not matter: an entry without a chain
    has the one that topos brings, not the one of this process.
    """
    if entry.diagnose:
        return {}
    chain = tuple(getattr(Backend, name) for name in OUT_OF_THE_BOX) if entry.backends is None else entry.backends
    found: dict[str, Able] = {}
    for backend in chain:
        if backend.dispatch is Dispatch.TRANSLATED:
            stores = partial(_stored, backend, entry.numerics)
            covered = ((formula, _coverage(backend, formula, entry.numerics)) for formula in COMPOSITIONS)
            able = {str(formula): Able(known.precisions, stores) for formula, known in covered if known is not None}
            found = able | found
        if any(_coverage(backend, formula, entry.numerics) is not None for formula in SINGLE):
            break
    return found


def _coverage(backend: Backend, formula: Formula, numerics: Numerics) -> Coverage | None:
    """How a backend covers a formula, where it is as faithful as asked."""
    coverage: Coverage | None = asked(backend, partial(backend.coverage, formula))
    is_faithful = coverage is not None and (coverage.fidelity.is_exact or numerics is not Numerics.EXACT)
    return coverage if is_faithful else None


def _stored(backend: Backend, numerics: Numerics, spec: Spec, rows: Sequence[int], kept: frozenset[int]) -> Stored:
    """What a backend stores of a whole plan; everything, where it raises."""
    stored: Stored | None = asked(backend, partial(backend.stores, Stretch(spec, rows, kept, numerics)))
    return dict.fromkeys(rows, frozenset()) if stored is None else stored


def of_any_element(formulas: Iterable[str]) -> dict[str, Able]:
    """The formulas of these names, in every element. Raises `SettingError` where one is no formula."""
    names = [str(formula) for formula in formulas]
    for name in names:
        if name not in Formula.__members__:
            raise SettingError(f"patterns: no formula is called {name!r}; topos.Formula has them all")
    return dict.fromkeys(names, Able(Anything()))
