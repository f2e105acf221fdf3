"""What a backend is asked for: a name for each kind of work that somebody may know how to do faster."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topos.backend.backend import Backend


class Formula(StrEnum):
    """A kind of work, with the chain of backends that are asked for it in turn.

    The first seven are single instructions. The others stand for several instructions together, which a plan finds
    (`plan.patterns`) and leaves to a backend that covers them.
    """

    GEMM = "GEMM"
    MAP = "MAP"
    SUM = "SUM"
    REDUCE = "REDUCE"
    MOVE = "MOVE"
    INDEX = "INDEX"
    FOLD = "FOLD"
    WINDOW_PRODUCT = "WINDOW_PRODUCT"
    WINDOW_PRODUCT_KERNEL_GRADIENT = "WINDOW_PRODUCT_KERNEL_GRADIENT"
    WINDOW_PRODUCT_INPUT_GRADIENT = "WINDOW_PRODUCT_INPUT_GRADIENT"
    REDUCE_WINDOW = "REDUCE_WINDOW"
    REDUCE_WINDOW_GRADIENT = "REDUCE_WINDOW_GRADIENT"
    BATCH_NORM_TRAINING = "BATCH_NORM_TRAINING"
    BATCH_NORM_TRAINING_GRADIENT = "BATCH_NORM_TRAINING_GRADIENT"
    BATCH_NORM_INFERENCE = "BATCH_NORM_INFERENCE"
    BATCH_NORM_INFERENCE_GRADIENT = "BATCH_NORM_INFERENCE_GRADIENT"
    LAYER_NORM = "LAYER_NORM"
    LAYER_NORM_GRADIENT = "LAYER_NORM_GRADIENT"
    RMS_NORM = "RMS_NORM"
    RMS_NORM_GRADIENT = "RMS_NORM_GRADIENT"
    CROSS_ENTROPY = "CROSS_ENTROPY"
    CROSS_ENTROPY_GRADIENT = "CROSS_ENTROPY_GRADIENT"
    ATTENTION = "ATTENTION"
    ATTENTION_GRADIENT = "ATTENTION_GRADIENT"
    CONCATENATION = "CONCATENATION"
    EMBEDDING = "EMBEDDING"
    EMBEDDING_GRADIENT = "EMBEDDING_GRADIENT"

    @property
    def chain(self) -> tuple[Backend, ...]:
        """The backends of the default chain that cover it, in the order in which they are asked.

        What all of them decline lands on the reference.
        """
        from topos.backend.chain import default

        return tuple(backend for backend in default() if backend.coverage(self) is not None)
