"""Products as kernels against the reference, bit for bit, whatever the shape, layout, target and order of tiles."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos import reference  # noqa: E402
from topos.backend.native.products import ProductTask, explain, product  # noqa: E402
from topos.backend.native.products.choice import Choice  # noqa: E402
from topos.backend.native.target import Target  # noqa: E402
from topos.element import bf16, f32, f64  # noqa: E402
from topos.testing import assert_same_bits  # noqa: E402

from . import product_compiler as compiler  # noqa: E402

ELEMENTS = {"f32": f32, "f64": f64, "bf16": bf16}
TARGETS = compiler.supported()
LAYOUTS = ("plain", "transposed", "strided", "reversed", "offset", "rows repeat", "columns repeat")
SPECIALS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-44, 3e38, -3e38, 1.2e-38, 1e-320, -1e308, 1e200, 1e-200]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def numbers(rng: np.random.Generator, shape: tuple[int, ...], element: str, specials: float = 0.0) -> Any:
    drawn = np.asarray(rng.standard_normal(shape))
    chosen = rng.random(shape) < specials
    drawn = np.where(chosen, rng.choice(np.array(SPECIALS), shape), drawn)
    with np.errstate(all="ignore"):
        return ELEMENTS[element].round(drawn)


def laid_out(array: Any, layout: str, rng: np.random.Generator) -> Any:
    """The same shape with other strides; where the layout repeats, other numbers too."""
    *batch, rows, columns = array.shape
    if layout == "transposed":
        return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
    if layout == "strided":
        wide = np.zeros((*batch, 2 * rows, 3 * columns), array.dtype)
        wide[..., ::2, ::3] = array
        return wide[..., ::2, ::3]
    if layout == "reversed":
        return np.ascontiguousarray(array[..., ::-1, ::-1])[..., ::-1, ::-1]
    if layout == "offset":
        wide = np.zeros((*batch, rows + 2, columns + 5), array.dtype)
        wide[..., 1 : 1 + rows, 3 : 3 + columns] = array
        return wide[..., 1 : 1 + rows, 3 : 3 + columns]
    if layout == "rows repeat":
        return np.broadcast_to(array[..., :1, :], array.shape)
    if layout == "columns repeat":
        return np.broadcast_to(array[..., :1], array.shape)
    return array


def guarded(shape: tuple[int, ...], dtype: Any, layout: str) -> tuple[Any, Any]:
    """(results to write, the whole buffer around them), every byte 0xA5."""
    size = int(np.prod(shape)) if layout != "strided" else 6 * int(np.prod(shape))
    buffer = np.full((size + 128) * np.dtype(dtype).itemsize, 0xA5, np.uint8)
    inner = buffer.view(dtype)[64 : 64 + size]
    *batch, rows, columns = shape
    if layout == "transposed":
        return inner.reshape(*batch, columns, rows).swapaxes(-1, -2), buffer
    if layout == "strided":
        return inner.reshape(*batch, 2 * rows, 3 * columns)[..., ::2, ::3], buffer
    if layout == "reversed":
        return inner.reshape(shape)[..., ::-1, ::-1], buffer
    return inner.reshape(shape), buffer


def check(
    element: str,
    target: str,
    left: Any,
    right: Any,
    out_layout: str = "plain",
    threads: int = 0,
) -> None:
    """The kernel's bits are the reference's, and no byte beside the results and inside the guards has changed."""
    shape = (*left.shape[:-1], right.shape[-1])
    out, buffer = guarded(shape, left.dtype, out_layout)
    expected_buffer = buffer.copy()
    task = compiler.task_of(left, right, out, element)
    function = compiler.compiled(task, TARGETS[target])
    block, scratch = compiler.arguments_of(left, right, out, function.scratch_bytes)
    function.run(block, max(1, threads))
    expected = reference.matmul(ELEMENTS[element], left, right)
    message = f"{target} {task}: {explain(task, TARGETS[target])}"
    try:
        assert_same_bits(np.array(out), expected)
    except AssertionError as error:
        raise AssertionError(f"{message}\n{error}") from None
    out.view(f"u{out.itemsize}")[...] = np.array(0xA5A5A5A5A5A5A5A5, np.uint64).astype(f"u{out.itemsize}")
    assert (buffer == expected_buffer).all(), message
    used = 104 + function.scratch_bytes
    assert (scratch[:104] == 0xA5).all() and (scratch[used:] == 0xA5).all(), message


def operands(
    element: str, rows: int, terms: int, columns: int, layouts: tuple[str, str] = ("plain", "plain"), **more: Any
) -> tuple[Any, Any]:
    rng = np.random.default_rng(rows * 7919 + terms * 31 + columns)
    batch, specials = more.get("batch", ()), more.get("specials", 0.0)
    left = numbers(rng, (*batch, rows, terms), element, specials)
    right = numbers(rng, (*batch, terms, columns), element, specials)
    return laid_out(left, layouts[0], rng), laid_out(right, layouts[1], rng)


each_target = pytest.mark.parametrize("target", list(TARGETS))
each_element = pytest.mark.parametrize("element", list(ELEMENTS))

SHAPES = [
    (1, 1, 1), (1, 17, 33), (2, 3, 70), (5, 64, 16), (7, 13, 9), (16, 16, 17), (33, 70, 47), (70, 5, 31),
    (1, 511, 40), (3, 512, 20), (4, 513, 64), (2, 1025, 7), (29, 1, 1), (70, 65, 1), (3, 1100, 2), (1, 1024, 1),
    (6, 0, 5), (19, 530, 66), (1, 9000, 1), (2, 5300, 1), (1, 16384, 1),
]  # fmt: skip


@each_element
@each_target
def test_shapes(element: str, target: str) -> None:
    for shape in SHAPES:
        check(element, target, *operands(element, *shape))


@each_element
def test_every_small_shape(element: str) -> None:
    for rows, terms, columns in itertools.product((1, 2, 3, 5, 9), (1, 2, 7, 8), (1, 3, 8, 15, 18)):
        check(element, "host", *operands(element, rows, terms, columns))


@each_element
def test_no_terms_and_no_results(element: str) -> None:
    for shape, batch in (((70, 0, 37), ()), ((3, 0, 2), (5,)), ((0, 3, 4), ()), ((3, 4, 0), (2,)), ((3, 4, 5), (0,))):
        for out in ("plain", "transposed", "strided"):
            check(element, "host", *operands(element, *shape, batch=batch), out)


@each_element
@pytest.mark.parametrize("target", ["x86-64", "host"])
def test_layouts(element: str, target: str) -> None:
    pairs = itertools.product(LAYOUTS, LAYOUTS) if element == "f32" else zip(LAYOUTS, reversed(LAYOUTS), strict=True)
    outs = itertools.cycle(("plain", "transposed", "strided", "reversed"))
    for layouts, out in zip(pairs, outs, strict=False):
        check(element, target, *operands(element, 9, 37, 21, layouts), out)


@each_element
@pytest.mark.parametrize("out", ["plain", "transposed", "strided", "reversed"])
def test_waiting_totals(element: str, out: str) -> None:
    for layouts in (("plain", "plain"), ("transposed", "transposed")):
        check(element, "host", *operands(element, 13, 1030, 37, layouts), out)


@each_element
@each_target
def test_specials(element: str, target: str) -> None:
    for shape in ((3, 5, 2), (2, 33, 40), (5, 600, 19), (1, 520, 1), (1, 40, 33)):
        for share in (0.03, 0.4):
            check(element, target, *operands(element, *shape, specials=share))
            check(element, target, *operands(element, *shape, ("plain", "transposed"), specials=share))


@each_element
@each_target
def test_products_that_round_twice_or_vanish(element: str, target: str) -> None:
    rng = np.random.default_rng(3)
    one, least = ELEMENTS[element], {"f32": -149, "f64": -1074, "bf16": -133}[element]
    exponents = rng.integers(least // 2 - 30, least // 2 + 60, (20, 24))
    few = rng.integers(-(2**12), 2**12, (20, 24)) / 2.0**6
    left = one.round(np.ldexp(few, exponents))
    check(element, target, left, laid_out(one.round(np.ldexp(few, exponents[::-1]).T), "plain", rng))
    big = one.round(np.ldexp(few, rng.integers(-least // 2 - 30, -least // 2 - 8, (20, 24))))
    check(element, target, big, laid_out(big.T, "plain", rng))
    near = one.round(1 + np.ldexp(rng.integers(-9, 9, (20, 24)).astype(float), -int(rng.integers(20, 26))))
    signs = one.round(np.where(np.arange(24)[:, None] % 2, -1.0, 1.0) * np.asarray(near.T, np.float64))
    check(element, target, near, np.ascontiguousarray(signs))


@each_element
@pytest.mark.parametrize("batch", [(3,), (2, 3), (40,), (1, 5)])
def test_batches(element: str, batch: tuple[int, ...]) -> None:
    for shape in ((1, 20, 1), (4, 9, 3), (3, 8, 20), (17, 40, 33), (1, 30, 50)):
        left, right = operands(element, *shape, batch=batch)
        check(element, "host", left, right)
        check(element, "host", laid_out(left, "strided", np.random.default_rng(0)), right, "transposed")
        check(element, "host", np.broadcast_to(left[:1], left.shape), right)
        check(element, "host", left, np.broadcast_to(right[:1], right.shape))
        check(element, "host", left[::-1], right[::-1])
        swapped = np.ascontiguousarray(np.moveaxis(left, -2, 0))
        check(element, "host", np.moveaxis(swapped, 0, -2), right)


@each_element
def test_tiles_in_threads(element: str) -> None:
    shapes = [
        ((70, 530, 130), ()),
        ((3, 900, 300), ()),
        ((1, 700, 1500), ()),
        ((30, 40, 50), (9,)),
        ((300, 700, 5), ()),
    ]
    for shape, batch in shapes:
        for layouts in (("plain", "plain"), ("transposed", "plain"), ("plain", "transposed")):
            left, right = operands(element, *shape, layouts, batch=batch)
            check(element, "host", left, right, threads=3)


def test_large_work_has_tiles_and_small_work_has_one() -> None:
    target = TARGETS["host"]
    for (rows, terms, columns), least in (
        ((20, 30, 40), 1),
        ((256, 256, 256), 8),
        ((1, 768, 3072), 4),
        ((1, 4096, 4096), 8),
        ((1, 768, 50257), 8),
        ((1000, 500, 2), 2),
    ):
        task = ProductTask("f32", rows, terms, columns, (terms, 1), (columns, 1), (columns, 1))
        tiles = product(task, target)[0].tiles
        assert tiles >= least if least > 1 else tiles == 1


def test_equal_work_prints_an_equal_kernel() -> None:
    task = ProductTask("f32", 20, 30, 40, (30, 1), (40, 1), (40, 1))
    first = product(task, TARGETS["host"])
    importlib.import_module("topos.backend.native.products.product")._alone.cache_clear()
    second = product(task, TARGETS["host"])
    assert second == first
    assert second[0] is not first[0]


def test_explanation() -> None:
    left, right = operands("f32", 30, 30, 40)
    task = compiler.task_of(left, right, np.zeros((30, 40), np.float32), "f32")
    assert explain(task, compiler.V4) == (
        "direct: the right operand is read in vectors as it lies, once or from a cache; "
        "register tile 6 rows x 3 vectors; 1 blocks of terms; 1 tiles"
    )


@pytest.fixture
def packed_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes products pack an operand once for all tiles, whatever pays."""
    module = importlib.import_module("topos.backend.native.products.product")
    elect = module.elect

    def force(operand: str) -> None:
        def forced(task: ProductTask, target: Target, is_folded: bool = True) -> Choice:
            choice = elect(task, target, is_folded)
            tiles = {"row_tiles": min(3, choice.rows.groups), "column_tiles": min(2, choice.panels.groups)}
            kind = {"kind": "packed", "packs_left": True, "packs_right": True, "shared": operand, "chunk": 2}
            return cast(Choice, choice._replace(pack_tiles=min(3, choice.shared_units), **tiles, **kind))

        monkeypatch.setattr(module, "elect", forced)
        monkeypatch.setattr(compiler, "_CACHE", {})

    return force


