"""`NamedTuple`, which is `typing`'s to whoever reads a program and is made in a fraction of its time.

topos is written in more than a hundred of them, half of which a first run needs: `typing` compiles the annotation of
every field and a constructor for every type, which together took a tenth of the time to compile a small plan. Here
annotations stay the texts that they are, and types of as many fields share the code of one constructor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple
    from functools import cache
    from types import FunctionType

    _Field = type(namedtuple("_One", ["field"]).field)  # reads an item without a call

    class _Record(tuple):
        """What every named tuple can do."""

        __slots__ = ()
        _fields = ()

        @classmethod
        def _make(cls, values):
            values = tuple(values)
            if len(values) != len(cls._fields):
                raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, got {len(values)} values")
            return tuple.__new__(cls, values)

        def _replace(self, /, **changes):
            made = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"{type(self).__name__} has no fields {sorted(changes)}")
            return made

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            told = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({told})"

        def __getnewargs__(self):
            return tuple(self)

    class _Maker(type):
        """Makes a named tuple of a class body: an annotation is a field, a value beside it its default."""

        def __new__(cls, name, bases, body):
            annotations = body.get("__annotations__", {})
            fields = tuple(annotations)
            defaults = {field: body[field] for field in fields if field in body}
            if tuple(defaults) != fields[len(fields) - len(defaults) :]:
                raise TypeError(f"{name}: a field without a default follows one that has a default")
            made = {
                **body,
                **{field: _Field(at, f"Field {at}") for at, field in enumerate(fields)},
                "__slots__": (),
                "__match_args__": fields,
                "__new__": _constructor(name, annotations, tuple(defaults.values())),
                "_fields": fields,
                "_field_defaults": defaults,
            }
            return type(name, (_Record,), made)

    class _Base:
        """In a list of bases, the type whose maker makes named tuples."""

        def __mro_entries__(self, bases):
            return (_made,)

    def _constructor(name, annotations, defaults):
        shared = _shared(len(annotations)).__code__
        named = {"co_name": "__new__", "co_qualname": f"{name}.__new__"}
        code = shared.replace(co_varnames=("_cls", *annotations), **named)
        made = FunctionType(code, {"_new": tuple.__new__, "__builtins__": {}}, "__new__", defaults)
        made.__annotations__ = annotations
        return made

    @cache
    def _shared(count):
        """The constructor of so many fields, whatever they are called."""
        names = ", ".join(f"_{at}" for at in range(count))
        return eval(f"lambda _cls, {names}: _new(_cls, ({names}{',' if count == 1 else ''}))")

    _made = type.__new__(_Maker, "NamedTuple", (), {})
    NamedTuple = _Base()
