"""Where values come from: constants, parameters and inputs. Their payloads are the spec's and the caller's."""

from __future__ import annotations

from typing import ClassVar

from topos.op.opcode import Opcode


class Source(Opcode):
    """A node without operands."""

    __slots__ = ()
    is_source: ClassVar[bool] = True


class Leaf(Source):
    """A constant of the spec."""

    __slots__ = ()


class Parameter(Source):
    """A slot of the caller's `Parameters` table."""

    __slots__ = ()


class Input(Source):
    """Fed per run; unfed, it takes its recorded default."""

    __slots__ = ()


LEAF, PARAMETER, INPUT = Leaf(), Parameter(), Input()