@each_element
@pytest.mark.parametrize("target", ["x86-64-v3", "host"])
@pytest.mark.parametrize("operand", ["left", "right"])
def test_an_operand_packed_once_for_all_tiles(
    element: str, target: str, operand: str, packed_once: Callable[[str], None]
) -> None:
    if target not in TARGETS:
        pytest.skip(f"this machine runs no {target}")
    packed_once(operand)
    for shape, layouts, batch in (
        ((45, 37, 130), ("plain", "transposed"), ()),
        ((61, 1030, 90), ("transposed", "plain"), ()),
        ((33, 520, 70), ("strided", "reversed"), (2,)),
    ):
        left, right = operands(element, *shape, layouts, batch=batch)
        out = np.zeros((*batch, shape[0], shape[2]), left.dtype)
        kernels = product(compiler.task_of(left, right, out, element), TARGETS[target])
        assert [kernel.name.split("_")[0] for kernel in kernels] == ["packing", "product"]
        check(element, target, left, right, threads=2)


def test_large_squares_pack_the_right_operand() -> None:
    task = compiler.task_of(*operands("f32", 1024, 1024, 1024), np.zeros((1024, 1024), np.float32), "f32")
    assert explain(task, compiler.V4) == (
        "packed: the right operand is copied into panels, block of terms by block; register tile 6 rows x 4 vectors; "
        "2 blocks of terms; 12 tiles"
    )


