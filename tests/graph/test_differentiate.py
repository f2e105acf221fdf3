from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import Adjoints, ElementError, KinshipError, Symbol, Tape, Tensor, Value, bf16, f64
from topos.op import Opcode
from topos.testing import assert_same_bits


def numbers(tape: Tape, *values: Value) -> list[Any]:
    """The values of some nodes, and the tape sealed."""
    symbols = [value.symbol() for value in values]
    network = tape.into_network()
    return [tensor.tolist() for tensor in network.forward(network.parameters()).of(symbols)]


def lines(tape: Tape, start: int) -> list[str]:
    return [" ".join(line.split()) for line in tape.describe().splitlines()[start:-1]]


def test_a_target_with_respect_to_itself_is_the_seed() -> None:
    tape = Tape()
    x = tape.parameter(3.0)
    adjoints = tape.differentiate(x, x)
    assert lines(tape, 1) == ["1 Leaf []"]
    assert adjoints.of(x) == tape.resolve(tape.nodes()[1].symbol)
    assert numbers(tape, adjoints.of(x)) == [1.0]


def test_a_target_among_others_is_the_seed_too() -> None:
    tape = Tape()
    x = tape.parameter(3.0)
    y = x * x
    adjoints = tape.differentiate(y, [y, x])
    assert adjoints.of(y).index == 2
    assert numbers(tape, adjoints.of(y), adjoints.of(x)) == [1.0, 6.0]


def test_a_seed_is_answered_as_it_is() -> None:
    tape = Tape()
    x = tape.parameter([1.0, 2.0])
    seed = tape.input([3.0, 4.0])
    before = len(tape)
    assert tape.vjp(x, seed, x).of(x) == seed
    assert tape.vjp(x, seed.symbol(), x).of(x) == seed
    assert len(tape) == before
    assert tape.vjp(x, [5.0, 6.0], x).of(x).payload().tolist() == [5.0, 6.0]
    assert lines(tape, before) == ["2 Leaf [2]"]


def test_the_same_entry_twice_answers_the_same_node() -> None:
    tape = Tape()
    x = tape.parameter(3.0)
    unreached = tape.parameter([1.0, 2.0])
    adjoints = tape.differentiate(x * x, [x, x.symbol(), unreached, unreached])
    pairs = list(adjoints)
    assert len(pairs) == len(adjoints) == 4
    assert pairs[0][1] == pairs[1][1]
    assert pairs[2][1] == pairs[3][1]
    assert [root.index for root in adjoints.roots()] == [2, pairs[0][1].index, pairs[1][1].index, *[len(tape) - 1] * 2]


def test_what_is_not_reached_gets_a_zero_each_last_and_in_order() -> None:
    tape = Tape()
    x, first, second = tape.parameter(2.0), tape.parameter([[1.0]]), tape.parameter([1.0, 2.0], element=f64)
    loss = x * 3.0
    later = x + 1.0
    adjoints = tape.differentiate(loss, [second, x, later, first])
    assert lines(tape, len(tape) - 3) == [
        f"{len(tape) - 3} Leaf [2] f64",
        *[
            f"{len(tape) - 2} Leaf []",
            f"{len(tape) - 1} Leaf [1, 1]",
        ],
    ]
    zeros = [adjoints.of(value) for value in (second, later, first)]
    assert [zero.index for zero in zeros] == [len(tape) - 3, len(tape) - 2, len(tape) - 1]
    assert numbers(tape, *zeros) == [[0.0, 0.0], 0.0, [[0.0]]]


def test_nothing_asked_for_is_nothing_but_the_sweep() -> None:
    tape = Tape()
    x = tape.parameter(2.0)
    adjoints = tape.differentiate(x * x, [])
    assert len(adjoints) == 0
    assert adjoints.roots() == [adjoints.target.symbol()]


