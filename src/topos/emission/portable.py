"""The portable form of an emitted module: VHLO, which later versions of StableHLO read, and earlier ones it names."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from topos.errors import BackendUnavailable, EmissionError, SettingError


def portable(text: str, version: str | None = None) -> bytes:
    """An emitted module as a VHLO artifact of a version of StableHLO, by default of the newest that is installed.

    CHLO has no portable form: its operations are written in those of StableHLO first. Raises `BackendUnavailable`
    without the extra `xla`, `SettingError` for a version that it does not write, `EmissionError` for a module that has
    no form in that version.
    """
    try:
        stablehlo = import_module("jaxlib.mlir.dialects.stablehlo")
    except ImportError as error:
        told = f"portable: needs jaxlib, which pip install 'topos-stack[xla]' brings; {error}"
        raise BackendUnavailable(told) from error
    asked = _checked(stablehlo, version)
    try:
        return bytes(stablehlo.serialize_portable_artifact_str(_legal(stablehlo, text), asked))
    except Exception as error:
        raise EmissionError(f"portable: the module has no form in version {asked}: {error}") from error


def _checked(stablehlo: Any, version: str | None) -> str:
    newest, oldest = stablehlo.get_current_version(), stablehlo.get_minimum_version()
    asked = newest if version is None else version
    if not (re.fullmatch(r"\d+\.\d+\.\d+", asked) and _parts(oldest) <= _parts(asked) <= _parts(newest)):
        raise SettingError(f"portable: version is one of StableHLO from {oldest} to {newest}, got {version!r}")
    return str(asked)


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _legal(stablehlo: Any, text: str) -> str:
    """The module without CHLO, its places kept. The library would convert a module itself in place, so it gets text."""
    ir = import_module("jaxlib.mlir.ir")
    registry = ir.DialectRegistry()
    import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext").register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    for dialect in (stablehlo, import_module("jaxlib.mlir.dialects.chlo")):
        dialect.register_dialect(context)
    stablehlo.register_stablehlo_passes()
    with context:
        module = ir.Module.parse(text)
        passes = import_module("jaxlib.mlir.passmanager").PassManager
        passes.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(module.operation)
        return str(module.operation.get_asm(enable_debug_info=True))
