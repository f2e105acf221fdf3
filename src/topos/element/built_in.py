"""The elements of topos's own: what they hold is known, and native kernels read it."""

from topos.element.bfloat16 import bf16
from topos.element.floating import f32, f64

BUILT_IN = frozenset((f32, f64, bf16))
