"""Steps by a second moment that is kept as its rows and its columns."""

from __future__ import annotations

from typing import Any

from topos.neural.limits import expect_positive, expect_share
from topos.neural.optimizer import Numbers, Optimizer
from topos.tensor import Tensor


class Adafactor(Optimizer):
    """`weight - rate * direction`, where a matrix of `[n, m]` keeps `n + m` numbers and no first moment.

    After Shazeer and Stern 2018, algorithm 4, without its relative step. The second moment of a matrix is
    `rows * columns / mean(rows)`, each a moving mean of `gradient ** 2 + epsilon` along the other axis; of any other
    shape it is kept whole. `beta2` is constant and corrected for as Adam's. The direction, the gradient over the root
    of that, is divided by its root mean square where this is above `limit`.

    >>> from topos import Adafactor, Tape
    >>> network, weight = Tape.record(lambda tape: tape.parameter([[1, 2], [3, 4]]))
    >>> optimizer, parameters = Adafactor(), network.parameters()
    >>> optimizer.step(parameters, parameters.scale(0.5), rate=0.5).of(weight)
    Tensor([[0.61270165, 1.4522774 ],
            [2.4803848 , 3.510102  ]], f32)
    >>> [optimizer.tables[part].of(weight).shape for part in ("rows", "columns")]
    [[2], [2]]
    """

    def __init__(self, *, beta2: float = 0.999, epsilon: float = 1e-30, limit: float = 1.0) -> None:
        self.beta2 = expect_share(self.name, "beta2", beta2)
        self.epsilon = expect_positive(self.name, "epsilon", epsilon)
        self.limit = expect_positive(self.name, "limit", limit)

    def start(self, weight: Tensor) -> dict[str, Tensor]:
        if weight.shape.rank != 2 or weight.element is None:
            return {"second": weight.zero_like()}
        rows, columns = (Tensor.filled([extent], 0, weight.element) for extent in weight.shape)
        return {"rows": rows, "columns": columns}

    def counts(self) -> dict[str, float]:
        return {"power2": 1.0}

    def common(self, counts: Numbers, rate: Any) -> dict[str, Any]:
        power2 = counts["power2"] * self.beta2
        rest2 = rate.one_like() - self.beta2  # of the decay as the element holds it
        return {"rate": rate, "power2": power2, "rest2": rest2, "correction": rate.one_like() - power2}

    def update(self, weight: Any, gradient: Any, kept: Numbers, common: Numbers) -> tuple[Any, dict[str, Any]]:
        shape = weight.shape
        left, square = self._moments(gradient * gradient + self.epsilon, kept, common["rest2"])
        direction = gradient / (square / common["correction"].broadcast(shape)).sqrt()
        length = (direction * direction).mean().sqrt() / self.limit
        short = length.one_like().maximum(length)
        return weight - direction / short.broadcast(shape) * common["rate"].broadcast(shape), left

    def _moments(self, square: Any, kept: Numbers, rest2: Any) -> tuple[dict[str, Any], Any]:
        """What is kept after the step, and the second moment that it stands for."""
        if "second" in kept:
            second = self._moved(kept["second"], square, rest2)
            return {"second": second}, second
        rows = self._moved(kept["rows"], square.mean_along(1), rest2)
        columns = self._moved(kept["columns"], square.mean_along(0), rest2)
        share = rows / rows.mean().broadcast(rows.shape)
        whole = share.broadcast_along(1, square.shape[1]) * columns.broadcast_along(0, square.shape[0])
        return {"rows": rows, "columns": columns}, whole

    def _moved(self, moment: Any, square: Any, rest2: Any) -> Any:
        return moment * self.beta2 + square * rest2.broadcast(square.shape)
