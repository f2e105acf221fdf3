"""Who else may compute: backends, what they are asked for, and how a plan falls to them."""

from topos.backend.backend import Backend, Dispatch, Status
from topos.backend.blas import NOT_INSTALLED, CblasBackend, accelerate, libraries
from topos.backend.elsewhere import Cuda, Metal
from topos.backend.fidelity import Coverage, Fidelity
from topos.backend.formula import Formula
from topos.backend.llvm_kernels import Fused, Simd
from topos.backend.process import compiles, threads
from topos.backend.stablehlo import StableHlo
from topos.backend.task import Declined, Outline, Stretch, Task

Backend.ACCELERATE = CblasBackend("ACCELERATE", accelerate, "platform: Accelerate is Apple's")
Backend.METAL = Metal()
Backend.CUDA = Cuda()
Backend.BLAS = CblasBackend("BLAS", libraries, NOT_INSTALLED)
Backend.FUSED = Fused()
Backend.SIMD = Simd()
Backend.STABLEHLO = StableHlo()
Backend.ALL = (
    Backend.ACCELERATE,
    Backend.METAL,
    Backend.CUDA,
    Backend.BLAS,
    Backend.FUSED,
    Backend.SIMD,
    Backend.STABLEHLO,
)

__all__ = [
    "Backend",
    "Coverage",
    "Declined",
    "Dispatch",
    "Fidelity",
    "Formula",
    "Outline",
    "Status",
    "Stretch",
    "Task",
    "compiles",
    "threads",
]
