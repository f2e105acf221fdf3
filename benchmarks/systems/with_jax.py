"""JAX: each step one jitted function, whose replaced buffers are donated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.arrays import Arrays, Ids
from benchmarks.workloads import Workload

Tables = dict[str, Any]
LAYOUT = ("NHWC", "HWIO", "NHWC")  # channels last, as this system's layers have them


class System:
    """What the models call, over arrays; images have their channels last, heads come after tokens."""

    tanh, exp, relu = staticmethod(jnp.tanh), staticmethod(jnp.exp), staticmethod(jax.nn.relu)
    gelu = staticmethod(jax.nn.gelu)  # by tanh

    def linear(self, value: Any, weights: Any, bias: Any) -> Any:
        return value @ weights + bias

    def convolution(self, value: Any, kernel: Any, bias: Any = None) -> Any:
        result = lax.conv_general_dilated(value, kernel, (1, 1), "SAME", dimension_numbers=LAYOUT)
        return result if bias is None else result + bias

    def images(self, value: Any) -> Any:
        return value

    def flat(self, value: Any) -> Any:
        """Channels first again, as the layer that follows has its rows."""
        return value.transpose(0, 3, 1, 2).reshape(value.shape[0], -1)

    def max_pool(self, value: Any) -> Any:
        window = (1, 2, 2, 1)
        return lax.reduce_window(value, -jnp.inf, lax.max, window, window, "VALID")

    def batch_norm(self, value: Any, gain: Any, bias: Any, mean: Any, variance: Any) -> tuple[Any, tuple[Any, Any]]:
        axes, count = (0, 1, 2), value.size // value.shape[-1]
        centre, spread = value.mean(axes), value.var(axes)
        normal = (value - centre) * lax.rsqrt(spread + 1e-5) * gain + bias
        new = lax.stop_gradient(centre), lax.stop_gradient(spread) * (count / (count - 1))
        return normal, (0.9 * mean + 0.1 * new[0], 0.9 * variance + 0.1 * new[1])

    def layer_norm(self, value: Any, gain: Any, bias: Any) -> Any:
        centred = value - value.mean(-1, keepdims=True)
        return centred * lax.rsqrt(value.var(-1, keepdims=True) + 1e-5) * gain + bias

    def rows(self, table: Any, ids: Any, shape: tuple[int, ...]) -> Any:
        return table[ids].reshape(shape)

    def kept(self, value: Any) -> Any:
        return value

    def plus_row(self, value: Any, row: Any) -> Any:
        return value + row

    def last_row(self, value: Any) -> Any:
        return value[-1:]

    def scores(self, value: Any, table: Any) -> Any:
        return value @ table.T

    def cross_entropy(self, scores: Any, labels: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[..., None], -1).mean()

    def heads(self, value: Any, heads: int) -> list[Any]:
        """Three of [..., tokens, heads, width]."""
        return [part.reshape(*part.shape[:-1], heads, -1) for part in jnp.split(value, 3, -1)]

    def joined(self, value: Any) -> Any:
        return value.reshape(*value.shape[:-2], -1)

    def attention(self, query: Any, key: Any, content: Any, causal: bool = True) -> Any:
        return jax.nn.dot_product_attention(query, key, content, is_causal=causal)

    def placed(self, cache: Any, position: Any, fresh: Any) -> Any:
        return lax.dynamic_update_slice(cache, fresh, (position[0], 0, 0))

    # running
    def version(self) -> str:
        return str(jax.__version__)

    def threads(self, count: int) -> None:
        """As many as the processors that the process may use."""

    def load(self, arrays: Arrays) -> tuple[Tables, Tables]:
        """Arrays of its own in the place of NumPy's, which are let go; laid out once as the vocabulary wants them."""
        orders = {4: (0, 2, 3, 1), 3: (1, 0, 2)}  # images, heads

        def weight(array: Any) -> Any:
            return jnp.asarray(array.transpose(2, 3, 1, 0) if array.ndim == 4 else array)

        def given(array: Any) -> Any:
            if isinstance(array, Ids):
                return jnp.asarray(array.array)
            order = orders.get(array.ndim)
            return jnp.asarray(array.transpose(order) if order else array)

        parameters = {name: weight(arrays.parameters.pop(name)) for name in list(arrays.parameters)}
        return parameters, {name: given(arrays.inputs.pop(name)) for name in list(arrays.inputs)}

    def step(self, workload: Workload, arrays: Arrays) -> Callable[[], Any] | None:
        wide = any(array.dtype == np.float64 for array in arrays.inputs.values() if not isinstance(array, Ids))
        jax.config.update("jax_enable_x64", wide)
        parameters, inputs = self.load(arrays)
        model = partial(workload.model, self)
        if workload.kind == "train":
            return self._training(workload, model, parameters, inputs)
        if workload.kind == "gradient":
            return self._called(jax.grad(lambda x: model({}, x)[0].sum()), inputs)
        if workload.name == "w6":
            return self._carried(model, parameters, inputs)
        return self._called(lambda p, x: model(p, x)[0], parameters, inputs)

    def _called(self, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        jitted = jax.jit(function)
        return lambda: jax.block_until_ready(jitted(*arguments))

    def _carried(self, model: Callable[..., Any], parameters: Tables, inputs: Tables) -> Callable[[], Any]:
        """A step whose caches are replaced: those are donated."""
        carried = {name: inputs.pop(name) for name in list(inputs) if "." in name}
        jitted = jax.jit(lambda carried, p, x: model(p, {**x, **carried}), donate_argnums=0)

        def infer() -> Any:
            nonlocal carried
            result, carried = jax.block_until_ready(jitted(carried, parameters, inputs))
            return result

        return infer

    def _training(
        self, workload: Workload, model: Callable[..., Any], parameters: Tables, inputs: Tables
    ) -> Callable[[], Any]:
        carried = {name: inputs.pop(name) for name in list(inputs) if "." in name}
        state = (parameters, carried, RULES[workload.rule][0](parameters))
        update = RULES[workload.rule][1]

        def train_once(state: Any, x: Tables) -> Any:
            parameters, carried, moments = state
            compute = jax.value_and_grad(lambda p: model(p, {**x, **carried}), has_aux=True)
            (loss, carried), gradients = compute(parameters)
            parameters, moments = update(parameters, gradients, moments)
            return (parameters, carried, moments), loss

        def train_often(state: Any, x: Tables) -> Any:
            return lax.scan(lambda state, _: train_once(state, x), state, length=workload.steps_per_call)

        jitted = jax.jit(train_once if workload.steps_per_call == 1 else train_often, donate_argnums=0)

        def train() -> Any:
            nonlocal state
            state, loss = jax.block_until_ready(jitted(state, inputs))
            return loss

        return train

    def magnitude(self, result: Any) -> float:
        return sum(float(np.abs(np.asarray(leaf)).mean(dtype=np.float64)) for leaf in jax.tree.leaves(result))


def _sgd(parameters: Tables, gradients: Tables, moments: Any) -> tuple[Tables, Any]:
    return jax.tree.map(lambda weight, gradient: weight - 0.01 * gradient, parameters, gradients), moments


def _moments(parameters: Tables) -> Any:
    zeros = partial(jax.tree.map, jnp.zeros_like)
    return zeros(parameters), zeros(parameters), jnp.zeros((), jnp.int32)


def _adam(parameters: Tables, gradients: Tables, moments: Any, decay: float = 0.0) -> tuple[Tables, Any]:
    first, second, count = moments
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)

    def moved(weight: Any, m: Any, v: Any) -> Any:
        step = m / (1 - 0.9**count) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)
        return weight * (1 - 1e-3 * decay) - 1e-3 * step

    return jax.tree.map(moved, parameters, first, second), (first, second, count)


RULES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sgd": (lambda parameters: (), _sgd),
    "adam": (_moments, _adam),
    "adamw": (_moments, partial(_adam, decay=0.1)),
}
