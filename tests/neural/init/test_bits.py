"""A seed gives the same bits on every machine and in every version: the first numbers of each kind are golden."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import Element, Shape, Tensor, bf16, f32, f64, init

Golden = Callable[[str, str], None]

KINDS: dict[str, Callable[[], Any]] = {
    "uniform": lambda: init.uniform(7, 0.1),
    "normal": lambda: init.normal(7, 0.02),
    "truncated_normal": lambda: init.truncated_normal(7, 0.02),
    "xavier": lambda: init.xavier(7),
    "xavier normal": lambda: init.xavier(7, 5 / 3, distribution="normal"),
    "kaiming": lambda: init.kaiming(7),
    "kaiming outputs": lambda: init.kaiming(7, 1.0, fan="outputs", distribution="uniform"),
    "orthogonal": lambda: init.orthogonal(7),
    "dropout": lambda: init.dropout(7, 0.3),
    "keyed": lambda: init.normal(7, 0.02).keyed().at("h0.weight"),
    "constant": lambda: init.constant(0.1),
    "zeros": lambda: init.zeros,
    "ones": lambda: init.ones,
}
WORDS = {f32: np.uint32, f64: np.uint64, bf16: np.uint16}


def patterns(payload: Tensor, element: Element) -> str:
    words = payload.numpy().reshape(-1).view(WORDS[element])
    return " ".join(f"{int(word):0{2 * words.itemsize}x}" for word in words)


def test_the_first_numbers_are_golden(golden: Golden) -> None:
    lines = []
    for name, make in KINDS.items():
        for element in (f64, f32, bf16):
            initialiser = make()
            first, second = (initialiser(Shape(shape), element) for shape in ([3, 2], [2, 2, 1]))
            lines += [f"{name} {element} [3, 2] {patterns(first, element)}"]
            lines += [f"{name} {element} [2, 2, 1] {patterns(second, element)}"]
    golden("\n".join(lines), "neural_init.txt")


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("element", [f32, bf16])
def test_a_narrow_payload_is_the_f64_one_rounded_once(name: str, element: Element) -> None:
    wide, narrow = (KINDS[name]()(Shape([9, 7]), number) for number in (f64, element))
    assert patterns(Tensor(wide.numpy(), f64).convert(element), element) == patterns(narrow, element)
    assert (narrow.shape, narrow.element) == ((9, 7), element)
