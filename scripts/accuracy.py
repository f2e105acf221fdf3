"""Measures the elementary functions against mpmath and writes `docs/accuracy.json`: minutes, on all cores.

    python scripts/accuracy.py

The operands are those that `pytest -m slow tests/element` grades: spread over the range, and near every hard place.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.element.test_accuracy import CASES, worst  # noqa: E402 - the folder of the tests is no installed package

COUNT, SEED = 280_000, 2


def main() -> None:
    """The largest distance in ulp of every function, by element."""
    measured: dict[str, dict[str, float]] = {}
    for function, element in CASES:
        with np.errstate(all="ignore"):
            found, where = worst(function, element, COUNT, SEED, parallel=True)
        measured.setdefault(element, {})[function] = round(found, 4)
        print(f"{found:.4f}  {where}", flush=True)
    text = json.dumps(measured, indent=2)
    (ROOT / "docs" / "accuracy.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
