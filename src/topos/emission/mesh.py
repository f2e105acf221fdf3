"""How a module is laid out over several devices: a mesh with named axes, and which axis cuts which source where.

A mesh of 4 devices `{"data": 2, "model": 2}` has its devices in row-major order. A source's sharding names for each of
its axes the mesh axis that it is cut along, several, or `None`; a source that is not named lies whole on every device.
How the values between lie is the engine's to infer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from topos.emission.sources import arguments
from topos.errors import EmissionError, KinshipError, restated
from topos.graph.spec import Spec
from topos.records import NamedTuple

Cuts = tuple[tuple[str, ...], ...]
"""For each axis of an array, the mesh axes that cut it, the outermost first."""


class Layout(NamedTuple):
    """A mesh and the cuts of sources by row; `is_shardy` says in which form the text has them."""

    axes: Mapping[str, int]
    cuts: Mapping[int, Cuts]
    is_shardy: bool = True

    @property
    def devices(self) -> int:
        """How many devices it is laid out over."""
        return prod(self.axes.values())

    def header(self) -> list[str]:
        """The line that declares the mesh."""
        declared = ", ".join(f'"{name}"={extent}' for name, extent in self.axes.items())
        return [f"  sdy.mesh @mesh = <[{declared}]>"] if self.is_shardy else []

    def attribute(self, cuts: Cuts) -> str:
        """The attribute of an argument or a result that is cut so."""
        if not self.is_shardy:
            return f'mhlo.sharding = "{self._tiles(cuts)}"'
        parts = ", ".join("{" + ", ".join(f'"{name}"' for name in names) + "}" for names in cuts)
        return f"sdy.sharding = #sdy.sharding<@mesh, [{parts}]>"

    def attribute_of(self, row: int | None, shape: tuple[int, ...]) -> str:
        """That of a source, which is whole everywhere where nobody said otherwise; of none, the latter."""
        whole: Cuts = ((),) * len(shape)
        return self.attribute(whole if row is None else self.cuts.get(row, whole))

    def _tiles(self, cuts: Cuts) -> str:
        """The same as a grid of tiles over device numbers."""
        counts = [prod(self.axes[name] for name in names) for names in cuts]
        if prod(counts) == 1:
            return "{replicated}"
        used = [name for names in cuts for name in names]
        order = [*used, *(name for name in self.axes if name not in used)]
        copies = self.devices // prod(counts)
        tiles = ",".join(map(str, [*counts, copies] if copies > 1 else counts))
        rest = " last_tile_dim_replicate" if copies > 1 else ""
        places = [list(self.axes).index(name) for name in order]
        if places == sorted(places):
            return f"{{devices=[{tiles}]<=[{self.devices}]{rest}}}"
        extents, turned = ",".join(map(str, self.axes.values())), ",".join(map(str, places))
        return f"{{devices=[{tiles}]<=[{extents}]T({turned}){rest}}}"


def layout(spec: Spec, length: int, mesh: Any, shardings: Any, is_shardy: bool = True) -> Layout | None:
    """What a caller asks for, checked; `None` where no mesh is named.

    Raises `EmissionError` that names the source, the mesh axis and the extents which do not fit.
    """
    if mesh is None:
        if shardings:
            raise EmissionError("emit_stablehlo: shardings name axes of a mesh; give mesh={name: extent}")
        return None
    axes = _axes(mesh)
    if shardings is not None and not isinstance(shardings, Mapping):
        raise EmissionError(
            f"emit_stablehlo: shardings wants a mapping from symbols or names to axes, got {type(shardings).__name__}"
        )
    given = {row for row, _ in arguments(spec, range(length))}
    cuts: dict[int, Cuts] = {}
    for key, sharding in (shardings or {}).items():
        row = _row(spec, length, key)
        where = f"emit_stablehlo: shardings: {spec.label(row)}"
        if row not in given:
            raise EmissionError(f"{where} is no parameter and no input")
        if row in cuts:
            raise EmissionError(f"{where} is named twice")
        cuts[row] = _cuts(where, extents(spec, row), axes, sharding)
    return Layout(axes, cuts, is_shardy)


def extents(spec: Spec, row: int) -> tuple[int, ...]:
    """The shape of an argument: a source's own, of a selection that of its ids."""
    ids = spec.ids.get(row)
    return tuple(spec.rows[row].shape if ids is None else ids.shape)


def _axes(mesh: Any) -> dict[str, int]:
    if not isinstance(mesh, Mapping) or not mesh:
        raise EmissionError(f"emit_stablehlo: mesh wants a mapping from axis names to extents, got {mesh!r}")
    for name, extent in mesh.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise EmissionError(f"emit_stablehlo: a mesh axis is named by a word, got {name!r}")
        if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
            raise EmissionError(f"emit_stablehlo: mesh axis {name!r} wants an extent of at least 1, got {extent!r}")
    return dict(mesh)


def _row(spec: Spec, length: int, key: Any) -> int:
    if isinstance(key, str):
        if spec.by_name.get(key, length) >= length:
            raise EmissionError(f"emit_stablehlo: shardings: no node is named {key!r}")
        return spec.by_name[key]
    try:
        return spec.index_of(key, "emit_stablehlo: shardings", length)
    except KinshipError as error:
        raise restated(error, EmissionError, str(error)) from None


def _cuts(where: str, shape: tuple[int, ...], axes: Mapping[str, int], sharding: Any) -> Cuts:
    """A sharding, checked against a shape and a mesh."""
    if isinstance(sharding, str) or not isinstance(sharding, Iterable):
        raise EmissionError(f"{where}: wants a tuple with a mesh axis or None for each axis, got {sharding!r}")
    cuts = tuple(_names(where, part) for part in sharding)
    if len(cuts) != len(shape):
        raise EmissionError(f"{where}: wants {len(shape)} entries, one for each axis, got {len(cuts)}")
    used: list[str] = []
    for axis, (extent, names) in enumerate(zip(shape, cuts, strict=True)):
        for name in names:
            if name not in axes:
                raise EmissionError(f"{where}: no mesh axis is called {name!r}; there are {_told(axes)}")
            if name in used:
                raise EmissionError(f"{where}: mesh axis {name!r} cuts it twice")
            used.append(name)
        if extent % prod(axes[name] for name in names):
            by = " x ".join(f"{name}={axes[name]}" for name in names)
            raise EmissionError(f"{where}: axis {axis} of extent {extent} is not divisible by mesh axis {by}")
    return cuts


def _names(where: str, part: Any) -> tuple[str, ...]:
    names = () if part is None else (part,) if isinstance(part, str) else part
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise EmissionError(f"{where}: wants a mesh axis, a tuple of them or None for each axis, got {part!r}")
    return names


def _told(axes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={extent}" for name, extent in axes.items())
