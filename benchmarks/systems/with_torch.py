"""PyTorch: eager, or with the model and the optimizer under `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.arrays import Arrays, Ids
from benchmarks.workloads import Workload

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.01),
    "adam": lambda weights: torch.optim.Adam(weights, lr=1e-3),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=1e-3, weight_decay=0.1),
}


class System:
    """What the models call, over tensors; a layer's weights are held [out, in], as this system's layers hold them."""

    tanh, exp, relu = staticmethod(torch.tanh), staticmethod(torch.exp), staticmethod(torch.relu)
    linear = staticmethod(F.linear)

    def __init__(self, compiled: bool) -> None:
        self.compiled = compiled

    def convolution(self, value: Any, kernel: Any, bias: Any = None) -> Any:
        return F.conv2d(value, kernel, bias, padding=1)

    def images(self, value: Any) -> Any:
        return value

    def flat(self, value: Any) -> Any:
        return value.flatten(1)

    def max_pool(self, value: Any) -> Any:
        return F.max_pool2d(value, 2)

    def batch_norm(self, value: Any, gain: Any, bias: Any, mean: Any, variance: Any) -> tuple[Any, tuple[()]]:
        return F.batch_norm(value, mean, variance, gain, bias, training=True), ()

    def layer_norm(self, value: Any, gain: Any, bias: Any) -> Any:
        return F.layer_norm(value, gain.shape, gain, bias)

    def gelu(self, value: Any) -> Any:
        return F.gelu(value, approximate="tanh")

    def rows(self, table: Any, ids: Any, shape: tuple[int, ...]) -> Any:
        return F.embedding(ids, table).view(shape)

    def kept(self, value: Any) -> Any:
        return value

    def plus_row(self, value: Any, row: Any) -> Any:
        return value + row

    def last_row(self, value: Any) -> Any:
        return value[-1:]

    def scores(self, value: Any, table: Any) -> Any:
        return F.linear(value, table)

    def cross_entropy(self, scores: Any, labels: Any) -> Any:
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), labels.view(-1))

    def heads(self, value: Any, heads: int) -> list[Any]:
        """Three of [..., heads, tokens, width]."""
        return [part.unflatten(-1, (heads, -1)).swapaxes(-3, -2) for part in value.chunk(3, -1)]

    def joined(self, value: Any) -> Any:
        return value.swapaxes(-3, -2).flatten(-2)

    def attention(self, query: Any, key: Any, content: Any, causal: bool = True) -> Any:
        if query.ndim == 3:  # its fast kernel wants a batch
            return F.scaled_dot_product_attention(query[None], key[None], content[None], is_causal=causal)[0]
        return F.scaled_dot_product_attention(query, key, content, is_causal=causal)

    def placed(self, cache: Any, position: Any, fresh: Any) -> Any:
        return cache.index_copy_(1, position, fresh)

    # running
    def version(self) -> str:
        return str(torch.__version__)

    def threads(self, count: int) -> None:
        torch.set_num_threads(count)

    def load(self, arrays: Arrays, trained: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tensors in the place of the arrays, which are let go."""

        def weight(name: str, array: Any) -> Any:
            layer = name.endswith(".w") and array.ndim == 2
            return torch.from_numpy(np.ascontiguousarray(array.T) if layer else array).requires_grad_(trained)

        def given(array: Any) -> Any:
            return torch.from_numpy(array.array).long() if isinstance(array, Ids) else torch.from_numpy(array)

        parameters = {name: weight(name, arrays.parameters.pop(name)) for name in list(arrays.parameters)}
        return parameters, {name: given(arrays.inputs.pop(name)) for name in list(arrays.inputs)}

    def step(self, workload: Workload, arrays: Arrays) -> Callable[[], Any] | None:
        if workload.steps_per_call > 1:
            return None  # it has no loop of its own
        parameters, inputs = self.load(arrays, workload.kind == "train")
        model = self._compiled(lambda p, x: workload.model(self, p, x)[0])
        if workload.kind == "train":
            return self._training(model, parameters, inputs, OPTIMIZERS[workload.rule](parameters.values()))
        if workload.kind == "gradient":
            for tensor in inputs.values():
                tensor.requires_grad_()
            total = self._compiled(lambda x: workload.model(self, {}, x)[0].sum())
            return lambda: torch.autograd.grad(total(inputs), list(inputs.values()))

        def infer() -> Any:
            with torch.inference_mode():
                return model(parameters, inputs)

        return infer

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function) if self.compiled else function

    def _training(self, model: Callable[..., Any], parameters: Any, inputs: Any, optimizer: Any) -> Callable[[], Any]:
        update = self._compiled(optimizer.step)

        def train() -> Any:
            optimizer.zero_grad()
            loss = model(parameters, inputs)
            loss.backward()
            update()
            return loss

        return train

    def magnitude(self, result: Any) -> float:
        listed: Iterable[Any] = result if isinstance(result, tuple | list) else [result]
        return sum(float(tensor.detach().abs().mean(dtype=torch.float64)) for tensor in listed)
