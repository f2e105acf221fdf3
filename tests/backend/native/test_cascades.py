"""Cascades: products with work on rows between them, block of rows by block of rows, with the interpreter's bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import topos
from topos import Element, Tape, bf16, f32, f64
from topos.backend.native import cascade_block, cascade_kernel, cascade_rounds, cascades, prologues
from topos.testing import assert_same_bits

from ..plans import CPUS, check_steps, checked, processor, threads

pytest.importorskip("llvmlite")

SIZES = [  # queries, keys, depth, width
    (2, 1, 1, 1), (3, 5, 7, 2), (16, 16, 8, 16), (33, 70, 5, 17), (70, 33, 17, 70), (64, 64, 32, 32), (17, 96, 3, 40),
    (40, 64, 8, 3), (9, 513, 4, 20), (8, 1030, 3, 5), (21, 544, 6, 33), (50, 128, 520, 16),
]  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cascades of a few rows, in blocks of fewer."""
    monkeypatch.setattr(cascades, "FEWEST_BLOCKS", 1)
    monkeypatch.setattr(cascades, "MOST_RIGHT_BYTES", 1 << 24)
    monkeypatch.setattr(cascade_block, "FEWEST_ROWS", 5)
    monkeypatch.setattr(cascade_block, "BLOCK_BYTES", 1 << 10)


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def attended(query: Any, key: Any, content: Any, mask: Any = None, how: str = "select") -> tuple[Any, Any]:
    """The result and the probabilities."""
    scores = query @ key.transpose() * 0.3
    if mask is not None and how == "select":
        scores = mask.select(scores, float("-inf"))
    elif mask is not None:
        scores = scores + mask
    chances = scores.softmax(-1)
    return chances @ content, chances


def operands(tape: Tape, size: tuple[int, int, int, int], leading: tuple[int, ...] = ()) -> tuple[Any, Any, Any]:
    queries, keys, depth, width = size
    shapes = (queries, depth), (keys, depth), (keys, width)
    query, key, content = (tape.input(numbers(*leading, *shape)) for shape in shapes)
    return query, key, content


def causal(queries: int, keys: int) -> Any:
    return np.tril(np.ones((queries, keys)), keys - queries)


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=lambda element: element.name)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_attention_without_a_mask(size: tuple[int, int, int, int], element: Element) -> None:
    told = checked(lambda tape: [attended(*operands(tape, size))[0]], element)
    assert "cascade" in told and " 1 group," in told


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=lambda element: element.name)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_mask_by_selection(size: tuple[int, int, int, int], element: Element) -> None:
    leading = [(), (3,), (2, 1, 2), (1,)][SIZES.index(size) % 4]

    def record(tape: Tape) -> Any:
        mask = tape.input(causal(*size[:2]))
        for axis in reversed(leading):
            mask = mask.broadcast_along(0, axis)
        return [attended(*operands(tape, size, leading), mask)[0]]

    assert "cascade" in checked(record, element)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_mask_by_addition(size: tuple[int, int, int, int]) -> None:
    def record(tape: Tape) -> Any:
        mask = tape.input(np.where(causal(*size[:2]), 0, -np.inf))
        return [attended(*operands(tape, size), mask, "add")[0]]

    assert "cascade" in checked(record)


MASKS = {
    "none left": lambda rows, columns: np.zeros((rows, columns)),
    "all left": lambda rows, columns: np.ones((rows, columns)),
    "some rows empty": lambda rows, columns: causal(rows, columns) * (np.arange(rows)[:, None] % 3 > 0),
    "negative zeros": lambda rows, columns: np.where(causal(rows, columns), -1.0, -0.0),
    "nan is one": lambda rows, columns: np.where(causal(rows, columns), np.nan, 0.0),
    "one at the end": lambda rows, columns: np.arange(columns)[None] // (columns - 1) * np.ones((rows, 1)),
    "sparse": lambda rows, columns: np.random.default_rng(0).random((rows, columns)) > 0.9,
    "tiny": lambda rows, columns: np.where(causal(rows, columns), 1e-45, 0.0),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("size", [(40, 64, 8, 3), (17, 96, 3, 40), (21, 544, 6, 33), (9, 1056, 3, 17)], ids=str)
@pytest.mark.parametrize("width", [None, 7])
def test_any_mask(size: tuple[int, int, int, int], mask: str, width: int | None) -> None:
    def record(tape: Tape) -> Any:
        wanted = tape.input(MASKS[mask](*size[:2]))
        query, key, content = operands(tape, size)
        return [attended(query, key, content if width is None else content.narrow(1, 1, 2), wanted)[0]]

    assert "cascade" in checked(record)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, -0.0, 1e-45], ids=str)
