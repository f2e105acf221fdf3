"""Running a spec: entries, plans, the interpreter, and what survives from run to run."""

from topos.engine.bound import BoundEntry
from topos.engine.entry import Entry
from topos.engine.numerics import Numerics
from topos.engine.pattern.match import Pattern
from topos.engine.plan import Plan
from topos.engine.report import Finding, Report
from topos.engine.run import Gradients, Run
from topos.engine.state import State

__all__ = ["BoundEntry", "Entry", "Finding", "Gradients", "Numerics", "Pattern", "Plan", "Report", "Run", "State"]
