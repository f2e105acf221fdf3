"""`NamedTuple`, which is `typing`'s to whoever reads a program, and is made in half of its time.

The stages below the neural tier are written in a hundred of them, half of which a first run needs. `typing` compiles
the annotation of every field to check that it is a type: here annotations stay the texts that they are, and
`collections` makes the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple

    class _Maker(type):
        """Makes a named tuple of a class body: an annotation is a field, a value beside it its default.

        A field without a default behind one with is left to mypy, which refuses it.
        """

        def __new__(cls, name, bases, body):
            annotations = body.get("__annotations__", {})
            defaults = [body.pop(field) for field in list(annotations) if field in body]
            made = namedtuple(name, annotations, defaults=defaults, module=body.pop("__module__"))
            made.__new__.__annotations__ = annotations
            for key, value in body.items():
                setattr(made, key, value)
            return made

    class _Base:
        """In a list of bases, the type whose maker makes named tuples."""

        def __mro_entries__(self, bases):
            return (_made,)

    _made = type.__new__(_Maker, "NamedTuple", (), {})
    NamedTuple = _Base()