@pytest.mark.parametrize("where", ["query", "key", "content"])
@pytest.mark.parametrize("place", [0, 20, 63])
def test_numbers_at_the_edge_reach_masked_columns(value: float, where: str, place: int) -> None:
    size = (40, 64, 8, 18)

    def record(tape: Tape) -> Any:
        shapes = {"query": (40, 8), "key": (64, 8), "content": (64, 18)}
        arrays = {name: numbers(*shape) for name, shape in shapes.items()}
        arrays[where][place % len(arrays[where]), 1::2] = value
        mask = tape.input(causal(40, 64) * (np.arange(40)[:, None] != 3))
        masked = attended(*(tape.input(array) for array in arrays.values()), mask)[0]
        return [masked, attended(*operands(tape, size), mask)[0]]

    assert "cascade" in checked(record)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads_share_tiles(threads: int) -> None:
    before = topos.threads()
    topos.threads(threads)
    try:
        size = (70, 96, 16, 16)
        for leading in [(), (2,), (5, 4)]:

            def record(tape: Tape, leading: tuple[int, ...] = leading) -> Any:
                mask = tape.input(causal(70, 96))
                for extent in reversed(leading):
                    mask = mask.broadcast_along(0, extent)
                return [attended(*operands(tape, size, leading), mask)[0]]

            assert "cascade" in checked(record)
    finally:
        topos.threads(before)


def slopes(size: tuple[int, int, int, int], masked: bool, leading: tuple[int, ...] = (2,)) -> Callable[[Tape], Any]:
    """The result of an attention and the gradients of its operands."""

    def record(tape: Tape) -> Any:
        sources = operands(tape, size, leading)
        mask = tape.input(causal(*size[:2])) if masked else None
        for extent in reversed(leading if masked else ()):
            mask = mask.broadcast_along(0, extent)
        result = attended(*sources, mask)[0]
        loss = (result * tape.input(numbers(*leading, size[0], size[3]))).sum()
        return [result, *(slope for _, slope in tape.differentiate(loss, list(sources)))]

    return record


CROSSING = [(48, 40, 17, 9), (64, 64, 32, 32), (512, 16, 9, 13), (520, 24, 8, 8), (1024, 33, 10, 20), (1536, 12, 8, 8)]
RAGGED = [  # no even blocks, rounds of one row or less than a block, few results, an end beside that of 512 terms
    (67, 67, 32, 9), (61, 41, 8, 16), (65, 19, 5, 7), (131, 40, 3, 2), (129, 8, 1, 1), (513, 17, 4, 33),
    (521, 23, 9, 6), (577, 9, 2, 11), (1031, 16, 4, 8),
]  # fmt: skip


@pytest.fixture(params=[1, 8], ids=["matrix by matrix", "in rounds"])
def fewest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix for each thread, or all threads for each matrix."""
    monkeypatch.setattr(cascade_kernel, "FEWEST_MATRICES", request.param)


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=lambda element: element.name)
@pytest.mark.parametrize("size", [*SIZES[3:9], *CROSSING], ids=str)
def test_gradients(size: tuple[int, int, int, int], element: Element) -> None:
    told = checked(slopes(size, masked=size[0] % 4 == 0), element)
    assert told.count("cascade_") == 2


@pytest.mark.usefixtures("fewest")
@pytest.mark.parametrize("element", [f32, f64, bf16], ids=lambda element: element.name)
@pytest.mark.parametrize("size", [*CROSSING, *RAGGED], ids=str)
def test_gradients_that_keep_nothing(size: tuple[int, int, int, int], element: Element) -> None:
    at = [*CROSSING, *RAGGED].index(size)
    leading = [(2,), (), (1,), (3,), (2, 1, 2)][at % 5]
    told = checked(slopes(size, at % 2 == 0, leading), element)
    assert told.count("cascade_") == 2
    assert "product_" not in told and told.count("Exp") == 2


@pytest.mark.usefixtures("fewest")
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_threads_share_what_sums_over_rows(count: int) -> None:
    for size, leading in (((64, 96, 16, 16), (2,)), ((1031, 24, 8, 16), ()), ((131, 67, 16, 8), (3,))):
        with threads(count):
            assert "product_" not in checked(slopes(size, masked=True, leading=leading))


@pytest.mark.usefixtures("fewest")
@pytest.mark.parametrize("cpu", CPUS[1:])
def test_processors_sum_over_rows_alike(cpu: str) -> None:
    with processor(cpu):
        assert "product_" not in checked(slopes((67, 24, 8, 9), masked=True, leading=(3,)))


@pytest.mark.parametrize("rows", [1, 16, 31, 64])
@pytest.mark.parametrize("size", [(131, 24, 8, 16), (1024, 20, 8, 8), (1031, 20, 8, 8), (131, 97, 8, 701)], ids=str)
def test_rounds_of_any_length(size: tuple[int, int, int, int], rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last size is of so many results that one tile of them packs what it sums over."""
    monkeypatch.setattr(cascade_rounds, "ROUND_ROWS", rows)
    monkeypatch.setattr(cascade_rounds, "MOST_ROUNDS", 1 << 20)
    for tiles in (1, 3, 16):
        monkeypatch.setattr(cascade_rounds, "MOST_TILES", tiles)
        assert "product_" not in checked(slopes(size, masked=True, leading=(1,)))


