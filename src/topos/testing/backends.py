"""Grading a backend: every answer it gives, held against the kernels that define the bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from topos.backend import Backend, Declined, Dispatch, Fidelity, Formula, Outline, Stretch, Task
from topos.element import Element, bf16, f32, f64
from topos.element.element import Array
from topos.engine.numerics import Numerics
from topos.graph.spec import Ids, Row, Spec
from topos.op import INPUT, MATMUL, SUM, LogSoftmax, SumAlong
from topos.records import NamedTuple
from topos.tensor import Tensor
from topos.tensor.evaluate import kernel_of
from topos.tensor.services import formula_of
from topos.testing.envelopes import envelope
from topos.testing.instructions import every_sample
from topos.testing.same_bits import assert_same_bits
from topos.testing.samples import Sample, sample

LONGER = (
    sample(MATMUL, (3, 1100), (1100, 5)),
    sample(MATMUL, (70, 33), (33, 65)),
    sample(MATMUL, (2, 3, 7, 600), (2, 3, 600, 4)),
    sample(MATMUL, (1, 1), (1, 1)),
    sample(SUM, (3, 500)),
    sample(SumAlong(0), (1100, 3)),
    sample(LogSoftmax(1), (3, 700)),
)
"""What the table of instructions is too small for: blocks of 512, odd edges, batches."""


class Grade(NamedTuple):
    """How many tasks a backend answered, by formula, how many it declined, and how much of its envelope it used.

    `largest_share` is the largest distance from the reference as a share of what was allowed; 0 for equal bits.
    """

    answered: dict[str, int]
    declined: int
    largest_share: float


def grade_backend(backend: Backend, elements: Sequence[Element] = (f32, f64, bf16), seeds: int = 2) -> Grade:
    """Asks a backend for every instruction that it covers, over drawn operands of several layouts.

    What it calls `BIT_IDENTICAL` or `COMPOSED` has to have the reference's bits, special values included; what it calls
    `ENVELOPE` has to be within `topos.testing.envelopes.envelope`, with the same infinities and NaN. Operands have to
    stay as they were. Raises `AssertionError` that names the task, also where it answered nothing at all, and
    `BackendUnavailable` where it is not ready.
    """
    __tracebackhide__ = True
    backend.required()
    answered: Counter[str] = Counter()
    declined, largest = 0, 0.0
    for task, layout in tasks(elements, seeds, _is_exact(backend)):
        if not backend.takes(task, exact=False):
            continue
        before = [_kept(operand) for operand in task.operands if isinstance(operand, Tensor)]
        answer = answered_by(backend, task)
        if answer is None:
            declined += 1
            continue
        answered[task.formula] += 1
        name = f"{backend.name}: {task.opcode!r} over {task.element}, {layout}"
        after = [_kept(operand) for operand in task.operands if isinstance(operand, Tensor)]
        _same(after, before, f"{name}: an operand was written to")
        largest = max(largest, _graded(backend, task, answer, name))
    if not answered:
        raise AssertionError(f"{backend.name}: answered none of the tasks, and declined {declined}")
    return Grade({str(formula): count for formula, count in answered.items()}, declined, largest)


def answered_by(backend: Backend, task: Task) -> Array | None:
    """What a backend of any dispatch answers to one instruction; `None` where it declines."""
    operands = task.operands
    outlined = task._replace(operands=tuple(Outline(operand.shape, operand.element) for operand in operands))
    question = alone(outlined) if backend.dispatch is Dispatch.TRANSLATED else outlined
    with np.errstate(all="ignore"):
        answer = backend.offer(task if backend.dispatch is Dispatch.OFFERED else question)
        if answer is None or isinstance(answer, Declined):
            return None
        if backend.dispatch is Dispatch.ELECTED:
            answer = answer(*task.arrays())
        elif backend.dispatch is Dispatch.TRANSLATED:
            (result,) = answer.run(dict(enumerate(operands))).values()
            answer = result.dense(task.element)
    return np.asarray(answer)


def alone(task: Task) -> Stretch:
    """A spec of one instruction whose operands are inputs, in order."""
    spec = Spec(task.element)
    for position, operand in enumerate(task.operands):
        spec.rows.append(Row(INPUT, (), operand.shape, operand.element, None, None))
        if operand.element is None:
            spec.ids[position] = Ids(operand.shape, operand.shape[-1], -1)
    result = len(spec.rows)
    spec.rows.append(Row(task.opcode, tuple(range(result)), task.shape, task.element, None, None))
    return Stretch(spec, range(result + 1), frozenset([result]), Numerics.EXACT)


def tasks(elements: Sequence[Element], seeds: int, special: bool) -> Iterator[tuple[Task, str]]:
    """Instructions with drawn operands, as they come, transposed in memory and reversed, and with special values."""
    for element in elements:
        for one in (*every_sample(), *LONGER):
            for seed in range(seeds):
                yield from _drawn(one, element, seed, special)


def _drawn(one: Sample, element: Element, seed: int, special: bool) -> Iterator[tuple[Task, str]]:
    plain = [operand.payload(seed + position, element) for position, operand in enumerate(one.operands)]
    result = one.opcode.result_element([operand.element for operand in plain]) or element
    shape = one.opcode.result_shape([operand.shape for operand in plain])
    formula = Formula(formula_of(one.opcode))
    layouts = {"dense": plain, "transposed": [*map(_transposed, plain)], "reversed": [*map(_reversed, plain)]}
    if special:
        layouts["special values"] = [_salted(operand, seed) for operand in plain]
    for layout, operands in layouts.items():
        yield Task(formula, one.opcode, result, shape, tuple(operands)), layout


def _graded(backend: Backend, task: Task, answer: Array, name: str) -> float:
    """How much of what was allowed an answer used."""
    with np.errstate(all="ignore"):
        reference = kernel_of(task.opcode)(task.opcode, task.element, list(task.operands))  # type: ignore[arg-type]
        coverage = backend.coverage(task.formula)
        assert coverage is not None
        if coverage.fidelity is not Fidelity.ENVELOPE:
            _same(answer, reference, name)
            return 0.0
        _same([answer.shape, answer.dtype.itemsize], [reference.shape, reference.dtype.itemsize], name)
        return _share(task, answer, reference, name)


def _share(task: Task, answer: Array, reference: Array, name: str) -> float:
    wide, wanted, allowed = answer.astype(np.float64), reference.astype(np.float64), envelope(task, reference)
    finite = np.isfinite(wanted)
    _same(np.where(finite, 0.0, wide), np.where(finite, 0.0, wanted), name)
    distance = np.where(finite, np.abs(wide - wanted), 0.0)
    beyond = ~(distance <= allowed) & finite
    if beyond.any():
        index = tuple(int(axis[0]) for axis in np.nonzero(beyond)) if beyond.ndim else ()
        raise AssertionError(
            f"{name}: {np.count_nonzero(beyond)} of {beyond.size} beyond the envelope, the first at {list(index)}\n"
            f"  actual    {wide[index]}\n  expected  {wanted[index]}\n  allowed   {allowed[index]:.3g}"
        )
    inside = distance > 0
    return float((distance[inside] / allowed[inside]).max()) if inside.any() else 0.0


def _same(actual: object, expected: object, name: str) -> None:
    __tracebackhide__ = True
    try:
        assert_same_bits(actual, expected)
    except AssertionError as error:
        raise AssertionError(f"{name}: {error}") from None


def _is_exact(backend: Backend) -> bool:
    found = (backend.coverage(formula) for formula in Formula)
    return all(coverage.fidelity.is_exact for coverage in found if coverage is not None)


# layouts
def _kept(operand: Tensor) -> Array:
    return np.array(operand.ids if operand.element is None else operand.dense(operand.element))


def _transposed(operand: Tensor) -> Tensor:
    """The same numbers with the axes the other way round in memory."""
    if operand.element is None:
        return operand
    array = operand.dense(operand.element)
    return Tensor.of(np.array(array.T, order="C").T, operand.element)


def _reversed(operand: Tensor) -> Tensor:
    """The same numbers, and every step through memory backwards."""
    if operand.element is None:
        return operand
    array = operand.dense(operand.element)
    flip = (slice(None, None, -1),) * array.ndim
    return Tensor.of(np.array(array[flip])[flip], operand.element)


def _salted(operand: Tensor, seed: int) -> Tensor:
    """The same numbers with special ones among them."""
    if operand.element is None or not operand.shape.volume:
        return operand
    element = operand.element
    array = np.array(operand.dense(element))
    random = np.random.default_rng(seed)
    specials = element.round(np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-40, 3e38]))
    places = random.integers(0, array.size, max(1, array.size // 4))
    array.reshape(-1)[places] = random.choice(specials, places.size)
    return Tensor.of(array, element)
