"""The arithmetic of an element as operations of StableHLO, over which the bodies of instructions are read."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import ml_dtypes
import numpy as np

from topos.element.element import Array
from topos.element.emittable import Emittable
from topos.emission import literals
from topos.emission.text import Named, Writer

DTYPES = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
}
"""The NumPy dtype of each type that constants may have."""

SAME = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "neg": "negate",
    "maximum": "maximum",
    "powf": "power",
    "exp": "exponential",
    "ln": "log",
    "sqrt": "sqrt",
    "tanh": "tanh",
    "sin": "sine",
    "cos": "cosine",
    "log1p": "log_plus_one",
    "expm1": "exponential_minus_one",
}
"""The operations that StableHLO has under another name."""


class Words:
    """Writes one operation, or a few, for each method of an element, over numbers of one type.

    >>> writer = Writer()
    >>> writer.begin(3)
    >>> x = Named("%v2", (2,), "f32")
    >>> writer.finish(Words(writer).add(x, x)).name, writer.lines
    ('%v3', ['    %v3 = stablehlo.add %v2, %v2 : tensor<2xf32>'])
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def __getattr__(self, method: str) -> Callable[..., Named]:
        if method not in SAME:
            raise AttributeError(method)
        return partial(self._same, SAME[method])

    def step(self, x: Named, threshold: Named) -> Named:
        """One where `x >= threshold`, else zero."""
        return self.convert(self.compare("GE", x, threshold), x.type)

    def select(self, mask: Named, chosen: Named, other: Named) -> Named:
        """`chosen` where the mask is nonzero (a NaN is), else `other`."""
        hit = mask if mask.type == "i1" else self.compare("NE", mask, self.number(0.0, mask, "zero"))
        return self.chosen(hit, chosen, other)

    def erf(self, x: Named) -> Named:
        """The error function, which is CHLO's: StableHLO has none."""
        result = self.writer.named("erf", x.shape, x.type)
        return self.writer.line(result, f"chlo.erf {x.name} : {x.tensor} -> {result.tensor}")

    def erf_derivative(self, x: Named) -> Named:
        """`2 / sqrt(pi) * exp(-x * x)`, operation by operation."""
        vanishing = self.exp(self.neg(self.mul(x, x)))
        return self.mul(self.number(2 / math.sqrt(math.pi), x, "scale"), vanishing)

    # beyond an element's own methods
    def constant(self, array: Array, kind: str, called: str = "constant") -> Named:
        """A constant of the array's shape."""
        result = self.writer.named(called, array.shape, kind)
        return self.writer.line(result, f"stablehlo.constant {literals.dense(array)} : {result.tensor}")

    def number(self, number: float, like: Named, called: str = "number") -> Named:
        """A number, rounded to the type of a value, at each of its places."""
        held = np.array(number).astype(DTYPES[like.type])
        result = self.writer.named(called, like.shape, like.type)
        spelled = literals.number(held[()])
        return self.writer.line(result, f"stablehlo.constant dense<{spelled}> : {result.tensor}")

    def scalar(self, number: float, kind: str, called: str = "seed") -> Named:
        """A number of rank 0."""
        return self.number(number, Named("", (), kind), called)

    def compare(self, direction: str, left: Named, right: Named) -> Named:
        """Where a comparison (`GE`, `NE`) holds."""
        kind = "SIGNED" if left.type.startswith("i") else "FLOAT"
        result = self.writer.named("compare", left.shape, "i1")
        signature = self.writer.signature([left, right], result)
        return self.writer.line(
            result, f"stablehlo.compare {direction}, {left.name}, {right.name}, {kind} : {signature}"
        )

    def chosen(self, hit: Named, chosen: Named, other: Named) -> Named:
        """`chosen` where `hit` is true."""
        result = self.writer.named("select", chosen.shape, chosen.type)
        operands = f"{hit.name}, {chosen.name}, {other.name}"
        return self.writer.line(result, f"stablehlo.select {operands} : {hit.tensor}, {chosen.tensor}")

    def convert(self, x: Named, kind: str) -> Named:
        """A value in another type; itself where it has that type."""
        return x if x.type == kind else self.writer.operation("convert", [x], x.shape, kind)

    def spread(self, x: Named, axes: tuple[int, ...], shape: tuple[int, ...]) -> Named:
        """A value whose axes are those of a larger shape, the same along the others."""
        attributes = f", dims = {list(axes)}"
        return self.writer.operation("broadcast_in_dim", [x], shape, x.type, attributes=attributes, called="spread")

    def region(self, operation: str, kind: str) -> str:
        """What takes two numbers together, as the body of a scatter or of a reduction over windows."""
        left, right, both = (self.writer.named(called, (), kind) for called in ("left", "right", "both"))
        return (
            f"({{\n    ^bb0({left.name}: {left.tensor}, {right.name}: {right.tensor}):\n"
            f"      {both.name} = stablehlo.{operation} {left.name}, {right.name} : {both.tensor}\n"
            f"      stablehlo.return {both.name} : {both.tensor}\n    }})"
        )

    def _same(self, operation: str, *operands: Named) -> Named:
        first = operands[0]
        return self.writer.operation(operation, operands, first.shape, first.type, short=True)


class Arithmetic:
    """An element's own arithmetic: its bodies, or the operations of its type, rounded."""

    def __init__(self, words: Words, contract: Emittable) -> None:
        self._words, self._contract = words, contract

    def __getattr__(self, operation: str) -> Callable[..., Named]:
        return partial(self._computed, operation)

    def _computed(self, operation: str, *operands: Named) -> Named:
        body = self._contract.bodies.get(operation)
        if body is not None:
            result: Named = body(self._words, *operands)
            return result
        plain: Named = getattr(self._words, operation)(*operands)
        rounded = self._contract.rounded
        return plain if rounded is None or operation in COPIES else rounded(self._words, plain)


COPIES = ("maximum", "neg", "select")
"""What makes no number that was not there, but for a sign."""
