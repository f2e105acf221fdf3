"""tinygrad on its CPU device: each step one `TinyJit`. It compiles with clang."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import numpy as np
from tinygrad import Device, Tensor, TinyJit, nn
from tinygrad.helpers import TRAINING

from benchmarks.arrays import Arrays, Ids
from benchmarks.workloads import Workload

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda weights: nn.optim.SGD(weights, lr=0.01),
    "adam": lambda weights: nn.optim.Adam(weights, lr=1e-3),
    "adamw": lambda weights: nn.optim.AdamW(weights, lr=1e-3, weight_decay=0.1),
}


class System:
    """What the models call, over its tensors."""

    tanh, exp = staticmethod(Tensor.tanh), staticmethod(Tensor.exp)
    relu, gelu = staticmethod(Tensor.relu), staticmethod(Tensor.gelu)  # by tanh

    def linear(self, value: Any, weights: Any, bias: Any) -> Any:
        return value.linear(weights, bias)

    def convolution(self, value: Any, kernel: Any, bias: Any = None) -> Any:
        return value.conv2d(kernel, bias, padding=1)

    def images(self, value: Any) -> Any:
        return value

    def flat(self, value: Any) -> Any:
        return value.flatten(1)

    def max_pool(self, value: Any) -> Any:
        return value.max_pool2d()

    def batch_norm(self, value: Any, gain: Any, bias: Any, mean: Any, variance: Any) -> tuple[Any, tuple[Any, Any]]:
        axes, count = (0, 2, 3), value.shape[0] * value.shape[2] * value.shape[3]
        centre, spread = value.mean(axes), value.var(axes, correction=0)
        normal = value.batchnorm(gain, bias, centre, (spread + 1e-5).rsqrt())
        new = centre.detach(), spread.detach() * (count / (count - 1))
        return normal, (0.9 * mean + 0.1 * new[0], 0.9 * variance + 0.1 * new[1])

    def layer_norm(self, value: Any, gain: Any, bias: Any) -> Any:
        return value.layernorm() * gain + bias

    def rows(self, table: Any, ids: Any, shape: tuple[int, ...]) -> Any:
        lookup = nn.Embedding(1, 1)
        lookup.weight = table
        return lookup(ids).reshape(shape)

    def kept(self, value: Any) -> Any:
        """Computed here and once; otherwise every later layer would compute it again."""
        return value.contiguous()

    def plus_row(self, value: Any, row: Any) -> Any:
        return value + row

    def last_row(self, value: Any) -> Any:
        return value[-1:]

    def scores(self, value: Any, table: Any) -> Any:
        return value @ table.T

    def cross_entropy(self, scores: Any, labels: Any) -> Any:
        return scores.sparse_categorical_crossentropy(labels)

    def heads(self, value: Any, heads: int) -> list[Any]:
        """Three of [..., heads, tokens, width]."""
        parts = value.chunk(3, dim=-1)
        return [part.reshape(*part.shape[:-1], heads, part.shape[-1] // heads).transpose(-3, -2) for part in parts]

    def joined(self, value: Any) -> Any:
        return value.transpose(-3, -2).flatten(-2).contiguous()

    def attention(self, query: Any, key: Any, content: Any, causal: bool = True) -> Any:
        return query.scaled_dot_product_attention(key, content, is_causal=causal)

    def placed(self, cache: Any, position: Any, fresh: Any) -> Any:
        cache[:, 255:256].assign(fresh).realize()  # the position of the workload: a jitted step holds it
        return cache

    # running
    def version(self) -> str:
        return importlib.metadata.version("tinygrad")

    def threads(self, count: int) -> None:
        """Read from the environment when it is imported."""

    def load(self, arrays: Arrays) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tensors in the place of the arrays, which are let go."""

        def held(array: Any) -> Any:
            plain = array.array if isinstance(array, Ids) else array
            return Tensor(np.asarray(plain)).clone().realize()

        parameters = {name: held(arrays.parameters.pop(name)) for name in list(arrays.parameters)}
        return parameters, {name: held(arrays.inputs.pop(name)) for name in list(arrays.inputs)}

    def step(self, workload: Workload, arrays: Arrays) -> Callable[[], Any] | None:
        if workload.steps_per_call > 1:
            return None  # it has no loop of its own
        if workload.name == "w1":
            arrays.parameters["w"] = arrays.parameters["w"].reshape(1)  # its optimizers update no scalar
        parameters, inputs = self.load(arrays)
        run = self._training if workload.kind == "train" else self._inference
        jitted = TinyJit(run(workload, parameters, inputs))

        def step() -> Any:
            result = jitted()
            Device[Device.DEFAULT].synchronize()
            return result

        return step

    def _training(self, workload: Workload, parameters: Any, inputs: Any) -> Callable[[], Any]:
        optimizer = OPTIMIZERS[workload.rule](list(parameters.values()))

        def train() -> Any:
            TRAINING.value = 1
            optimizer.zero_grad()
            loss, moved = workload.model(self, parameters, inputs)
            loss = loss.sum().backward()
            replaced = [inputs[name].assign(value) for name, value in moved.items()]
            return loss.realize(*replaced, *optimizer.schedule_step())

        return train

    def _inference(self, workload: Workload, parameters: Any, inputs: Any) -> Callable[[], Any]:
        def infer() -> Any:
            result, _ = workload.model(self, parameters, inputs)
            if workload.kind == "gradient":
                result = tuple(result.sum().gradient(*inputs.values()))
            Tensor.realize(*(result if isinstance(result, tuple) else [result]))
            return result

        return infer

    def magnitude(self, result: Any) -> float:
        listed = result if isinstance(result, tuple | list) else [result]
        return sum(float(tensor.abs().mean().item()) for tensor in listed)
