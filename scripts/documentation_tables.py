"""The tables of the documentation, made from the code: the public names, the instructions, their derivative rules."""

from __future__ import annotations

import ast
import enum
import inspect
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from documentation_rules import rules

import topos
from topos import emission, op, testing
from topos.backend.repertoire import COMPOSITIONS
from topos.op import Opcode

ROOT = Path(__file__).parents[1]

STAGES = {
    "": "The package",
    "graph": "Recording and the spec",
    "engine": "Running",
    "backend": "Acceleration",
    "tensor": "The payload",
    "element": "The number",
    "shape": "Extents",
    "op": "The instructions",
    "neural": "The neural tier",
    "storage": "Files",
    "errors": "Errors",
}
"""Headings of the reference in reading order; a stage without one stands last under its own name."""

MADE_BY_CALLERS = {"Coverage", "Declined", "Native", "Status", "Tape", "Tensor", "Entry", "Shape"}
"""Classes whose constructor is for callers, beside errors; all others are made by a method, and show none."""

PLUMBING = {
    "BoundEntry": {"of", "bind"},
    "Composites": {"mark", "reset"},
    "Entry": {"replaced"},
    "Gradients": {"get"},
    "Network": {"spec"},
    "Plan": {"prefix"},
    "Opcode": {"derivative", "facts", "result_element", "result_shape"},
    "Recordable": {"mark", "reset"},
    "Services": {"add"},
    "Shape": {"axis", "with_axis"},
    "State": {"of_network", "replace"},
    "Table": {"entries", "get", "moment", "rows", "seen"},
    "Tape": {
        *("absent_at", "append", "constant", "index_of", "label_at", "mark", "name_at", "over"),
        *("origin", "payload_at", "place", "reset", "row", "spec", "symbol_at", "write"),
    },
    "Tensor": {
        *("address", "among", "apply", "awaited", "counted", "dense", "expect", "held", "is_complete", "mark", "of"),
        *("of_ids", "one_like", "reset", "zero_like"),
    },
    "TensorFile": {"held"},
    "ToposError": {"placed"},
    "Trace": {"apply", "counted", "element", "mark", "one_like", "recording", "reset", "shape", "zero_like"},
}
"""What a class has for other stages of topos, or defines because `Recordable` asks for it."""

KINDS = {
    "Source": "source",
    "Elementwise": "elementwise",
    "Movement": "movement",
    "Reduction": "reduction",
    "Indexing": "indexing",
}


def first_line(thing: Any) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