@pytest.mark.parametrize(("extent", "wide", "narrow"), [(256, "direct", "direct"), (384, "direct", "packed")])
def test_lines_that_lie_apart_are_packed_beyond_the_nearer_caches(extent: int, wide: str, narrow: str) -> None:
    out = np.zeros((extent, extent), np.float32)
    task = compiler.task_of(*operands("f32", extent, extent, extent), out, "f32")
    assert explain(task, compiler.V4).startswith(wide)
    assert explain(task, compiler.V3).startswith(narrow)


@each_element
@pytest.mark.parametrize("target", ["x86-64-v3", "host"])
def test_a_vast_left_operand_is_packed_too(element: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if target not in TARGETS:
        pytest.skip(f"this machine runs no {target}")
    elect = importlib.import_module("topos.backend.native.products.elect")
    for name in ("_VAST_BYTES", "_VAST_COLUMNS", "_RESIDENT_BYTES"):
        monkeypatch.setattr(elect, name, 1)
    monkeypatch.setattr("topos.backend.native.target.SECOND_CACHE_BYTES", 1 << 12)
    monkeypatch.setattr(compiler, "_CACHE", {})
    elect.elect.cache_clear()
    for shape in ((45, 36, 130), (61, 1030, 90)):
        for out in ("plain", "transposed"):
            left, right = operands(element, *shape)
            check(element, target, left, right, out, threads=3)
    task = compiler.task_of(left, right, np.zeros((61, 90), left.dtype), element)
    assert ("left packed too" in explain(task, TARGETS[target])) == (TARGETS[target].registers == 16)
    elect.elect.cache_clear()


@each_element
@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize(("columns", "apart"), [(64, 64), (100, 130)])
def test_one_row_whose_terms_lie_apart_is_packed(element: str, target: str, columns: int, apart: int) -> None:
    """A column of a matrix: in a register tile of one row too."""
    terms = 8200
    wide, right = operands(element, terms, apart, columns)[0], operands(element, 1, terms, columns)[1]
    check(element, target, wide[:, 3:4].T, right)


@each_element
@each_target
def test_few_rows_take_whole_blocks_of_a_matrix(element: str, target: str) -> None:
    for shape, layouts in (
        ((1, 2048, 530), ("plain", "plain")),
        ((3, 2100, 520), ("strided", "offset")),
        ((530, 2050, 2), ("transposed", "plain")),
    ):
        left, right = operands(element, *shape, layouts)
        task = compiler.task_of(left, right, np.zeros((shape[0], shape[2]), left.dtype), element)
        assert explain(task, TARGETS[target]).endswith("blocks of terms added in order")
        if TARGETS[target].has_fma:
            check(element, target, left, right, threads=2)
    wide = ProductTask(element, 1, 2048, 1 << 14, (2048, 1), (1 << 14, 1), (1 << 14, 1))
    assert "added in order" not in explain(wide, TARGETS[target])


BLOCKWISE = [
    (1, 768, 1100, 4, False),  # a block, and the rest of another: the tiles meet inside the first
    (8, 513, 517, 4, False),  # a rest of one term
    (2, 1030, 640, 4, False),
    (5, 2600, 260, 4, False),
    (3, 1023, 1031, 4, False),
    (1, 2048, 501, 2, True),
    (2, 2570, 510, 2, True),  # groups of three and two blocks, and a rest
    (1, 5130, 272, 4, True),
]


@each_element
@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "host"])
@pytest.mark.parametrize(("rows", "terms", "columns", "tiles", "is_abreast"), BLOCKWISE)
def test_blocks_of_terms_are_shared_out(
    element: str, target: str, rows: int, terms: int, columns: int, tiles: int, is_abreast: bool
) -> None:
    if target not in TARGETS:
        pytest.skip(f"this machine runs no {target}")
    columns *= 2 if element == "bf16" else 1
    left, right = operands(element, rows, terms, columns, specials=0.0001)
    out = np.zeros((rows, columns), left.dtype)
    said = explain(compiler.task_of(left, right, out, element), TARGETS[target])
    how = "short lines" if is_abreast else "whole lines"
    assert said.startswith(f"blockwise: few rows; {how} of the right operand")
    assert f"; {tiles} tiles; then the totals of {-(-terms // 512)} blocks of terms added in order" in said
    check(element, target, left, right)
    check(element, target, *operands(element, rows, terms, columns, ("strided", "offset")), "strided", threads=2)
    check(element, target, right.T, left.T, "transposed", threads=3)


