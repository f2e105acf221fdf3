"""An autodiff compiler stack: record a graph, inspect it, differentiate it, compile it, emit it."""

from topos._version import __version__

__all__ = ["__version__"]
