"""Functions and classes found by name: a later stage's, which this one may not import, or code that a run may not need.

Every such name is a whole one, written out in the source, so that a search finds it and a test can resolve it. Where
neither a table of names nor the order of stages asks for one, an import inside a function is better: its types are
checked.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def loaded(name: str) -> Any:
    """What has a name in a module, both in one: `topos.shape.Shape`, say. The module is imported at the first call.

    Where another thread is still importing the module, this one waits for it. Raises `ImportError` or `AttributeError`
    where there is none.
    """
    module, _, own = name.rpartition(".")
    return getattr(import_module(module), own)
