"""topos under `Numerics.EXACT`: a training step is one `advance`, whose entry carries the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import topos
from benchmarks.arrays import Arrays, Ids
from benchmarks.workloads import Workload
from topos import (
    Adam,
    AdamW,
    Adjoints,
    Numerics,
    Optimizer,
    Plan,
    Symbol,
    Tape,
    Tensor,
    Value,
    causal_mask,
    conv2d,
    cross_entropy,
    detach,
    max_pool,
    scaled_dot_product,
    where,
)

Values = dict[str, Value]


class System:
    """What the models call, over recorded values."""

    tanh, exp, relu = staticmethod(Value.tanh), staticmethod(Value.exp), staticmethod(Value.relu)
    gelu = staticmethod(Value.gelu_tanh)

    def __init__(self) -> None:
        self.plan: Plan | None = None

    def linear(self, value: Value, weights: Value, bias: Value) -> Value:
        """The leading axes are the rows of one product."""
        rows = value.reshape([value.shape.volume // weights.shape[0], weights.shape[0]])
        result = rows @ weights + bias.broadcast_along(0, rows.shape[0])
        return result.reshape([*value.shape[:-1], weights.shape[1]])

    def images(self, value: Value) -> Value:
        return value

    def convolution(self, value: Value, kernel: Value, bias: Value | None = None) -> Value:
        return conv2d(value, kernel, bias, padding=1)

    def max_pool(self, value: Value) -> Value:
        return max_pool(value, 2)

    def flat(self, value: Value) -> Value:
        return value.reshape([value.shape[0], value.shape.volume // value.shape[0]])

    def batch_norm(
        self, value: Value, gain: Value, bias: Value, mean: Value, variance: Value
    ) -> tuple[Value, tuple[Value, Value]]:
        images, channels, height, width = value.shape
        rows = value.permute([0, 2, 3, 1]).reshape([images * height * width, channels])
        count = rows.shape[0]
        centre = rows.mean_along(0)
        centred = rows - centre.broadcast_along(0, count)
        spread = (centred * centred).mean_along(0)
        normal = centred / (spread + 1e-5).sqrt().broadcast_along(0, count)
        result = normal * gain.broadcast_along(0, count) + bias.broadcast_along(0, count)
        unbiased = spread * (count / (count - 1))
        moved = mean * 0.9 + centre * 0.1, variance * 0.9 + unbiased * 0.1
        return result.reshape([images, height, width, channels]).permute([0, 3, 1, 2]), moved

    def layer_norm(self, value: Value, gain: Value, bias: Value) -> Value:
        axis, width = value.shape.rank - 1, value.shape[-1]
        centred = value - value.mean_along(axis).broadcast_along(axis, width)
        spread = (centred * centred).mean_along(axis)
        normal = centred / (spread + 1e-5).sqrt().broadcast_along(axis, width)
        return normal * gain.broadcast_to(value.shape) + bias.broadcast_to(value.shape)

    def rows(self, table: Value, ids: Value, shape: tuple[int, ...]) -> Value:
        return table.gather(ids).reshape(shape)

    def kept(self, value: Value) -> Value:
        return value

    def plus_row(self, value: Value, row: Value) -> Value:
        return value + row.broadcast_to(value.shape)

    def last_row(self, value: Value) -> Value:
        return value[-1:]

    def scores(self, value: Value, table: Value) -> Value:
        rows = value.reshape([value.shape.volume // table.shape[1], table.shape[1]])
        return rows @ table.transpose()

    def cross_entropy(self, scores: Value, labels: Value) -> Value:
        return cross_entropy(scores, labels)

    def heads(self, value: Value, heads: int) -> list[Value]:
        """Three of [..., heads, tokens, width]."""
        *leading, tokens, width = value.shape
        parts = value.reshape([*leading, tokens, 3, heads, width // 3 // heads])
        axis = len(leading) + 1
        return [parts.narrow(axis, at, 1).squeeze(axis).swap(-3, -2) for at in range(3)]

    def joined(self, value: Value) -> Value:
        value = value.swap(-3, -2)
        return value.reshape([*value.shape[:-2], value.shape[-2] * value.shape[-1]])

    def attention(self, query: Value, key: Value, content: Value, causal: bool = True) -> Value:
        seen = query.tape.leaf(causal_mask(query.shape[-2])) if causal else None
        return scaled_dot_product(query, key, content, where=seen)

    def placed(self, cache: Value, position: Value, fresh: Value) -> Value:
        """The row of each head at a position replaced."""
        heads, places, width = cache.shape
        mask = position.reshape([places]).broadcast_along(0, heads).broadcast_along(2, width)
        return where(mask, fresh.broadcast_to(cache.shape), cache)

    # running
    def version(self) -> str:
        return topos.__version__

    def threads(self, count: int) -> None:
        """Read from the environment."""

    def notes(self) -> list[str]:
        """Why the plan is interpreted, if it is."""
        assert self.plan is not None
        text = self.plan.explain()
        return [text] if text.startswith("interpreted") else []

    def plan_of(self, workload: Workload, arrays: Arrays) -> Recorded:
        """The workload recorded and lowered; the arrays are let go."""
        tape = Tape(topos.f64 if _is_wide(arrays) else topos.f32)
        parameters = {name: tape.parameter(arrays.parameters.pop(name), name=name) for name in list(arrays.parameters)}
        inputs = {name: _input(tape, name, array) for name, array in arrays.inputs.items()}
        result, carry = workload.model(self, parameters, inputs)
        replaced = {inputs[name]: value for name, value in carry.items()}
        answers = result if isinstance(result, tuple) else (result,)
        if workload.kind == "train":
            replaced |= RULES[workload.rule](tape, tape.differentiate(result, list(parameters.values())))
        if workload.kind == "gradient":
            answers = tuple(gradient for _, gradient in tape.differentiate(result.sum(), list(inputs.values())))
        symbols, next_values = detach(answers, replaced)
        network = tape.into_network()
        entry = network.entry(list(symbols)).numerics(Numerics.EXACT)
        plan = self.plan = (entry.carry(next_values) if next_values else entry).lower()
        feeds = {name: _fed(arrays.inputs.pop(name)) for name in list(arrays.inputs) if name not in carry}
        return Recorded(plan, network, list(symbols), feeds)

    def step(self, workload: Workload, arrays: Arrays) -> Callable[[], Any] | None:
        recorded = self.plan_of(workload, arrays)
        plan, feeds = recorded.plan, recorded.feeds
        if not plan.entry.carry:
            parameters = recorded.network.parameters()
            return lambda: (recorded, plan.forward(parameters, feeds))
        state, steps = recorded.network.state(), workload.steps_per_call
        if steps > 1:
            return lambda: (recorded, plan.advance(state, feeds, steps=steps))
        return lambda: (recorded, plan.advance(state, feeds))

    def magnitude(self, result: Any) -> float:
        recorded, run = result
        return sum(float(np.abs(run.of(symbol).numpy()).mean(dtype=np.float64)) for symbol in recorded.results)


class Recorded:
    """A plan with what it runs over."""

    def __init__(self, plan: Plan, network: Any, results: list[Symbol], feeds: Mapping[str, Tensor]) -> None:
        self.plan, self.network, self.results, self.feeds = plan, network, results, feeds


def _is_wide(arrays: Arrays) -> bool:
    return any(not isinstance(array, Ids) and array.dtype == np.float64 for array in arrays.inputs.values())


def _input(tape: Tape, name: str, array: Any) -> Value:
    if isinstance(array, Ids):
        return tape.selection(array.array.shape, array.classes, name=name)
    carried = "." in name  # carried ones start at their array; the others are fed
    return tape.input(array, name=name) if carried else tape.input(shape=array.shape, name=name)


def _fed(array: Any) -> Tensor:
    return Tensor.selection(array.array, array.classes) if isinstance(array, Ids) else Tensor(array)


# the rules that replace the weights
def _sgd(tape: Tape, adjoints: Adjoints) -> dict[Value, Value]:
    return {weight: weight - gradient * 0.01 for weight, gradient in adjoints}


def _stepped(optimizer: Optimizer) -> Callable[[Tape, Adjoints], dict[Value, Value]]:
    return lambda tape, adjoints: optimizer.record(tape, adjoints, rate=1e-3).carry


RULES = {"sgd": _sgd, "adam": _stepped(Adam()), "adamw": _stepped(AdamW(decay=0.1))}