@pytest.mark.parametrize("leading", [(), (1,), (3,), (7,), (8,), (9,)], ids=str)
@pytest.mark.parametrize("rows", [67, 128, 131, 521])
def test_no_scores_are_stored(rows: int, leading: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limits that plans have: of any number of matrices and rows, if they are several blocks."""
    monkeypatch.undo()
    network, results = Tape.record(slopes((rows, rows, 32, 32), rows % 2 == 0, leading))
    plan = network.entry(results).lower()
    volumes = {node.symbol.index: node.shape.volume for node in plan.nodes()}
    stored = [row for line in re.findall(r"  stores ([\d, ]+)  ", plan.explain()) for row in map(int, line.split(", "))]
    matrices = int(np.prod(leading))
    is_one_block = matrices * -(-rows // 16) < cascades.FEWEST_BLOCKS
    assert (max(volumes[row] for row in stored) >= matrices * rows * rows) == is_one_block


def test_an_attention_of_one_head_has_an_arena_below_its_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for rows in (1024, 1031):
        network, results = Tape.record(slopes((rows, rows, 64, 64), rows % 2 == 0, ()))
        told = network.entry(results).lower().explain()
        assert int(told.rpartition("arena of ")[2].split()[0]) < 4 * rows * rows


def test_a_step_of_few_matrices_replaces_what_they_read() -> None:
    def record(tape: Tape) -> Any:
        sources = [tape.parameter(numbers(2, 67, 16), name=name) for name in ("query", "key", "content")]
        loss = attended(*sources)[0].tanh().sum()
        return loss, {source: source - 0.1 * slope for source, slope in tape.differentiate(loss, sources)}

    network, (loss, following) = Tape.record(record)
    plan = network.entry(loss).carry(following).lower()
    assert "sums_" in plan.explain()
    check_steps(plan, network, [loss], following, {})


@pytest.mark.usefixtures("fewest")
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38], ids=str)
def test_gradients_at_the_edge(value: float) -> None:
    def record(tape: Tape) -> Any:
        arrays = [numbers(2, 64, 16) for _ in range(3)]
        for at, array in enumerate(arrays):
            array[at % 2, 20 * at, 3] = value
        sources = [tape.input(array) for array in arrays]
        mask = tape.input(causal(64, 64) * (np.arange(64)[:, None] != 3)).broadcast_along(0, 2)
        result = attended(*sources, mask)[0]
        loss = (result * tape.input(numbers(2, 64, 16))).sum()
        return [result, *(slope for _, slope in tape.differentiate(loss, sources))]

    assert "product_" not in checked(record)


def test_what_a_result_shows_is_kept_and_not_made_again() -> None:
    def record(tape: Tape) -> Any:
        sources = operands(tape, (64, 64, 16, 16), (2,))
        result, chances = attended(*sources)
        loss = (result * result).sum()
        return [chances, *(slope for _, slope in tape.differentiate(loss, list(sources)))]

    assert checked(record).count("Exp") == 1


def test_a_product_that_others_wait_for_runs_where_it_stands() -> None:
    def record(tape: Tape) -> Any:
        query, key, content = operands(tape, (64, 64, 16, 16), (2,))
        chances = attended(query, key, content)[1]
        across = chances.transpose() @ query
        return [
            chances @ (content + across),
            (chances * 2.0) @ across,
            chances.transpose() @ (across @ across.transpose()),
        ]

    checked(record)


def test_what_somebody_else_reads_is_stored() -> None:
    def record(tape: Tape) -> Any:
        query, key, content = operands(tape, (40, 64, 8, 16))
        mask = tape.input(causal(40, 64))
        result, chances = attended(query, key, content, mask)
        return [result, chances, chances.transpose() @ query, chances.sum_along(1)]

    told = checked(record)
    assert "cascade" in told and "stores" in told


def test_split_heads_are_read_where_they_lie() -> None:
    def record(tape: Tape) -> Any:
        parts = tape.input(numbers(33, 3, 4, 16))
        query, key, content = (parts.narrow(1, at, 1).squeeze(1).permute([1, 0, 2]) for at in range(3))
        mask = tape.input(causal(33, 33)).broadcast_along(0, 4)
        return [attended(query, key, content, mask)[0].permute([1, 0, 2]).reshape([33, 64])]

    told = checked(record)
    assert "cascade" in told


NEAR = {
    "the right operand is the softmax": lambda q, k, v: v.transpose() @ (q @ k.transpose()).softmax(-1).transpose(),
    "rows are turned": lambda q, k, v: (q @ k.transpose()).softmax(-1).transpose() @ q,
    "another axis": lambda q, k, v: (q @ k.transpose()).softmax(0) @ v,
    "part of the rows": lambda q, k, v: (q @ k.transpose()).softmax(-1).narrow(0, 3, 9) @ v,
    "flipped shapes": lambda q, k, v: (q @ k.transpose()).softmax(-1).reshape([64, 40]) @ q,
    "the right operand depends on it": lambda q, k, v: (s := (q @ k.transpose()).softmax(-1)) @ (s.transpose() @ q),
    "of one number": lambda q, k, v: (q.one_like() @ k.transpose()).softmax(-1) @ v,
    "by one number": lambda q, k, v: (q @ k.transpose().one_like()).exp() @ v.one_like(),
    "no terms": lambda q, k, v: (q.narrow(1, 0, 0) @ k.narrow(1, 0, 0).transpose()).softmax(-1) @ v,
    "no columns": lambda q, k, v: (q @ k.transpose()).softmax(-1) @ v.narrow(1, 0, 0),
    "no keys": lambda q, k, v: (q @ k.narrow(0, 0, 0).transpose()).softmax(-1) @ v.narrow(0, 0, 0),
    "of itself": lambda q, k, v: (s := (q @ q.transpose()).softmax(-1)) @ s,
}


@pytest.mark.parametrize("name", NEAR)
def test_what_is_nearly_one_is_right(name: str) -> None:
    checked(lambda tape: [NEAR[name](*operands(tape, (40, 64, 8, 16)))])


def test_between_two_products_anything_by_rows_may_happen() -> None:
    def record(tape: Tape) -> Any:
        query, key, content = operands(tape, (40, 64, 8, 16))
        scores = query @ key.transpose()
        normal = (scores - scores.mean_along(1).broadcast_along(1, 64)).tanh()
        other = (content @ content.transpose()).narrow(0, 3, 40).sigmoid()
        return [(normal * other).log_softmax(-1) @ content]

    assert "cascade" in checked(record)


def test_two_products_may_meet_in_one() -> None:
    def record(tape: Tape) -> Any:
        query, key, content = operands(tape, (40, 64, 8, 16))
        return [((query @ key.transpose()).exp() * (query @ key.transpose() * 2.0).tanh()) @ content]

    assert " 1 group," in checked(record)


def test_a_carried_buffer_is_replaced_after_it_was_read() -> None:
    def record(tape: Tape) -> Any:
        query, key, content = operands(tape, (40, 40, 16, 16))
        return query, attended(query, key, content)[0]

    network, (query, result) = Tape.record(record)
    entry = network.entry([]).carry({query: result})
    state, plain = network.state(), network.parameters()
    plan = entry.lower()
    assert "cascade" in plan.explain()
    plan.advance(state)
    assert_same_bits(state.of(query), network.entry([result]).interpret(plain).of(result))


def test_a_product_that_works_out_its_operand_does_not_cross(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weighted loss of an attention, and the gradient of its contents alone."""
    monkeypatch.setattr(prologues, "LEAST_NUMBERS", 1)

    def record(tape: Tape) -> Any:
        query, key, content = operands(tape, (32, 32, 8, 16), (8,))
        loss = (attended(query, key, content)[0] * (tape.input(numbers(8, 32, 16)) * 0.5 + 1.0)).sum()
        ((_, gradient),) = tape.differentiate(loss, [content])
        return [loss, gradient]

    told = checked(record)
    assert "cascade" in told and "right operand packed as" in told


def test_a_product_of_one_number_for_each_row_is_no_stage() -> None:
    tape = Tape()
    left, right, after = (tape.parameter(numbers(*shape)) for shape in ((9, 40, 5), (9, 5, 24), (40, 16)))
    y = ((left @ right).softmax(2) * 2.0).sum_along(2) @ after
    symbol = y.symbol()
    network = tape.into_network()
    plan = network.entry([symbol]).lower()
    assert plan.explain().splitlines()[-1].startswith("native: ")
    run = plan.forward(network.parameters())
    assert_same_bits(run.of(symbol), network.entry([symbol]).interpret(network.parameters()).of(symbol))
