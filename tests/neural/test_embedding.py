"""Rows by ids, logits by the same rows, and dropout by a mask that is fed."""

import re

import numpy as np
import pytest

from topos import Dropout, Embedding, Module, ShapeError, Tape, bf16, detach, f32, f64, parameters
from topos.testing import assert_same_bits


def drawn(shape, element=None):
    return np.random.default_rng(len(shape)).normal(size=tuple(shape))


def test_rows_and_logits_by_one_table() -> None:
    tape = Tape(f64)
    embedding = Embedding(tape, 7, 3, drawn, name="wte")
    ids = tape.selection([2, 2], 7, absent=-1, name="ids")
    rows = embedding(ids, [2, 2])
    names = detach(embedding(ids), rows, embedding.score(rows), embedding.score(tape.input(drawn([3]))))
    network = tape.into_network()
    table = network.parameters().of(network.symbol("wte.table")).numpy()
    flat, shaped, scores, one = (
        network.entry(list(names)).lower().forward(network.parameters(), {"ids": [[3, -1], [6, 3]]}).of(names)
    )
    expected = np.stack([table[3], np.zeros(3), table[6], table[3]])
    assert_same_bits([flat, shaped], [expected, expected.reshape(2, 2, 3)])
    np.testing.assert_allclose(scores.numpy(), expected.reshape(2, 2, 3) @ table.T, rtol=1e-13)
    np.testing.assert_allclose(one.numpy(), table @ drawn([3]), rtol=1e-13)


def test_the_gradient_of_a_tied_table_is_the_sum_of_both_uses() -> None:
    class Tied(Module):
        def __init__(self, tape):
            self.embedding = Embedding(tape, 5, 3, drawn)
            self.output = self.embedding.table

    class Untied(Module):
        def __init__(self, tape):
            self.embedding, self.output = Embedding(tape, 5, 3, drawn), Embedding(tape, 5, 3, drawn).table

    gradients = []
    for kind in (Tied, Untied):
        tape = Tape(f64)
        model = kind(tape)
        ids = tape.selection([3], 5, name="ids")
        rows = model.embedding(ids)
        loss = (rows @ tape.resolve(model.output).transpose()).tanh().sum()
        found = detach(tape.differentiate(loss, parameters(model)).roots())
        network = tape.into_network()
        gradients.append(network.entry(list(found)).interpret(network.parameters(), {"ids": [1, 4, 1]}).of(found)[1:])
    (tied,), (rows, table) = gradients
    np.testing.assert_allclose(tied.numpy(), rows.numpy() + table.numpy(), rtol=1e-13)


def test_a_wide_table_on_a_narrow_tape() -> None:
    tape = Tape(bf16)
    embedding = Embedding(tape, 7, 3, drawn, element=f32)
    rows = embedding(tape.selection([2], 7))
    assert rows.element is bf16 and embedding.score(rows).element is bf16


def test_dropout_unfed_is_the_identity_and_fed_a_product() -> None:
    tape = Tape()
    dropout = Dropout(tape, [2, 3], name="drop")
    payload = np.array([[1.5, -0.0, np.inf], [-2, 5e-40, np.nan]])
    x = tape.input(payload)
    assert dropout.infer(x) is x and parameters(dropout) == []
    y = detach(dropout(x))
    network = tape.into_network()
    plan = network.entry(y).lower()
    assert_same_bits(plan.forward(network.parameters()).of(y), payload.astype(np.float32))
    fed = plan.forward(network.parameters(), {"drop.mask": [[2, 0, 2], [0, 2, 0]]}).of(y).tolist()
    assert fed[0][0] == 3 and fed[1][0] == 0 and str(fed[1][0]) == "-0.0"


REFUSED = {
    "wte: Embedding wants a selection of 7 classes, got": lambda t: Embedding(t, 7, 3, drawn, name="wte")(
        t.input(shape=[2, 7])
    ),
    "Embedding wants a selection of 7 classes, got": lambda t: Embedding(t, 7, 3, drawn)(t.selection([2], 6)),
    "wte: Embedding wants 6 ids for [2, 3], got 4": lambda t: Embedding(t, 7, 3, drawn, name="wte")(
        t.selection([4], 7), [2, 3]
    ),
    "wte: Embedding wants a last axis of 3, got [2, 4]": lambda t: Embedding(t, 7, 3, drawn, name="wte").score(
        t.input(shape=[2, 4])
    ),
    "Embedding wants an integer for vocab, got None": lambda t: Embedding(t, None, 3, drawn),
    "drop: Dropout wants [2, 3], the shape of its mask, got [3, 2]": lambda t: Dropout(t, [2, 3], name="drop")(
        t.input(shape=[3, 2])
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message) -> None:
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}"):
        REFUSED[message](Tape())
