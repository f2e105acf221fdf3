"""The number that fills a tensor: the open seam `Element`, and the built-in `f32`, `f64` and `bf16`."""

from __future__ import annotations

from topos.element.bfloat16 import bf16
from topos.element.element import Element
from topos.element.emittable import Emittable
from topos.element.floating import f32, f64
from topos.element.native import Native
from topos.element.sample import Sample

__all__ = ["Element", "Emittable", "Native", "Sample", "bf16", "f32", "f64"]
