"""Every plan that somebody runs, as an emitted module with what it took and what the interpreter answers for it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from topos import Plan, Tensor
from topos.emission.module import outputs
from topos.emission.raises import RAISES
from topos.emission.sources import arguments
from topos.engine.interpreter import execute

INTERPRETED = [formula for formula in RAISES if not formula.startswith("BATCH_NORM")]
"""What the reference interpreter of StableHLO runs where it is raised."""
CONVOLUTIONS = [formula for formula in RAISES if formula.startswith("WINDOW_PRODUCT")]
"""What has other products of zero and an infinity where it is raised: with padding, or without it. And what the
reference interpreter adds up in `bf16` then, whatever the text says."""
COARSEST = ("bfloat16", "float32", "float64")


class Emitted(NamedTuple):
    """A module, what it takes, and what each of its results should be, with the label of its node.

    `plain` is the module with compositions where the reference interpreter has no operation, or another one. Where
    sources are not finite, both have them for convolutions, and `raised` is what the plan emits. `refused` says why
    there is none at all, `untried` why there are no numbers for it. `coarsest` is the dtype of its nodes that holds the
    fewest digits, `work` how many numbers they have, products counted by their terms; `is_subnormal` whether a source
    holds numbers below the normal ones. `owner` is whoever ran it.
    """

    text: str = ""
    plain: str = ""
    arguments: Sequence[np.ndarray] = ()
    expected: Sequence[tuple[str, np.ndarray]] = ()
    refused: str = ""
    untried: str = ""
    coarsest: str = ""
    work: int = 0
    is_subnormal: bool = False
    raised: str = ""
    owner: str = ""


def emitted(plan: Plan, values: dict[int, Tensor], text: str, plain: str) -> Emitted:
    """A plan, as it was about to run over payloads of its sources, by the two texts of it."""
    held = dict(values)
    execute(plan._steps, held, None)
    given = [_given(plan, row, values[row]) for row, _ in arguments(plan._spec, plan._rows)]
    expected = [(plan._spec.label(row), _dense(plan, row, held[row])) for row in outputs(plan.entry)]
    coarsest = next(name for name in COARSEST if name in _dtypes(plan))
    work = sum(_work(plan, row) for row in plan._rows)
    subnormal = any(_is_subnormal(_dense(plan, row, tensor)) for row, tensor in values.items() if tensor.ids is None)
    return Emitted(text, plain, given, expected, coarsest=coarsest, work=work, is_subnormal=subnormal)


def _dtypes(plan: Plan) -> set[str]:
    return {plan._spec.element_of(row).dtype.name for row in plan._rows}


def _raised(formulas: Sequence[str], with_convolutions: bool) -> list[str]:
    return [one for one in formulas if with_convolutions or one not in CONVOLUTIONS]


def noted(
    plan: Plan, values: dict[int, Tensor], emit: Callable[..., str], seen: set[bytes]
) -> Callable[[], Emitted] | None:
    """What makes the same of a plan that is about to run, whatever becomes of it: a test that expects an error would
    hide ours. Nothing where the text is in `seen`, into which it goes.

    To interpret the plan is left for later, where nobody counts who computes what.
    """
    try:
        raised = emit()
        if not _is_new(raised, seen):
            return None
        finite = all(map(_is_finite, values.values()))
        text = emit(raises=_raised(RAISES, finite))
        plain = emit(raises=_raised(INTERPRETED, finite and COARSEST[0] not in _dtypes(plan)))
    except Exception as error:
        return partial(Emitted, refused=f"{type(error).__name__}: {error}")
    held = values | {row: _copy(plan, row, values[row]) for row, _ in arguments(plan._spec, plan._rows)}
    return partial(_tried, plan, held, text, plain, raised)


def _is_new(text: str, seen: set[bytes]) -> bool:
    """Whether a text was not seen before; now it is."""
    digest = blake2b(text.encode()).digest()
    is_new = digest not in seen
    seen.add(digest)
    return is_new


def _tried(plan: Plan, values: dict[int, Tensor], text: str, plain: str, raised: str) -> Emitted:
    try:
        return emitted(plan, values, text, plain)._replace(raised=raised)
    except Exception as error:
        return Emitted(text, plain, untried=f"{type(error).__name__}: {error}")


def _copy(plan: Plan, row: int, tensor: Tensor) -> Tensor:
    """Numbers of its own; ids are nobody's to change."""
    return tensor if tensor.ids is not None else Tensor(_dense(plan, row, tensor), plan._spec.element_of(row))


