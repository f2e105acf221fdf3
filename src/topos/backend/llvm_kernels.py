"""The two readings of the LLVM kernels: whole plans, and one instruction at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from topos.backend.backend import Backend, Dispatch, Status
from topos.backend.fidelity import Coverage, Fidelity
from topos.backend.formula import Formula
from topos.backend.task import Declined, Stretch, Task
from topos.element import Element, bf16, f32, f64
from topos.element.element import Array
from topos.graph.spec import Spec
from topos.loading import loaded
from topos.op import Movement
from topos.tensor import Tensor
from topos.tensor.services import FORMULAS
from topos.tensor.work import Step, Work

_SINGLE = frozenset(FORMULAS.values())
COMPOSED = frozenset(Formula).difference(_SINGLE)
"""The compositions that native plans compute as a whole, wherever their groups store nothing inside."""
_MOST_KEPT = 512


class NativeElements:
    """The elements with a native reading: the built-in ones, and a user's that has the `Native` contract."""

    def __contains__(self, element: object) -> bool:
        return isinstance(element, Element) and bool(loaded("topos.backend.native.reading.has_arithmetic")(element))

    def __iter__(self) -> Iterator[Element]:
        yield from (f32, f64, bf16)

    def __repr__(self) -> str:
        return "f32, f64, bf16 and elements with a native reading"


class Llvm(Backend):
    """Code that LLVM makes for this machine: the defining bits."""

    by_kind = True

    def found(self) -> Status:
        """Whether llvmlite is there, and the processor that code is made for."""
        if loaded("topos.backend.native.settings.environment")("TOPOS_NATIVE") == "0":
            return Status(False, "switched off: TOPOS_NATIVE=0")
        reason = loaded("topos.backend.native.llvm.available")()
        if reason is not None:
            kind = "not installed" if reason.endswith("not installed") else "setup failed"
            return Status(False, f"{kind}: {reason}")
        target = loaded("topos.backend.native.target.current")()
        release = ".".join(map(str, loaded("topos.backend.native.llvm.binding")().llvm_version_info))
        return Status(True, f"LLVM {release} for {target.cpu}, vectors of {target.vector_bytes} bytes")

    def coverage(self, formula: Formula) -> Coverage | None:
        return Coverage(Fidelity.BIT_IDENTICAL, NativeElements()) if formula in _SINGLE else None

    def takes(self, task: Task, exact: bool = True) -> bool:
        elements = [operand.element or task.element for operand in task.operands]
        if isinstance(task.opcode, Movement) and self.dispatch is Dispatch.OFFERED:
            return False  # NumPy makes a view where a kernel would copy
        if not super().takes(task, exact):
            return False
        return bool(loaded("topos.backend.native.reading.has_reading")(task.opcode, task.element, elements))


class Fused(Llvm):
    """Plans, or stretches of them, as one native function each."""

    name = "FUSED"
    dispatch = Dispatch.TRANSLATED

    def coverage(self, formula: Formula) -> Coverage | None:
        whole = Coverage(Fidelity.BIT_IDENTICAL, NativeElements())
        return whole if formula in COMPOSED else super().coverage(formula)

    def stores(self, task: Stretch) -> Mapping[int, Set[int]]:
        """What the groups of the plan store, which hang on no machine; everything, where it would be interpreted."""
        spec = task.spec
        are_read = all(self._reads(spec, row) for row in task.rows)
        if not are_read or loaded("topos.backend.native.lowered.declined")(spec, task.rows):
            return dict.fromkeys(task.rows, frozenset())
        found: Mapping[int, Set[int]] = loaded("topos.backend.native.grouping.stored")(spec, task.rows, task.kept)
        return found

    def _reads(self, spec: Spec, row: int) -> bool:
        """Whether a row has a native reading."""
        recorded, element = spec.rows[row], spec.element_of(row)
        elements = [spec.rows[operand].element or element for operand in recorded.operands]
        return bool(loaded("topos.backend.native.reading.has_reading")(recorded.opcode, element, elements))

    def offer(self, task: Stretch) -> Any:
        return loaded("topos.backend.native.lowered.executable")(task.spec, task.rows, task.kept, {})


class Simd(Llvm):
    """One instruction at a time, over arrays: what serves beside other backends and in plans that do not fuse."""

    name = "SIMD"
    dispatch = Dispatch.OFFERED

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    def offer(self, task: Task) -> Array | Declined:
        tensors = [operand for operand in task.operands if isinstance(operand, Tensor)]
        laid_out = loaded("topos.backend.native.layouts.laid_out")
        laid = [laid_out(t.dense(task.element)) if t.ids is None else (t.ids, None) for t in tensors]
        layouts = [layout for _, layout in laid]
        key = (task.opcode, task.element, *((t.shape, t.element) for t in tensors), *layouts)
        program = self._kept.get(key)
        if program is None:
            step = Step(task.opcode, task.element, task.shape, tuple(~at for at in range(len(tensors))))
            made = loaded("topos.backend.native.eager_program.EagerProgram")
            program = self._kept[key] = made(Work(tensors, [step], (0,)), layouts)
            for oldest in [*self._kept][:-_MOST_KEPT]:  # a copy: other threads add to it
                self._kept.pop(oldest, None)
        if not program.native:
            return Declined("no kernel")
        (answer,) = program.numbers([array for array, _ in laid])
        found: Array = answer
        return found
