"""Every plan that somebody runs, as an emitted module with what it took and what the interpreter answers for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from topos import EmissionError, Plan, Tensor
from topos.emission.module import outputs
from topos.emission.raises import RAISES
from topos.emission.sources import arguments
from topos.engine.interpreter import execute

INTERPRETED = [formula for formula in RAISES if not formula.startswith("BATCH_NORM")]
"""What the reference interpreter of StableHLO runs where it is raised."""


COARSEST = ("bfloat16", "float32", "float64")


class Emitted(NamedTuple):
    """A module, what it takes, and what each of its results should be, with the label of its node.

    `plain` is the module with compositions where the reference interpreter has no operation. `refused` says why there
    is none at all. `coarsest` is the dtype of its nodes that holds the fewest digits, `work` how many numbers they
    have, products counted by their terms; `is_subnormal` whether a source holds numbers below the normal ones. `owner`
    is whoever ran it.
    """

    text: str
    plain: str
    arguments: list[np.ndarray]
    expected: list[tuple[str, np.ndarray]]
    refused: str = ""
    coarsest: str = ""
    work: int = 0
    is_subnormal: bool = False
    owner: str = ""


def emitted(plan: Plan, values: dict[int, Tensor]) -> Emitted:
    """A plan, as it was about to run over payloads of its sources."""
    given = [_given(plan, row, values[row]) for row, _ in arguments(plan._spec, plan._rows)]
    try:
        text, plain = plan.emit_stablehlo(), plan.emit_stablehlo(raises=INTERPRETED)
    except EmissionError as error:
        return Emitted("", "", given, [], str(error))
    held = dict(values)
    execute(plan._steps, held, None)
    expected = [(plan._spec.label(row), _dense(plan, row, held[row])) for row in outputs(plan.entry)]
    dtypes = {plan._spec.element_of(row).dtype.name for row in plan._rows}
    coarsest = next(name for name in COARSEST if name in dtypes)
    work = sum(_work(plan, row) for row in plan._rows)
    subnormal = any(_is_subnormal(_dense(plan, row, tensor)) for row, tensor in values.items() if tensor.ids is None)
    return Emitted(text, plain, given, expected, "", coarsest, work, subnormal)


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
def recording(keep: Callable[[Plan], bool] = lambda plan: True) -> Iterator[list[Emitted]]:
    """Keeps a module of each plan whose first run or step goes by; a run of several steps is one of its first."""
    kept: list[Emitted] = []
    seen: list[Plan] = []
    evaluated, advance = Plan._evaluated, Plan._advance

    def note(plan: Plan, table: Any, fed: Any) -> None:
        if all(plan is not one for one in seen) and keep(plan):
            seen.append(plan)
            kept.append(emitted(plan, plan._sources.payloads(table, fed.at(0))))

    def watched_evaluated(plan: Plan, table: Any, fed: Any) -> Any:
        note(plan, table, fed)
        return evaluated(plan, table, fed)

    def watched_advance(plan: Plan, state: Any, feeds: Any, count: Any) -> Any:
        note(plan, state, plan._read(state, feeds, count))
        return advance(plan, state, feeds, count)

    Plan._evaluated, Plan._advance = watched_evaluated, watched_advance  # type: ignore[method-assign]
    try:
        yield kept
    finally:
        Plan._evaluated, Plan._advance = evaluated, advance  # type: ignore[method-assign]


def distinct(modules: Sequence[Emitted]) -> list[Emitted]:
    """Without those whose text has been seen."""
    return list({module.text or module.refused: module for module in modules}.values())
