"""Parsers, interpreters and compilers of others, which run emitted text. Run as a program, it serves them on its pipes.

They stand in a process of their own: the reference interpreter ends the process that asks it for an operation which it
does not know, and XLA brings threads.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Arrays = Sequence[np.ndarray]
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
"""What is compiled runs once."""
MANY = (
    f"{QUICK} --xla_allow_excess_precision=false"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
"""So are many, rounded where the text says so: by XLA's emitters of single operations, in a fifth of the time."""


class Engines:
    """The other process. `run` answers a list of arrays, or raises `AssertionError` with what the engine said."""

    def __init__(self, settings: str = QUICK) -> None:
        self._settings = {"XLA_FLAGS": settings}
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, engine: str, text: str | bytes, arguments: Arrays = ()) -> list[np.ndarray]:
        """Has an engine (`verify`, `interpret` or `compile`) take a module and run it over arguments."""
        if self._process is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__))], env=os.environ | self._settings, **pipes
            )
        process = self._process
        try:
            pickle.dump((engine, text, [_sent(array) for array in arguments]), process.stdin)
            process.stdin.flush()
            failure, answer = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError):
            self.close()
            raise AssertionError(f"{engine}: the process ended\n{text}") from None
        assert not failure, f"{engine}: {failure}\n{text}"
        return [_received(*part) for part in answer]

    def close(self) -> None:
        """Ends the process, if there is one; the next question starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _sent(array: np.ndarray) -> tuple[str, np.ndarray]:
    """bfloat16 travels as its patterns: reading the name of its dtype takes an import."""
    held = np.ascontiguousarray(array).reshape(array.shape)
    return held.dtype.name, held.view(np.uint16) if held.dtype.name == "bfloat16" else held


def _received(dtype: str, array: np.ndarray) -> np.ndarray:
    import ml_dtypes

    return array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array


def _parsed(text: str | bytes) -> tuple[Any, Any]:
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, sdy, stablehlo

    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    sdy.register_dialect(context)
    with context:
        module = ir.Module.parse(text)
        module.operation.verify()
    return context, module


def verify(text: str, arguments: Arrays) -> list[np.ndarray]:
    _parsed(text)
    return []


def interpret(text: str, arguments: Arrays) -> list[np.ndarray]:
    """By the reference interpreter of StableHLO, after CHLO is written in its operations."""
    from jaxlib.mlir import ir, passmanager
    from jaxlib.mlir.dialects import stablehlo

    context, module = _parsed(_as_patterns(text))
    with context:
        stablehlo.register_stablehlo_passes()
        passmanager.PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(module.operation)
        found = stablehlo.eval_module(module, [_attribute(ir, array) for array in arguments])
        return [_array(ir, attribute) for attribute in found]


def portable(artifact: bytes, arguments: Arrays) -> list[np.ndarray]:
    """A portable artifact, read back and interpreted."""
    from jaxlib.mlir.dialects import stablehlo

    context, module = _parsed(stablehlo.deserialize_portable_artifact_str(artifact))
    with context:
        return interpret(str(module), arguments)


def _attribute(ir: Any, array: np.ndarray) -> Any:
    if array.dtype.name != "bfloat16":
        return ir.DenseElementsAttr.get(array)
    return ir.DenseElementsAttr.get(array.view(np.uint16), type=ir.BF16Type.get(), shape=array.shape)


def _as_patterns(text: str) -> str:
    """The module with bfloat16 results as the integers that they are in memory, which NumPy reads."""
    *before, returned, function, module = text.splitlines()
    names, _, types = returned.strip().removeprefix("return ").partition(" : ")
    given, kinds = names.split(", "), types.split(", ")
    for at, kind in enumerate(kinds):
        if kind.endswith("bf16>"):
            patterns = kind.replace("bf16>", "ui16>")
            before.append(f"    %pattern{at} = stablehlo.bitcast_convert {given[at]} : ({kind}) -> {patterns}")
            given[at], kinds[at] = f"%pattern{at}", patterns
    main = next(at for at, line in enumerate(before) if "func.func @main" in line)
    before[main] = f"{before[main].rpartition(' -> ')[0]} -> ({', '.join(kinds)}) {{"
    return "\n".join([*before, f"    return {', '.join(given)} : {', '.join(kinds)}", function, module])


def _array(ir: Any, attribute: Any) -> np.ndarray:
    import ml_dtypes

    kind = ir.RankedTensorType(attribute.type)
    dtype = {"f32": np.float32, "f64": np.float64, "ui16": np.uint16}[str(kind.element_type)]
    found = np.zeros(kind.shape, dtype) if 0 in kind.shape else np.array(attribute).reshape(kind.shape)
    return found.view(ml_dtypes.bfloat16) if dtype is np.uint16 else found


_executables: dict[str, Any] = {}


def compile(text: str, arguments: Arrays) -> list[np.ndarray]:
    """By XLA, on the CPU; the last module is kept."""
    import jax
    from jaxlib import xla_client

    jax.config.update("jax_enable_x64", True)
    device = jax.devices("cpu")[0]
    if text not in _executables:
        _executables.clear()
        devices = xla_client.DeviceList((device,))
        _executables[text] = device.client.compile_and_load(text, devices, xla_client.CompileOptions())
    found = _executables[text].execute_sharded([jax.device_put(array, device) for array in arguments])
    return [np.asarray(one[0]) for one in found.disassemble_into_single_device_arrays()]


_programs: dict[str, Any] = {}


def iree(text: str, arguments: Arrays) -> list[np.ndarray]:
    """By IREE, on the CPU; the last module is kept."""
    from iree import runtime

    if text not in _programs:
        _programs.clear()
        context = runtime.SystemContext(config=runtime.Config("local-sync"))
        context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, _translated(text)))
        _programs[text] = context.modules.topos.main
    found = _programs[text](*arguments)
    return [np.asarray(one) for one in (found if isinstance(found, tuple | list) else [found])]


def _translated(text: str) -> bytes:
    from iree.compiler.api import Output, Session, Source

    session = Session()
    session.set_flags(
        "--iree-hal-target-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false"
    )
    invocation, output = session.invocation(), Output.open_membuffer()
    invocation.enable_console_diagnostics()
    invocation.parse_source(Source.wrap_buffer(session, text.encode() + b"\0"))
    if not invocation.execute():
        raise ValueError("the module is not taken")
    invocation.output_vm_bytecode(output)
    return bytes(output.map_memory())


ENGINES: dict[str, Callable[[Any, Arrays], list[np.ndarray]]] = {
    "verify": verify,
    "interpret": interpret,
    "portable": portable,
    "compile": compile,
    "iree": iree,
}


def serve() -> None:
    """Answers questions until there are no more."""
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr
    while True:
        try:
            engine, text, sent = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            found = ENGINES[engine](text, [_received(*part) for part in sent])
            answer = "", [_sent(array) for array in found]
        except Exception as error:
            answer = f"{type(error).__name__}: {error}", []
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    serve()
