"""The command `topos` and what its walkthrough prints."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import topos
from topos import walkthrough
from topos.__main__ import main

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def page() -> str:
    return "\n\n".join(walkthrough.sections())


def topos_command(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "topos", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


def test_the_walkthrough_prints_its_golden_text(page: str, golden: Callable[[str, str], None]) -> None:
    golden(page, "walkthrough.txt")


def test_the_walkthrough_shows_the_golden_readings(page: str) -> None:
    """The spec and the derivative as they lie beside it, line for line; the plan's lines have bars behind them."""
    lines = [line.removeprefix("    ") for line in page.splitlines()]
    for name in ("walk_derivative.txt", "walk_plan.txt"):
        expected = (GOLDEN / name).read_text(encoding="utf-8").splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith(expected[0]))
        assert all(line.startswith(wanted) for line, wanted in zip(lines[start:], expected, strict=False)), name
    assert "0.8305  0.5910  0.3760  0.2014  0.0826  0.0260" in page


def test_every_route_gives_the_same_bits(page: str) -> None:
    """The interpreter, the plan and the sweep each print the loss and the gradient; the replay prints them again."""
    assert page.count("3f549eac") == 4
    assert page.count("3f23c361 3f4010ff 3fa3c361 3fc010ff") == 4
    assert "OTHER" not in page
    assert "another spec" not in page


def test_the_walkthrough_fits_a_page_of_100_columns(page: str) -> None:
    assert [line for line in page.splitlines() if len(line) > 100 or line != line.rstrip()] == []


def test_the_walkthrough_names_no_folder(page: str, tmp_path: Path) -> None:
    """Its report names lines of its own file, wherever that was installed and wherever it is run."""
    printed = topos_command("walkthrough", cwd=tmp_path)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert printed.stdout == page + "\n"
    assert " walkthrough.py:" in page


def test_the_version() -> None:
    assert topos_command("--version").stdout == f"topos {topos.__version__}\n"


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert "walkthrough" in printed and "backends" in printed


def test_a_line_for_each_backend(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TOPOS_NATIVE", "0")
    monkeypatch.setenv("TOPOS_BACKENDS", "simd,BLAS")
    assert main(["backends"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [backend.name for backend in topos.Backend.ALL]
    assert lines[5] == "SIMD        1  switched off: TOPOS_NATIVE=0"
    assert last == "asked by default: SIMD, BLAS; TOPOS_BACKENDS names others"


def test_a_chain_that_names_nobody_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TOPOS_BACKENDS", "NEON")
    assert main(["backends"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("TOPOS_BACKENDS: no backend is called 'NEON'; there are")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "the following arguments are required: command"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["walkthrough", "more"], "unrecognized arguments: more"),
    ],
)
def test_bad_usage_has_status_2(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: topos" in captured.err
    assert complaint in captured.err


def test_a_closed_pipe_leaves_no_traceback() -> None:
    command = [sys.executable, "-m", "topos", "walkthrough"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read()
    assert complaint == b""
    assert process.returncode == 1


def test_an_interrupt_leaves_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(walkthrough, "main", interrupted)
    assert main(["walkthrough"]) == 130
    assert capsys.readouterr().err == ""


def test_help_and_version_load_no_stage() -> None:
    """The parser alone answers them: nothing of the walkthrough is imported for it."""
    program = (
        "import sys; from topos.__main__ import main; main(['--version']); print('topos.walkthrough' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed == f"topos {topos.__version__}\nFalse\n"