def test_rules_of_non_ancestors_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = Tape()
    x = tape.parameter([1.0, 2.0])
    x.tanh()
    (x.exp() * x.sin()).sum()
    loss = (x + x).sum()
    loss * 2.0
    x.cos()
    ran: list[str] = []
    original = Opcode.vjp

    def watched(self: Opcode, operands: Any, output: Any, seed: Any) -> Any:
        ran.append(self.name)
        return original(self, operands, output, seed)

    monkeypatch.setattr(Opcode, "vjp", watched)
    symbols = x.symbol(), loss.symbol()
    tape.differentiate(loss, x)
    assert ran == ["Sum", "Add"]
    ran.clear()
    network = tape.into_network()
    network.forward(network.parameters()).backward(symbols[1])
    assert ran == ["Sum", "Add"]


@pytest.mark.parametrize("flat", [lambda x: x.stop(), lambda x: x.step(0.0), lambda x: x.step(x)])
def test_nothing_passes_where_a_rule_answers_nothing(
    flat: Callable[[Value], Value], monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = Tape()
    x = tape.parameter([1.0, 2.0])
    inner = x.tanh()
    loss = flat(inner).sum()
    adjoints = tape.differentiate(loss, [x, inner])
    names = [node.opcode.name for node in tape.nodes()[loss.index + 1 :]]
    # the seed, its spread and accumulation below the sum; then, last, a zero for each; no rule of Tanh
    assert names[-2:] == ["Leaf", "Leaf"]
    assert "Sub" not in names
    assert numbers(tape, adjoints.of(x), adjoints.of(inner)) == [[0.0, 0.0], [0.0, 0.0]]


def test_a_stop_on_one_of_two_paths() -> None:
    tape = Tape()
    x = tape.parameter(3.0)
    y = x * x.stop()
    adjoints = tape.differentiate(y, x)
    assert numbers(tape, adjoints.of(x)) == [3.0]


def test_values_used_twice() -> None:
    """The first of a shared subexpression, the diamond, and a product with its own term."""
    tape = Tape()
    a = tape.parameter(1.0)
    b = a + a
    first = tape.differentiate(b + b, a).of(a)
    p, q = tape.parameter(3.0), tape.parameter(5.0)
    c, d = p + q, p * q
    second = tape.differentiate((c + d) + c * d, [p, q])
    w = tape.parameter(2.0)
    third = tape.differentiate(w * 3.0 + w, w).of(w)
    assert numbers(tape, first, second.of(p), second.of(q), third) == [4.0, 61.0, 43.0, 4.0]


def test_an_intermediate_may_be_asked_for() -> None:
    tape = Tape()
    x = tape.parameter([1.0, 2.0])
    square = x * x
    adjoints = tape.differentiate((square * 3.0).sum(), [square, x])
    assert numbers(tape, adjoints.of(square), adjoints.of(x)) == [[3.0, 3.0], [6.0, 12.0]]


def test_a_single_symbol_a_value_and_any_iterable() -> None:
    results = []
    for asked in (
        lambda x: x,
        lambda x: x.symbol(),
        lambda x: [x],
        lambda x: (x.symbol(),),
        lambda x: {x: None},
        lambda x: {x.symbol()},
        lambda x: (value for value in [x]),
    ):
        tape = Tape()
        x = tape.parameter(3.0)
        adjoints = tape.differentiate((x * x).symbol(), asked(x))
        assert isinstance(adjoints.target, Value)
        assert [wrt for wrt, _ in adjoints] == [x]
        results.append(tape.describe())
    assert len(set(results)) == 1


def test_a_gradient_as_the_seed_is_a_hessian_vector_product() -> None:
    tape = Tape()
    x = tape.parameter([1.0, 2.0, 3.0])
    direction = tape.input([1.0, 0.0, -1.0])
    loss = (x * x * x).sum()
    gradient = tape.differentiate(loss, x).of(x)
    product = tape.vjp(gradient, direction, x).of(x)
    own = tape.vjp(gradient, gradient, x).of(x)
    assert numbers(tape, gradient, product, own) == [
        [3.0, 12.0, 27.0],
        [6.0, 0.0, -18.0],  # 6 x times the direction
        [18.0, 144.0, 486.0],
    ]


def test_derivatives_of_derivatives() -> None:
    tape = Tape()
    x = tape.parameter(2.0)
    y = x * x * x * x
    orders = [y]
    for _ in range(5):
        orders.append(tape.differentiate(orders[-1], x).of(x))
    assert numbers(tape, *orders) == [16.0, 32.0, 48.0, 48.0, 24.0, 0.0]


def test_with_respect_to_a_selection() -> None:
    tape = Tape()
    ids = tape.selection([2], 3)
    table = tape.parameter([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    picked = table.gather(ids).sum()
    dense = (ids @ table).sum()
    by_ids, by_product = tape.differentiate(picked, [ids, table]), tape.differentiate(dense, [ids, table])
    symbols = {
        "picked": by_ids.of(ids).symbol(),
        "dense": by_product.of(ids).symbol(),
        "tables": [by_ids.of(table).symbol(), by_product.of(table).symbol()],
        "engine": (picked.symbol(), ids.symbol(), dense.symbol()),
    }
    network = tape.into_network()
    run = network.forward(network.parameters(), {symbols["engine"][1]: [2, 0]})
    assert run.of(symbols["picked"]).tolist() == [[0.0] * 3] * 2  # ids are data
    assert run.of(symbols["dense"]).tolist() == [[3.0, 7.0, 11.0]] * 2
    for table_gradient in run.of(symbols["tables"]):
        assert table_gradient.tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    picked_symbol, ids_symbol, dense_symbol = symbols["engine"]
    assert run.backward(picked_symbol).of(ids_symbol).tolist() == [[0.0] * 3] * 2
    assert run.backward(dense_symbol).of(ids_symbol).tolist() == [[3.0, 7.0, 11.0]] * 2


def test_a_selection_as_the_seed_and_as_the_target() -> None:
    tape = Tape()
    table = tape.parameter([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    doubled = table * 2.0
    ids = tape.leaf(Tensor.selection([2, 0], 3))
    by_value, by_tensor = (tape.vjp(doubled, seed, table).of(table) for seed in (ids, Tensor.selection([2, 0], 3)))
    itself = tape.vjp(ids, table, ids).of(ids)
    assert itself == table
    assert numbers(tape, by_value, by_tensor) == [[[0.0, 0.0, 2.0], [2.0, 0.0, 0.0]]] * 2


def test_gradients_have_the_shape_and_element_of_what_they_are_of() -> None:
    tape = Tape()
    master = tape.parameter(np.ones((2, 3)))
    narrow = tape.parameter(np.ones((3, 4)), element=bf16)
    unreached = tape.parameter(np.ones((5, 0)), element=f64)
    loss = (master.to(bf16) @ narrow).to(f64).sum()
    for wrt, gradient in tape.differentiate(loss, [master, narrow, unreached, loss]):
        assert (gradient.shape, gradient.element) == (wrt.shape, wrt.element)


def test_the_gradient_of_what_was_broadcast() -> None:
    tape = Tape()
    scalar, row = tape.parameter(3.0), tape.parameter([[1.0] * 4])
    a, b = tape.parameter([[1.0]] * 3), tape.parameter([[1.0] * 4])
    constant = tape.leaf([1.0, 1.0])
    first = tape.differentiate((scalar.broadcast([2]) * constant).sum(), scalar).of(scalar)
    second = tape.differentiate((row.broadcast_to([3, 4]) + np.ones((3, 4))).sum(), row).of(row)
    third = tape.differentiate((a.broadcast_to([3, 4]) * b.broadcast_to([3, 4])).sum(), [a, b])
    assert numbers(tape, first, second, third.of(a), third.of(b)) == [2.0, [[3.0] * 4], [[4.0]] * 3, [[3.0] * 4]]


def test_recorded_and_engine_gradients_have_the_same_bits() -> None:
    tape = Tape()
    generator = np.random.default_rng(1)
    x = tape.input(generator.standard_normal((4, 3)))
    w = tape.parameter(generator.standard_normal((3, 5)))
    b = tape.parameter(generator.standard_normal(5))
    hidden = (x @ w + b.broadcast_along(0, 4)).gelu()
    loss = (hidden.softmax(1) * hidden.logsumexp(1).broadcast_along(1, 5)).mean()
    adjoints = tape.differentiate(loss, [x, w, b, hidden]).detach()
    network = tape.into_network()
    run = network.forward(network.parameters())
    gradients = run.backward(adjoints.target)
    for wrt, gradient in adjoints:
        assert_same_bits(gradients.of(wrt), run.of(gradient))


# adjoints


def test_adjoints_pair_each_entry_with_its_gradient() -> None:
    tape = Tape()
    x, y = tape.parameter(2.0), tape.parameter(3.0)
    adjoints = tape.differentiate(x * y, [y, x])
    assert isinstance(adjoints, Adjoints)
    assert [wrt for wrt, _ in adjoints] == [y, x]
    assert adjoints.of(x) == adjoints.of(x.symbol()) == list(adjoints)[1][1]
    assert adjoints.roots() == [adjoints.target.symbol(), *(gradient.symbol() for _, gradient in adjoints)]
    assert repr(adjoints).startswith("Adjoints(target=%2, {%1: %")
    detached = adjoints.detach()
    assert isinstance(detached.target, Symbol)
    assert detached.roots() == adjoints.roots()
    assert detached.of(y.symbol()) == detached.of(y)
    with pytest.raises(KinshipError) as caught:
        detached.of(detached.target)
    assert str(caught.value) == "adjoints: no gradient was asked for with respect to %2"
    network = tape.into_network()
    assert adjoints.roots() == detached.roots()  # which the seal does not take away
    assert network.entry(detached).lower().results == network.entry(detached.roots()).lower().results


def test_recorded_gradients_as_a_table() -> None:
    tape = Tape()
    x, y, unasked = tape.parameter(2.0), tape.parameter(3.0), tape.parameter([1.0])
    seen = tape.input(5.0)
    adjoints = tape.differentiate(x * y * seen, [seen, y, x]).detach()
    symbols = [value.symbol() for value in (x, y, unasked)]
    network = tape.into_network()
    for run in (
        network.forward(network.parameters()),
        network.entry(adjoints).lower().forward(network.parameters()),
        network.entry(adjoints).interpret(network.parameters()),
    ):
        table = run.recorded_gradients(adjoints)
        assert [None if t is None else t.tolist() for t in table.payloads()] == [15.0, 10.0, None]
        assert table.symbols() == symbols
        stepped = network.parameters().step(table, lambda weight, gradient: weight - gradient)
        assert [t.tolist() for t in stepped.payloads()] == [-13.0, -7.0, [1.0]]


def test_a_seed_of_one_tensor_is_linear() -> None:
    tape = Tape()
    x = tape.parameter([1.0, 2.0, 4.0])
    y = x * x
    once, twice = tape.vjp(y, Tensor([1.0, 2.0, 3.0]), x).of(x), tape.vjp(y, [2.0, 4.0, 6.0], x).of(x)
    first, second = numbers(tape, once, twice)
    assert second == [2 * number for number in first]


def test_a_seed_is_given() -> None:
    tape = Tape()
    x = tape.input([1.0, 2.0])
    with pytest.raises(ElementError, match=r"vjp: wants a seed of the target's shape, got None"):
        tape.vjp(x, None, [x])
    assert len(tape) == 1


def test_an_array_or_a_text_is_no_wrt() -> None:
    tape = Tape()
    x = tape.input(1.0)
    for wrt in (np.array(1), np.ones(2), "", "x"):
        with pytest.raises(KinshipError, match="differentiate: wants a symbol, got (ndarray|str)"):
            tape.differentiate(x, wrt)
