"""Every elementary function by name and by the width that it is written for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from topos.element import error_function, exponential, logarithm, power, trigonometric
from topos.element.vocabulary import Body, Value, Vocabulary


def sqrt(m: Vocabulary, x: Value) -> Value:
    """The IEEE square root, of either width."""
    return m.sqrt(x)


F32_BODIES: Mapping[str, Body] = MappingProxyType(
    {
        "exp": exponential.exp_f32,
        "ln": logarithm.ln_f32,
        "sqrt": sqrt,
        "tanh": exponential.tanh_f32,
        "sin": trigonometric.sin_f32,
        "cos": trigonometric.cos_f32,
        "log1p": logarithm.log1p_f32,
        "expm1": exponential.expm1_f32,
        "erf": error_function.erf_f32,
        "erf_derivative": error_function.erf_derivative_f32,
        "powf": power.powf_f32,
    }
)
"""Bodies from binary32 to binary32."""

F64_BODIES: Mapping[str, Body] = MappingProxyType(
    {
        "exp": exponential.exp_f64,
        "ln": logarithm.ln_f64,
        "sqrt": sqrt,
        "tanh": exponential.tanh_f64,
        "sin": trigonometric.sin_f64,
        "cos": trigonometric.cos_f64,
        "log1p": logarithm.log1p_f64,
        "expm1": exponential.expm1_f64,
        "erf": error_function.erf_f64,
        "erf_derivative": error_function.erf_derivative_f64,
        "powf": power.powf_f64,
    }
)
"""Bodies from binary64 to binary64."""