def _is_finite(tensor: Tensor) -> bool:
    if tensor.ids is not None:
        return True
    array = tensor.numpy()
    with np.errstate(invalid="ignore"):  # a signalling NaN of bf16
        return array.dtype.names is not None or bool(np.isfinite(array).all())


def _is_subnormal(array: np.ndarray) -> bool:
    wide = np.abs(array.astype(np.float64))
    normal = 2.0**-1022 if array.dtype == np.float64 else 2.0**-126
    return bool(((wide > 0) & (wide < normal)).any())


def _work(plan: Plan, row: int) -> int:
    rows = plan._spec.rows
    terms = rows[rows[row].operands[0]].shape[-1] if rows[row].opcode.name == "MatMul" else 1
    return max(rows[row].shape.volume * terms, *(rows[operand].shape.volume for operand in rows[row].operands), 1)


def _dense(plan: Plan, row: int, tensor: Tensor) -> np.ndarray:
    return np.array(tensor.dense(plan._spec.element_of(row)))


def _given(plan: Plan, row: int, tensor: Tensor) -> np.ndarray:
    """Numbers; or ids in the shape and the integers that they are fed in."""
    ids = plan._spec.ids.get(row)
    if ids is None:
        return _dense(plan, row, tensor)
    assert tensor.ids is not None
    held = np.array(tensor.ids).reshape(ids.shape)
    held = held if ids.absent is None else np.where(held < 0, ids.absent, held)
    return held.astype(np.int32 if abs(ids.absent or 0) < 1 << 31 and ids.vocab < 1 << 31 else np.int64)


@contextmanager
def recording(most: float = math.inf, seen: set[bytes] | None = None) -> Iterator[list[Emitted]]:
    """Lists at its end a module of each plan whose first run or step went by, and of what was emitted, without numbers.

    Of `most` plans, the first, and none whose text has been `seen`. A run of several steps is one of its first.
    """
    kept: list[Emitted] = []
    makers: list[Callable[[], Emitted]] = []
    plans: dict[int, Plan] = {}
    texts = set() if seen is None else seen
    evaluated, advance, asked = Plan._evaluated, Plan._advance, Plan.emit_stablehlo

    def note(plan: Plan, payloads: Callable[[], dict[int, Tensor]]) -> None:
        if id(plan) in plans or len(plans) >= most:
            return
        try:
            values = payloads()
        except Exception:  # the run will say so, before it begins
            return
        plans[id(plan)] = plan
        tracer = sys.gettrace()  # a test that counts lines counts those of the plan
        sys.settrace(None)
        try:
            make = noted(plan, values, partial(asked, plan), texts)
        finally:
            sys.settrace(tracer)
        makers.extend([] if make is None else [make])

    def watched_evaluated(plan: Plan, table: Any, fed: Any) -> Any:
        note(plan, lambda: plan._sources.payloads(table, fed.at(0)))
        return evaluated(plan, table, fed)

    def watched_advance(plan: Plan, state: Any, feeds: Any, count: Any) -> Any:
        note(plan, lambda: plan._sources.payloads(state, plan._read(state, feeds, count).at(0)))
        return advance(plan, state, feeds, count)

    def watched_asked(plan: Plan, **facts: Any) -> str:
        text = asked(plan, **facts)
        if _is_new(f"asked for: {text}", texts):
            makers.append(partial(Emitted, text, text, untried="emitted, not run"))
        return text

    watched = {"_evaluated": watched_evaluated, "_advance": watched_advance, "emit_stablehlo": watched_asked}
    before = {name: getattr(Plan, name) for name in watched}
    try:
        _replace(watched)
        yield kept
    finally:
        _replace(before)
        kept += [make() for make in makers]


def _replace(methods: Mapping[str, Any]) -> None:
    for name, method in methods.items():
        setattr(Plan, name, method)