@each_element
@pytest.mark.parametrize("threads", range(1, 9))
def test_blocks_of_terms_on_any_number_of_threads(element: str, threads: int) -> None:
    for shape in ((1, 4500, 600), (4, 4500, 600), (1, 4099, 300)):
        check(element, "host", *operands(element, *shape, specials=0.0001), threads=threads)


@each_element
def test_lines_that_come_from_beyond_the_nearer_caches(element: str) -> None:
    for shape in ((1, 70, 8000), (2, 600, 1000), (1, 4200, 150)):
        left, right = operands(element, *shape, ("plain", "transposed"))
        check(element, "host", left, right, threads=2)


@each_element
@pytest.mark.parametrize("target", ["x86-64-v3", "host"])
def test_lanes_read_lines_of_their_own_from_end_to_end(element: str, target: str) -> None:
    if target not in TARGETS:
        pytest.skip(f"this machine runs no {target}")
    for shape, batch, out in (((1, 20, 1003), (17,), "plain"), ((3, 65, 1100), (4,), "strided")):
        left, right = operands(element, *shape, ("plain", "transposed"), batch=batch, specials=0.0003)
        assert right.nbytes >= 512 << 10
        check(element, target, left, right, out, threads=3)


@pytest.mark.parametrize(("rows", "columns", "kind"), [(128, 256, "direct"), (128, 250, "packed"), (40, 250, "direct")])
def test_lines_that_cross_those_of_the_caches_are_packed_for_many_rows(rows: int, columns: int, kind: str) -> None:
    task = compiler.task_of(*operands("f32", rows, 300, columns), np.zeros((rows, columns), np.float32), "f32")
    assert explain(task, compiler.V4).startswith(kind)


