"""What the project promises about its own files."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cached_property
from importlib.metadata import distribution
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import pytest

import topos
from topos.backend import native

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
GENERATED = {"coefficients.py"}
HEAVY = {"jax", "jaxlib", "torch", "llvmlite"}
# Folders of one machine at the start of a path; spelled in two parts, so that this line is not one of them.
MACHINE_PATH = re.compile(r"(?<![\w.~}-])/" + r"(?:work|home|root|Users|tmp)/")

each_source = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.relative_to(ROOT).as_posix())


def module(source: Path) -> ModuleType:
    parts = source.relative_to(ROOT / "src").with_suffix("").parts
    return importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))


def imports(tree: ast.AST) -> Iterator[str]:
    """The top names of what a module imports when it is itself imported: not inside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from (name for branch in node.orelse for name in imports(ast.Module([branch], [])))
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imports(node)


def test_the_metadata_names_licence_readme_and_version() -> None:
    metadata = distribution("topos-stack").metadata
    assert metadata["Version"] == topos.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().lstrip().startswith("# topos\n")
    assert (ROOT / "src" / "topos" / "py.typed").is_file()
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_licence(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.iterdir()
    info = f"topos_stack-{topos.__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        description = archive.read(f"{info}/METADATA").decode()
    modules = {source.relative_to(ROOT / "src").as_posix() for source in SOURCES}
    assert names >= {*modules, "topos/py.typed", f"{info}/licenses/LICENSE"}
    assert description.endswith((ROOT / "README.md").read_text(encoding="utf-8"))
    assert {name.partition("/")[0] for name in names} == {"topos", info}


@each_source
def test_a_source_file_has_a_docstring(source: Path) -> None:
    assert ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))


@each_source
def test_what_a_module_defines_in_public_is_described(source: Path) -> None:
    """Methods count as described where the one they override is; ruff sees only the class itself."""
    here = module(source)
    for name, kind in inspect.getmembers(here, inspect.isclass):
        if kind.__module__ != here.__name__ or name.startswith("_"):
            continue
        for member, value in vars(kind).items():
            if not member.startswith("_") and (
                callable(value) or isinstance(value, property | cached_property | classmethod)
            ):
                assert inspect.getdoc(getattr(kind, member)), f"{name}.{member} has no docstring"


@each_source
def test_importing_topos_imports_no_heavy_library(source: Path) -> None:
    assert HEAVY.isdisjoint(imports(ast.parse(source.read_text(encoding="utf-8"))))


def test_imports_are_found_wherever_they_run_on_import() -> None:
    text = "import a.b\nfrom c.d import e\nfrom . import f\nif x:\n try:\n  import g\n except E:\n  from h import i\n"
    late = "def k():\n import l\nif TYPE_CHECKING:\n import m\nelse:\n import n\nclass O:\n import p\n"
    assert list(imports(ast.parse(text + late))) == ["a", "c", "g", "h", "n", "p"]


@pytest.mark.parametrize("source", [s for s in SOURCES if s.name not in GENERATED], ids=lambda s: s.stem)
def test_a_source_file_is_one_concept(source: Path) -> None:
    assert len(source.read_text(encoding="utf-8").splitlines()) <= 300


def test_the_map_of_native_plans_names_every_module() -> None:
    map = native.__doc__ or ""
    assert [module.name for module in iter_modules(native.__path__) if f"`{module.name}`" not in map] == []


def test_no_kept_text_names_a_path_of_one_machine() -> None:
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    assert len(files) > 10
    texts = {file: file.read_text(encoding="utf-8", errors="replace") for file in files}
    found = [str(file.relative_to(ROOT)) for file, text in texts.items() if MACHINE_PATH.search(text)]
    assert found == []


@pytest.mark.parametrize("text", ["/work" + "/x", "see (/home" + "/a)", "cd '/tmp" + "/b'", "x=/root" + "/.c"])
def test_a_machine_path_is_recognised(text: str) -> None:
    assert MACHINE_PATH.search(text)
    assert not MACHINE_PATH.search(text.replace("/", "docs/", 1))
    assert not MACHINE_PATH.search(text.replace("/", "~/", 1))
