"""Calls functions of test modules, as it is asked on its pipes, over four virtual devices."""

import importlib
import pickle
import sys
import traceback
import warnings
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[3]


def module(file: str) -> ModuleType:
    """A test module under the name that its own relative imports want."""
    return importlib.import_module(".".join(Path(file).relative_to(ROOT).with_suffix("").parts))


def serve() -> None:
    from topos.emission import xla

    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    sys.path.insert(0, str(ROOT))
    xla.virtual_devices(4)
    warnings.simplefilter("error")
    while True:
        try:
            file, name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        failure = ""
        try:
            getattr(module(file), name)(*arguments)
        except BaseException:
            failure = traceback.format_exc()
        pickle.dump(failure, answers)
        answers.flush()


if __name__ == "__main__":
    serve()