@pytest.mark.parametrize(("batches", "tiles"), [(12, 12), (13, 13), (16, 8), (24, 8), (28, 14)])
def test_batches_are_shared_out_evenly(batches: int, tiles: int) -> None:
    left, right = operands("f32", 64, 64, 128, batch=(batches,))
    task = compiler.task_of(left, right, np.zeros((batches, 64, 128), np.float32), "f32")
    assert explain(task, compiler.V4).endswith(f"{tiles} tiles")


@each_element
@pytest.mark.parametrize("target", ["x86-64", "host"])
def test_few_results_of_many_terms(element: str, target: str) -> None:
    for layouts, out in ((("plain", "transposed"), "plain"), (("transposed", "reversed"), "strided")):
        left, right = operands(element, 20, 7 * 512 + 5, 35, layouts, specials=0.0003)
        task = compiler.task_of(left, right, np.zeros((20, 35), left.dtype), element)
        assert "the totals of 8 blocks of terms added in order" in explain(task, TARGETS[target])
        check(element, target, left, right, out, threads=2)
    left, right = operands(element, 5, 8 * 512, 7, ("transposed", "plain"))
    check(element, target, left, right, threads=2)


@each_element
@pytest.mark.parametrize("target", ["x86-64", "host"])
@pytest.mark.parametrize("shape", [(1, 64 * 512, 1), (2, 64 * 512 + 3, 1), (3, 65 * 512 + 100, 1), (2, 33_000, 4)])
def test_very_few_results_of_very_many_terms(element: str, target: str, shape: tuple[int, int, int]) -> None:
    for layouts, out in ((("plain", "transposed"), "plain"), (("transposed", "plain"), "strided")):
        left, right = operands(element, *shape, layouts, specials=0.00003)
        task = compiler.task_of(left, right, np.zeros((shape[0], shape[2]), left.dtype), element)
        assert "blocks of terms added in order" in explain(task, TARGETS[target])
        check(element, target, left, right, out, threads=3)


