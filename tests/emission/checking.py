"""Recorded modules on their way through the engines of others: what is answered otherwise, and what was looked at."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .conformance import misses
from .merging import merged
from .recording import Emitted

MOST_WORK = 300_000
"""The reference interpreter takes a second for a million numbers; what has more than it is given is verified there."""
LONGEST = 10_000
"""Lines of a module that XLA compiles: what it takes for each grows with how many there are."""
TOGETHER, LINES = 16, 600
"""So many modules, or lines of them, are compiled as one."""
FOREIGN = re.compile(r"f64|bf16|stablehlo\.(sine|cosine|power|reduce_window)\b")
"""What is left out of what IREE runs: it has no functions of `f64`, links `bf16` on some processors alone, does
not take every pool, and is wrong in the others (docs/emission.md)."""
ORDERED = re.compile(
    r"test_(c21_fused_multiply|c30_long_sums|c31_large_terms|c32_broadcast_views)"
    r"|test_instructions.py::test_shapes\[long-f64\]"
    r"|test_prologues.py::test_every_kind_and_layout_has_the_bits_of_the_stored_operand\[.*-f64\]"
)
"""Tests whose numbers show in which order a sum is made, or where it overflows: the interpreter and IREE have orders of
their own, so these are verified there, and compared with what XLA answers alone."""
REFUSALS = [
    r"has no Emittable contract",
    r"is \w+ in memory, which \w+ is not",
    r"has sums of its own, which no reduction of StableHLO is",
    r"has a maximum of its own, which no reduction of StableHLO is",
]
"""Why a plan of elements that somebody wrote has no module."""


def read(file: Path) -> Iterator[Emitted | dict[str, int]]:
    """What the recorder wrote: modules, and what it counted at the end."""
    with file.open("rb") as held:
        while held.peek(1):
            found = pickle.load(held)
            yield found if isinstance(found, dict) else Emitted(*found)


def missed(engines: Any, engine: str, modules: Iterable[Emitted], most_work: int = MOST_WORK) -> list[str]:
    """What an engine answers otherwise, a line for each result; of a module that it does not take, what it says."""
    lines = ((module.owner, _alone(engines, engine, module, most_work)) for module in modules)
    return [f"{owner} {engine}: {line}" for owner, told in lines for line in told]


def missed_together(engines: Any, modules: Sequence[Emitted]) -> list[str]:
    """The same of XLA, which compiles them as one; whoever is not as it should be is asked once more, alone."""
    given = [array for module in modules for array in module.arguments]
    try:
        found = iter(engines.run("compile", merged([module.text for module in modules]), given))
    except AssertionError:
        return missed(engines, "compile", modules)
    answers = [[next(found) for _ in module.expected] for module in modules]
    wrong = [one for one, answer in zip(modules, answers, strict=True) if list(_compared(one, "compile", answer))]
    return missed(engines, "compile", wrong)


def _alone(engines: Any, engine: str, module: Emitted, most_work: int) -> Iterator[str]:
    try:
        if engine == "verify" or module.untried or (engine == "interpret" and module.work > most_work):
            for text in {module.text, module.plain, module.raised or module.text}:
                engines.run("verify", text)
        else:
            text = module.text if engine == "compile" else module.plain
            yield from _compared(module, engine, engines.run(engine, text, module.arguments))
    except AssertionError as error:
        yield str(error).partition("\n")[0].removeprefix(f"{engine}: ")


def _compared(module: Emitted, engine: str, answers: Sequence[np.ndarray]) -> Sequence[str]:
    if engine == "compile" and module.is_subnormal:  # XLA takes these as zero
        return []
    return misses(answers, module.expected, module.coarsest)


class Checks:
    """Modules one after another, each by every engine.

    `wrong` has a line for each that was answered otherwise, or was refused for a reason that is none of `REFUSALS`;
    `counts` says how many were looked at, and how. Of those that IREE takes, it is given one of `sampled`.
    The interpreter is given what has no more than `most_work`.
    """

    def __init__(self, engines: Any, sampled: int = 1, most_work: int = MOST_WORK) -> None:
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self._engines, self._sampled, self._most_work = engines, sampled, most_work
        self._waiting: list[Emitted] = []
        self._lines = self._narrow = 0

    def take(self, module: Emitted) -> None:
        """Has a module interpreted, and compiled with the next ones; one without numbers is verified."""
        if module.refused:
            self._refuse(module)
            return
        self.counts["modules"] += 1
        is_ordered = ORDERED.search(module.owner) is not None
        self.wrong += missed(self._engines, "verify" if is_ordered else "interpret", [module], self._most_work)
        if module.untried:
            self.counts["verified alone"] += 1
            return
        if module.raised not in ("", module.text):
            self.wrong += missed(self._engines, "verify", [module])
        self.counts["interpreted"] += module.work <= self._most_work and not is_ordered
        if (lines := module.text.count("\n")) <= LONGEST:
            self._compile(module, lines)
        is_taken = not (is_ordered or module.is_subnormal or FOREIGN.search(module.text))
        if module.work <= MOST_WORK and is_taken:
            self._translate(module)

    def finish(self) -> None:
        """Has the last ones compiled."""
        waiting, self._waiting, self._lines = self._waiting, [], 0
        self.wrong += missed_together(self._engines, waiting) if waiting else []

    def _refuse(self, module: Emitted) -> None:
        known = any(re.fullmatch(f"EmissionError: .*: element \\S+ {reason}", module.refused) for reason in REFUSALS)
        self.counts["refused"] += 1
        self.wrong += [] if known else [f"{module.owner} is refused: {module.refused}"]

    def _compile(self, module: Emitted, lines: int) -> None:
        self.counts["compiled"] += 1
        self.counts["compiled, not compared"] += module.is_subnormal
        if len(self._waiting) == TOGETHER or lines + self._lines > LINES:
            self.finish()
        self._waiting.append(module)
        self._lines += lines

    def _translate(self, module: Emitted) -> None:
        self._narrow += 1
        if (self._narrow - 1) % self._sampled == 0:
            self.counts["translated"] += 1
            self.wrong += missed(self._engines, "iree", [module])
