"""Every instruction as a plan runs it: lengths, shapes, layouts, special numbers, processors and thread counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos import Tape, Value, bf16, f32, f64
from topos.op import Opcode
from topos.testing.instructions import INSTRUCTIONS

from .plans import CPUS, Case, every_instruction, numbers, processor, recorded, threads, with_lengths

ELEMENTS = (f32, f64, bf16)
elements = pytest.mark.parametrize("element", ELEMENTS, ids=str)

LENGTHS = (1, 2, 3, 7, 8, 9, 15, 17, 31, 33, 47, 64, 70)
"""Around the vectors of each processor, with tails of each kind; the slow tests take every length."""

ODD = ((), (3, 5), (5, 1), (1, 7), (2, 3, 5), (13, 17), (2, 1, 9, 3))
EMPTY = ((0,), (0, 3), (3, 0), (2, 0, 4))
LONG = ((511,), (513,), (2, 1030), (1030, 3), (1100,))


@pytest.mark.parametrize(
    ("element", "length"), [*((f32, n) for n in LENGTHS), *((e, n) for e in (f64, bf16) for n in (1, 9, 15, 33))]
)
def test_a_length(element: Any, length: int) -> None:
    recorded(with_lengths([(length,)], length), element).check()


@pytest.mark.exhaustive
@elements
@pytest.mark.parametrize("length", range(1, 71))
def test_every_length(element: Any, length: int) -> None:
    recorded(with_lengths([(length,), (3, length), (length, 3)], length), element).check()


@elements
@pytest.mark.parametrize("shapes", [ODD, EMPTY, LONG], ids=["odd", "empty", "long"])
def test_shapes(element: Any, shapes: Any) -> None:
    recorded(with_lengths(shapes, 7), element).check()


def test_every_instruction_is_met() -> None:
    """None is left out for want of a shape that it takes, and the plans hold them all."""
    case = recorded(with_lengths(((), (3, 5), (5,), (2, 3, 5)), 0), f32)
    met: set[type[Opcode]] = {type(node.opcode) for node in case.network.nodes()}
    assert met >= {kind for kind, row in INSTRUCTIONS.items() if row.made is not None}


# Layouts: what lies under the first operand, and how it is reached --------------------------------------------------
def transposed(tape: Tape) -> tuple[Value, tuple[int, ...]]:
    x = tape.input(shape=(19, 5))
    return x, x.permute([1, 0])


def narrowed(tape: Tape) -> Any:
    x = tape.input(shape=(8, 23))
    return x, x.narrow(0, 2, 5).narrow(1, 3, 19)


def broadcast_rows(tape: Tape) -> Any:
    x = tape.input(shape=(19,))
    return x, x.broadcast_along(0, 5)


def broadcast_columns(tape: Tape) -> Any:
    x = tape.input(shape=(5,))
    return x, x.broadcast_along(1, 19)


def one_number(tape: Tape) -> Any:
    x = tape.input(shape=())
    return x, x.broadcast((5, 19))


def offset(tape: Tape) -> Any:
    x = tape.input(shape=(101,))
    return x, x.narrow(0, 3, 95).reshape((5, 19))


def windows(tape: Tape) -> Any:
    x = tape.input(shape=(30,))
    return x, x.unfold(0, 19, 2, 1).narrow(0, 0, 5)


def padded(tape: Tape) -> Any:
    x = tape.input(shape=(5, 13))
    return x, x.pad(1, 2, 19, -0.0)


def turned(tape: Tape) -> Any:
    x = tape.input(shape=(3, 19, 5))
    return x, x.permute([2, 0, 1]).narrow(1, 1, 1).reshape((5, 19))


def merged(tape: Tape) -> Any:
    """A reshape whose strides do not merge, so that it is a copy."""
    x = tape.input(shape=(19, 5))
    return x, x.permute([1, 0]).reshape((19, 5)).permute([1, 0])


LAYOUTS = (
    transposed, narrowed, broadcast_rows, broadcast_columns, one_number, offset, windows, padded, turned, merged,
)  # fmt: skip


def laid_out(layout: Any, element: Any, seed: int = 3) -> Case:
    def record(tape: Tape) -> Any:
        x, view = layout(tape)
        results, feeds = every_instruction(tape, view, seed)
        return results, {x: numbers(element, x.shape, seed), **feeds}

    return recorded(record, element)


@pytest.mark.parametrize(
    ("element", "layout"),
    [*((f32, layout) for layout in LAYOUTS), *((e, layout) for e in (f64, bf16) for layout in (transposed, offset))],
    ids=lambda part: getattr(part, "__name__", str(part)),
)
def test_a_layout_under_an_operand(element: Any, layout: Any) -> None:
    """Movement is read through, never computed: each instruction over each kind of view."""
    laid_out(layout, element).check()


def fed_layouts(dense: np.ndarray) -> dict[str, np.ndarray]:
    """The same numbers under other strides."""
    rows, columns = dense.shape
    roomy = np.zeros((2 * rows, 3 * columns), dense.dtype)
    roomy[::2, ::3] = dense
    raw = np.zeros(dense.nbytes + 64 + 3 * dense.itemsize, np.uint8)
    shifted = raw[3 * dense.itemsize :][: dense.nbytes].view(dense.dtype).reshape(dense.shape)
    shifted[...] = dense
    odd = np.zeros(dense.nbytes + 1, np.uint8)[1:].view(dense.dtype).reshape(dense.shape)
    odd[...] = dense
    return {
        "fortran": np.asfortranarray(dense),
        "spaced": roomy[::2, ::3],
        "rows backwards": dense[::-1].copy()[::-1],
        "columns backwards": dense[:, ::-1].copy()[:, ::-1],
        "both backwards, transposed": dense.T[::-1, ::-1].copy()[::-1, ::-1].T,
        "offset": shifted,
        "unaligned": odd,
        "read-only": frozen(dense),
    }


def frozen(array: np.ndarray) -> np.ndarray:
    copied = array.copy()
    copied.flags.writeable = False
    return copied


@elements
def test_feeds_of_any_strides(element: Any) -> None:
    """A feed's layout is not part of its value; one plan serves all of them, and leaves them as they were."""
    case = recorded(with_lengths([(7, 19)], 5), element)
    plan, expected = case.plan, case.expected()
    (first, dense), *rest = case.feeds.items()
    for name, laid in fed_layouts(dense).items():
        before = laid.copy()
        case.feeds[first] = laid
        case.compare(case.actual(plan), expected)
        assert laid.tobytes() == before.tobytes(), name
    assert rest