@each_element
def test_few_results_of_each_of_many_products(element: str) -> None:
    for shape, count in (((1, 70, 1), 37), ((2, 515, 1), 17), ((1, 16, 2), 33), ((3, 9, 2), 10), ((1, 1, 1), 40)):
        left, right = operands(element, *shape, batch=(count,), specials=0.002)
        turned = laid_out(right, "transposed", np.random.default_rng(0))
        for chosen in (right, turned, np.broadcast_to(right[:1], right.shape), right[::-1]):
            check(element, "host", left, chosen, threads=2)


STREAMED = [(1, 130, 2100), (8, 512, 517), (3, 5, 53_001), (1, 3, 90_000), (5, 1, 270_001), (2, 1030, 17_003)]


@each_element
@pytest.mark.parametrize("target", ["x86-64-v3", "host"])
@pytest.mark.parametrize("shape", STREAMED)
def test_few_rows_by_a_wide_matrix(element: str, target: str, shape: tuple[int, int, int]) -> None:
    if target not in TARGETS:
        pytest.skip(f"this machine runs no {target}")
    left, right = operands(element, *shape, specials=0.0001)
    out = np.zeros((shape[0], shape[2]), left.dtype)
    said = explain(compiler.task_of(left, right, out, element), TARGETS[target])
    assert said.startswith("streamed: few rows; lines of the right operand are read side by side from end to end; ")
    for layout in ("plain", "strided"):
        check(element, target, left, right, layout, threads=3)
    check(element, target, *operands(element, *shape, ("reversed", "offset")), threads=2)


@each_element
@pytest.mark.parametrize("target", ["x86-64-v3", "host"])
@pytest.mark.parametrize("shape", [(1, 700, 401), (8, 517, 520), (5, 2100, 133), (2, 33, 8200)])
def test_few_rows_by_many_lines_of_terms(element: str, target: str, shape: tuple[int, int, int]) -> None:
    if target not in TARGETS:
        pytest.skip(f"this machine runs no {target}")
    left, right = operands(element, *shape, ("plain", "transposed"), specials=0.0001)
    task = compiler.task_of(left, right, np.zeros((shape[0], shape[2]), left.dtype), element)
    assert explain(task, TARGETS[target]).startswith("lines: ")
    check(element, target, left, right, threads=3)
    check(element, target, left[..., ::-1], right, "strided")


@pytest.mark.exhaustive
@each_element
@pytest.mark.parametrize("layouts", [("plain", "transposed"), ("transposed", "transposed"), ("strided", "reversed")])
def test_packed_once_over_blocks(element: str, layouts: tuple[str, str]) -> None:
    for rows, columns in ((300, 1040), (1040, 300)):
        check(element, "host", *operands(element, rows, 545, columns, layouts, specials=0.0001), threads=3)


@pytest.mark.exhaustive
@each_element
@each_target
def test_exhaustive(element: str, target: str) -> None:
    rng = np.random.default_rng(11)
    extents = [*range(1, 71), 511, 512, 513, 1024, 1025]
    for _ in range(250):
        rows, terms, columns = (int(rng.choice(extents)) for _ in range(3))
        if rows * terms * columns > 3_000_000 or (target == "x86-64" and rows * terms * columns > 300_000):
            continue
        layouts = (str(rng.choice(LAYOUTS)), str(rng.choice(LAYOUTS)))
        out = str(rng.choice(["plain", "transposed", "strided", "reversed"]))
        specials = float(rng.choice([0.0, 0.0, 0.02]))
        check(
            element,
            target,
            *operands(element, rows, terms, columns, layouts, specials=specials),
            out,
            int(rng.integers(0, 3)),
        )


def test_equal_products_have_their_kernels_in_common() -> None:
    task = ProductTask("f32", 40, 300, 24, (300, 1), (24, 1), (24, 1))
    (first,) = product(task, compiler.V3)
    (second,) = product(ProductTask("f32", 40, 300, 24, (300, 1), (24, 1), (24, 1)), compiler.V3)
    (other,) = product(task._replace(columns=23), compiler.V3)
    assert second is first
    assert other.text != first.text
