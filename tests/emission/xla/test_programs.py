"""Compiled forms are kept in the process and on disk, and compiled again where what is there is something else."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from topos import BackendUnavailable, Tape
from topos.backend.native import cache
from topos.backend.native.cache import CacheWarning
from topos.emission import xla
from topos.emission.xla import client, programs

Elsewhere = Callable[..., None]


def executable(number: float = 2.0) -> xla.Executable:
    network, root = Tape.record(lambda tape: tape.parameter([1.0, 3.0]) * number)
    made = xla.compile(network.entry(root).lower())
    run = made.forward(network.parameters())
    assert run.of(root).tolist() == [number, 3.0 * number]
    return made


def origin(number: float = 2.0) -> str:
    programs.forget()
    return executable(number)._run.program.origin


def check_the_cache(folder: str) -> None:
    os.environ["TOPOS_CACHE"] = folder
    assert origin() == "compiled"
    assert [origin(), origin()] == ["loaded", "loaded"]
    assert executable().prepare().explain() == "XLA on cpu: loaded, 8 lines of StableHLO"
    assert executable()._run.program is executable()._run.program  # kept in the process
    (file,) = Path(folder).glob("*.object")
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole[:-1] + bytes([whole[-1] ^ 1])):
        file.write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            assert origin() == "compiled"
        assert file.read_bytes()[:16] == whole[:16]
        assert origin() == "loaded"
    for settings in ({"XLA_FLAGS": "--xla_cpu_enable_fast_math=false"}, {"TOPOS_CACHE": ""}):
        before = dict(os.environ)
        os.environ.update(settings)
        assert origin() == "compiled"
        os.environ.clear()
        os.environ.update(before)
    processor, programs._processor = programs._processor, lambda: None  # a machine without llvmlite, say
    assert [origin(), origin()] == ["compiled", "compiled"]
    programs._processor = processor
    cached, facts = cache.current(), client.Devices.facts
    client.Devices.facts = property(lambda self: ("another version", *facts.fget(self)))
    assert [origin(), origin()] == ["compiled", "loaded"]
    client.Devices.facts = facts
    for content in (b"", b"nothing that XLA wrote"):  # whole, and refused
        for path in Path(folder).glob("*.object"):
            cached.put(path.stem, content)
        assert [origin(), origin()] == ["compiled", "loaded"]


def test_forms_are_cached(elsewhere: Elsewhere, tmp_path: Path) -> None:
    elsewhere(check_the_cache, str(tmp_path))


def check_the_bound(folder: str) -> None:
    os.environ["TOPOS_CACHE"] = folder
    held = cache.current()
    origin(1.5)
    (file,) = Path(folder).glob("*.object")
    held.limit_bytes = 3 * file.stat().st_size
    for number in range(2, 8):
        origin(float(number))
    assert 1 <= len(list(Path(folder).glob("*.object"))) <= 3
    programs.forget()
    for number in range(programs.HELD + 3):
        programs._held[str(number)] = programs.Program(None, "")
    origin()
    assert len(programs._held) <= programs.HELD + 3


def test_forms_on_disk_keep_the_bound(elsewhere: Elsewhere, tmp_path: Path) -> None:
    elsewhere(check_the_bound, str(tmp_path))


def test_without_the_extra_it_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    network, root = Tape.record(lambda tape: tape.parameter(2.0) * 2.0)
    monkeypatch.setattr(client, "import_module", absent)
    monkeypatch.setattr(client, "jax_version", lambda: None)
    with pytest.raises(BackendUnavailable) as caught:
        xla.compile(network.entry(root).lower())
    assert str(caught.value) == "xla: not installed: XLA comes with jax: pip install topos-stack[xla]"
    monkeypatch.setattr(client, "jax_version", lambda: "0.10.2")
    with pytest.raises(BackendUnavailable) as caught:
        xla.processes()
    assert str(caught.value) == "xla: setup failed: No module named 'jax'"