@elements
def test_a_feed_of_stride_zero(element: Any) -> None:
    case = recorded(with_lengths([(7, 19)], 5), element)
    (first, dense), *_ = case.feeds.items()
    case.feeds[first] = np.broadcast_to(dense[:1], dense.shape)
    expected = case.check()
    case.feeds[first] = case.feeds[first].copy()
    case.compare(case.expected(), expected)


# Processors and threads ---------------------------------------------------------------------------------------------
PLAIN = ((33,), (3, 17), (520,))


@pytest.mark.parametrize(
    ("element", "cpu"), [(f32, "x86-64"), (f32, "x86-64-v3"), (f32, "x86-64-v4"), (f64, "x86-64"), (bf16, "x86-64-v3")]
)
def test_another_processor(element: Any, cpu: str) -> None:
    with processor(cpu):
        case = recorded(with_lengths(PLAIN, 11), element)
        assert_compiled_for(cpu)
        case.check()


def assert_compiled_for(cpu: str) -> None:
    from topos.backend.native.target import current

    assert current().cpu == cpu


@pytest.mark.exhaustive
@elements
@pytest.mark.parametrize("cpu", CPUS)
def test_every_shape_and_layout_on_every_processor(element: Any, cpu: str) -> None:
    with processor(cpu):
        for shapes in (ODD, EMPTY, LONG, *[[(length,)] for length in LENGTHS]):
            recorded(with_lengths(shapes, 13), element).check()
        for layout in LAYOUTS:
            laid_out(layout, element, seed=13).check()


WIDE = ((70_003,), (300, 301), (3, 40_001), (40_001, 3), (6, 90, 83))


@pytest.mark.parametrize("shape", WIDE[1:2])
def test_any_number_of_threads(shape: Any) -> None:
    """Arrays that fall into many tiles: which thread takes which never shows."""
    case = recorded(with_lengths([shape], 17), f32)
    plan, expected = case.plan, case.expected()
    for count in range(1, 9):
        with threads(count):
            case.compare(case.actual(plan), expected)


@pytest.mark.exhaustive
@elements
@pytest.mark.parametrize("shape", WIDE)
def test_every_shape_on_any_number_of_threads(element: Any, shape: Any) -> None:
    case = recorded(with_lengths([shape], 17), element)
    plan, expected = case.plan, case.expected()
    for count in (1, 2, 3, 4, 5, 6, 7, 8, 8, 2, 1):
        with threads(count):
            for _ in range(3):
                case.compare(case.actual(plan), expected)
