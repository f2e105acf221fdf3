"""Every error that topos raises on purpose: one hierarchy, each also the built-in kind that a caller expects.

The first line of a message names the rule and the facts; the lines after it place the operands: name, node, shape and
the user's file and line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Restated = TypeVar("Restated", bound="ToposError")


class ToposError(Exception):
    """The root of the hierarchy. `str(error)` is the message; it names the rule, the facts and where they come from."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def placed(self, facts: Iterable[str]) -> ToposError:
        """The same error with a line per fact below its message, for whoever knows where the operands come from."""
        self.args = ("\n".join([str(self), *(f"  {fact}" for fact in facts)]),)
        return self


class ShapeError(ToposError, ValueError):
    """Extents, axes or ranks that do not fit the rule."""


class ElementError(ToposError, TypeError):
    """Numbers of different elements side by side, or a number that its element cannot hold exactly."""


class RecordedError(ToposError, TypeError):
    """A question only a computed value can answer (`bool`, `float`, `<`), put to a recorded one; or no operand."""


class SealedError(ToposError):
    """A `Value` used after its tape was sealed."""


class ConsumedError(ToposError):
    """A tape or network used after another phase consumed it."""


class KinshipError(ToposError, KeyError):
    """A symbol of another family, one that the table or prefix does not cover, or an unknown name."""


class UnobservedError(ToposError, KeyError):
    """A read of a value that the entry did not declare."""


class PostureError(ToposError):
    """A backward sweep asked of a run that was not made for one."""


class FeedError(ToposError, ValueError):
    """A payload that does not fit its source, an unknown source, a source without one, or a file that holds no data."""


class EmissionError(ToposError, TypeError):
    """A node that has no spelling in the text that was asked for."""


class CheckpointError(ToposError, ValueError):
    """A file that is malformed or of a later version, what no file holds, or saved tensors that do not fit a table."""


class ExactnessError(ToposError):
    """The machine is in a state in which the promised bits cannot be computed."""


class BackendUnavailable(ToposError, RuntimeError):
    """A backend that was required and is not ready, or something in its place that is no backend."""


class EngineError(ToposError, RuntimeError):
    """Another engine, which runs what was emitted, refused it or failed at it; the message is the engine's."""


class SettingError(ToposError, ValueError):
    """A setting, from the environment or a call, that does not exist or that this machine cannot honour."""


def restated(error: ToposError, kind: type[Restated], message: str) -> Restated:
    """An error to raise `from None` in place of one that was caught, whose frames are let go.

    Python hangs the caught error on the one that replaces it, and on its traceback hang the frames that hold the spec.
    """
    error.__traceback__ = None
    return kind(message)
