"""The payload: dense and strided arrays, constants and selections, and the kernels that compute over them."""

from topos.tensor.services import Services
from topos.tensor.tensor import Tensor

__all__ = ["Services", "Tensor"]