# the public names
def public_names() -> dict[str, list[str]]:
    """The names of `topos.__all__` by the stage that `topos/__init__.py` takes them from."""
    source = Path(topos.__file__).read_text(encoding="utf-8")
    stages: dict[str, list[str]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            stage = node.module.partition(".")[2].partition(".")[0]
            names = [alias.asname or alias.name for alias in node.names]
            stages.setdefault("" if stage.startswith("_") else stage, []).extend(n for n in names if n in topos.__all__)
    order = [stage for stage in STAGES if stage in stages]
    return {stage: sorted(stages[stage], key=str.lower) for stage in [*order, *sorted(set(stages) - set(order))]}


def api() -> str:
    """Every public name: its signature, the first line about it, and its own public methods."""
    parts = []
    for stage, names in public_names().items():
        parts.append(f"## {STAGES.get(stage, stage)}")
        parts += [_entry(name, getattr(topos, name)) for name in names]
    for module in (emission, testing):
        parts += [f"## {module.__name__}", first_line(module), "\n".join(_listed(module))]
    return "\n\n".join(parts)


def _entry(name: str, thing: Any) -> str:
    if inspect.isclass(thing):
        text = f"### {name}\n\n{_code(name, thing)}{first_line(thing)}"
        members = list(_members(thing))
        return "\n".join([text, "", *members]) if members else text
    if inspect.isfunction(thing):
        return f"### {name}\n\n{_code(name, thing)}{first_line(thing)}"
    if inspect.ismodule(thing):
        return "\n".join([f"### {name}\n\n{first_line(thing)}", "", *_listed(thing)])
    about = "The version of the package." if name == "__version__" else _constant(name, thing)
    return f"### {name}\n\n{about}"


def _listed(module: Any) -> list[str]:
    """A line for each public name of a module."""
    things = [(name, getattr(module, name)) for name in module.__all__]
    return [
        f"- `{name}{signature(thing) if inspect.isfunction(thing) else ''}`: {first_line(thing)}"
        for name, thing in things
    ]


def _constant(name: str, thing: Any) -> str:
    """The string that stands below a public object where its module makes it."""
    body = ast.parse(Path(inspect.getfile(type(thing))).read_text(encoding="utf-8")).body
    for node, after in zip(body, body[1:], strict=False):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name and isinstance(after, ast.Expr):
            return str(ast.literal_eval(after.value)).partition("\n")[0]
    raise SystemExit(f"documentation: {name} has no text below it")


def _code(name: str, thing: Any) -> str:
    if inspect.isclass(thing) and issubclass(thing, BaseException | enum.Enum):
        bases = [base.__name__ for base in thing.__bases__ if base is not enum.Enum]
        return f"`{name}({', '.join(bases)})`: " if bases else ""
    if inspect.isclass(thing) and name not in MADE_BY_CALLERS and not issubclass(thing, topos.Module | topos.Optimizer):
        return ""
    return f"`{name}{signature(thing)}`: "


def _members(kind: type) -> Iterator[str]:
    """The public attributes, methods and properties that a class, or a base of it that is not public, defines."""
    if issubclass(kind, enum.Enum):
        yield from (f"- `{kind.__name__}.{member.name}`" for member in kind)
        return
    own = list(itertools.takewhile(lambda base: base is kind or base.__name__ not in topos.__all__, kind.__mro__))
    own = [base for base in own if base.__module__.startswith("topos.")]
    left_out: set[str] = set().union(*(PLUMBING.get(base.__name__, set()) for base in own))
    attributes = dict.fromkeys(itertools.chain.from_iterable(_attributes(base) for base in own))
    shown = [f"`{name}`" for name in attributes if not name.startswith("_") and name not in left_out]
    if shown:
        yield f"- attributes: {', '.join(shown)}"
    members = {name: member for base in reversed(own) for name, member in vars(base).items()}
    for name, member in members.items():
        if not name.startswith("_") and name not in left_out:
            yield from _member(name, member, first_line(getattr(kind, name)))


def _attributes(kind: type) -> list[str]:
    """The attributes that a class declares: slots, fields of a named tuple, annotations."""
    return [*vars(kind).get("_fields", ()), *vars(kind).get("__slots__", ()), *inspect.get_annotations(kind)]


def _member(name: str, member: Any, about: str) -> Iterator[str]:
    plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
    if isinstance(member, property):
        yield f"- `{name}`: {about}"
    elif inspect.isfunction(plain):
        yield f"- `{name}{signature(plain)}`: {about}"


def signature(thing: Any) -> str:
    """The parameters with their defaults, without annotations."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return ""
    shown = [
        parameter.replace(annotation=parameter.empty)
        for parameter in parameters
        if parameter.name not in ("self", "cls")
    ]
    parts: list[str] = []
    for position, parameter in enumerate(shown):
        if parameter.kind is parameter.KEYWORD_ONLY and not any(
            p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) for p in shown[:position]
        ):
            parts.append("*")
        parts.append(_parameter(parameter))
    return f"({', '.join(parts)})"


def _parameter(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is parameter.empty:
        return str(parameter)
    return f"{parameter.name}={default if isinstance(default, enum.Enum) else repr(default)}"


# the backends
def backends() -> str:
    """Every backend of topos: when it is asked, what it covers, how faithfully and over which elements."""
    rows = []
    for backend in topos.Backend.ALL:
        covered = {formula: backend.coverage(formula) for formula in topos.Formula}
        found = [coverage for coverage in covered.values() if coverage is not None]
        names = [formula for formula, coverage in covered.items() if coverage is not None]
        is_all = set(COMPOSITIONS) <= set(names)
        shown = [f"`{name}`" for name in names if not is_all or name not in COMPOSITIONS]
        formulas = ", ".join([*shown, *(["all compositions"] if is_all else [])])
        fidelity = ", ".join(dict.fromkeys(f"`{coverage.fidelity.name}`" for coverage in found))
        precisions = ", ".join(dict.fromkeys(str(coverage.precisions).strip("()") for coverage in found))
        rows.append(
            [f"`{backend.name}`", f"`{backend.dispatch.name}`", formulas or "nothing yet", fidelity, precisions]
        )
    return table(["backend", "dispatch", "covers", "fidelity", "elements"], rows)


# the instructions
def opcodes() -> list[type[Opcode]]:
    """Every instruction of the set, by kind and then in the order of the source."""
    found = []
    for name in op.__all__:
        kind = getattr(op, name)
        if inspect.isclass(kind) and issubclass(kind, Opcode) and not kind.__subclasses__():
            found.append(kind)
    maps = [type(opcode) for opcode in op.MAPS.values()]
    order = list(KINDS.values())

    def place(kind: type[Opcode]) -> tuple[int, str, int]:
        name, module = kind_name(kind), kind.__module__
        line = list(vars(import_module(module))).index(kind.__name__)
        return order.index(name) if name in order else len(order), module, line

    return sorted([*found, *maps], key=place)


def kind_name(opcode: type[Opcode]) -> str:
    """What a stage lowers an instruction by."""
    kinds = [KINDS[base.__name__] for base in opcode.__mro__ if base.__name__ in KINDS]
    return kinds[0] if kinds else {"MatMul": "contraction", "Cast": "elementwise", "Pad": "movement"}[opcode.__name__]


def instructions() -> str:
    """Every instruction with its kind, operands, attributes and meaning."""
    rows = [
        [
            f"`{opcode.name}`",
            kind_name(opcode),
            ", ".join(opcode.roles),
            ", ".join(f"`{attribute}`" for attribute in opcode.attributes),
            first_line(opcode),
        ]
        for opcode in opcodes()
    ]
    return table(["instruction", "kind", "operands", "attributes", "meaning"], rows)


def derivative_rules() -> str:
    """Every derivative rule as it spells itself."""
    rows = [
        [f"`{name}`", f"`{call}`", "<br>".join(f"{operand}: {text}" for operand, text in cotangents)]
        for name, call, cotangents in rules()
    ]
    return table(["instruction", "`y`", "cotangents"], rows)


# the accuracy
def accuracy() -> str:
    """The measured distances from `docs/accuracy.json`, or the bounds that every release keeps."""
    file = ROOT / "docs" / "accuracy.json"
    if not file.exists():
        return table(["element", "elementary functions are within"], [["`f32`", "0.501 ulp"], ["`f64`", "1 ulp"]])
    measured: dict[str, dict[str, float]] = json.loads(file.read_text(encoding="utf-8"))
    elements = list(measured)
    functions = list(dict.fromkeys(name for figures in measured.values() for name in figures))
    rows = [
        [f"`{name}`", *(f"{measured[element][name]:.4f}" if name in measured[element] else "" for element in elements)]
        for name in functions
    ]
    return table(["largest distance found, in ulp", *(f"`{element}`" for element in elements)], rows)


# the performance
def performance() -> str:
    """What `docs/performance.json` holds: the circumstances, and a table each for times, beginnings and memory."""
    tables, results = _tables_and("performance.json")
    workloads = import_module("benchmarks.workloads").WORKLOADS
    parts = tables.times(results, workloads), tables.beginnings(results), tables.memory(results)
    return "\n\n".join([tables.circumstances(results), *parts])


def compilation() -> str:
    """What `docs/compilation.json` holds: compilations, and the memory of a step."""
    tables, results = _tables_and("compilation.json")
    return str(tables.compilation(results))


def emitted() -> str:
    """What `docs/emission.json` holds: how long plans take to emit, and who serves them how fast."""
    tables, results = _tables_and("emission.json")
    return str(tables.emission(results, import_module("benchmarks.workloads").WORKLOADS))


def distances() -> str:
    """What `docs/distances.json` holds: how far the results of other engines are from those of topos."""
    tables, results = _tables_and("distances.json")
    return str(tables.distances(results))


def _tables_and(name: str) -> tuple[Any, dict[str, Any]]:
    """The tables of the benchmarks, which lie beside the scripts, and the results that one makes them from."""
    beside = str(Path(__file__).parents[1])
    if beside not in sys.path:
        sys.path.append(beside)
    results: dict[str, Any] = json.loads((ROOT / "docs" / name).read_text(encoding="utf-8"))
    return import_module("benchmarks.table"), results


TABLES: dict[str, Callable[[], str]] = {
    "api": api,
    "instructions": instructions,
    "derivatives": derivative_rules,
    "accuracy": accuracy,
    "backends": backends,
    "performance": performance,
    "compilation": compilation,
    "emission": emitted,
    "distances": distances,
}
