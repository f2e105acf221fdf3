"""The only file that calls jax: its devices, what is compiled for them, and arrays in and out. Written for jax 0.10.

jax is imported at the first call. Its settings are left as they are: nothing here hangs on the one for 64-bit numbers,
which otherwise makes an `f32` of an `f64`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from topos.backend.stablehlo import NOT_INSTALLED, jax_version
from topos.element.element import Array
from topos.errors import BackendUnavailable, EngineError, SettingError
from topos.records import NamedTuple


def _module(name: str) -> Any:
    """A module of jax. Raises `BackendUnavailable` where there is none."""
    try:
        return import_module(name)
    except ImportError as error:
        reason = NOT_INSTALLED if jax_version() is None else f"setup failed: {error}"
        raise BackendUnavailable(f"xla: {reason}") from None


class told:  # noqa: N801 - a context manager, and on the way of every call
    """What XLA raises inside is raised as an `EngineError` that says what it was asked to do."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and isinstance(error, _module("jax").errors.JaxRuntimeError):
            raise EngineError(f"xla: {self._what}: {str(error).strip()[:2000]}") from None


# devices
class Processes(NamedTuple):
    """Which of how many processes this one is: `rank` counts from 0."""

    rank: int
    total: int


def processes() -> Processes:
    """Which of how many processes of a launched program this one is; by itself, `Processes(rank=0, total=1)`."""
    jax = _module("jax")
    if not jax.distributed.is_initialized():  # to ask for more would start it
        return Processes(0, 1)
    return Processes(jax.process_index(), jax.process_count())


def virtual_devices(count: int) -> None:
    """Divides this machine's processor into so many devices of XLA. Said before anything runs there.

    Raises `SettingError` where jax has already started with another number.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise SettingError(f"virtual_devices: wants a whole number of at least 1, got {count!r}")
    jax = _module("jax")
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # it has started
        found = len(jax.local_devices(backend="cpu"))
        if found != count:
            raise SettingError(
                f"virtual_devices: too late for {count}: jax has started with {found}; call it before anything is "
                f"compiled or computed, or set XLA_FLAGS=--xla_force_host_platform_device_count={count}"
            ) from None


class Devices(NamedTuple):
    """The devices of a program, in the order of its mesh, which has `axes`; of a program without one, one device."""

    members: tuple[Any, ...]
    axes: Mapping[str, int] | None

    @property
    def facts(self) -> tuple[str, ...]:
        """All that decides what a compiled form is good for."""
        jax, lib, first = _module("jax"), _module("jaxlib"), self.members[0]
        client = first.client
        told = [client.platform, client.platform_version, first.device_kind, jax.__version__, lib.__version__]
        return *told, repr(tuple(processes())), repr(self.axes), repr([device.id for device in self.members])

    @property
    def is_shared_processor(self) -> bool:
        """Whether several of them share the threads of one processor: then programs run one after the other."""
        return len(self.members) > 1 and bool(self.members[0].client.platform == "cpu")

    def __str__(self) -> str:
        platform, count = self.members[0].client.platform, len(self.members)
        if self.axes is None:
            return str(platform)
        spelled = ", ".join(f"{name}={extent}" for name, extent in self.axes.items())
        return f"{count} devices of {platform} ({spelled})"


def devices(platform: str | None, axes: Mapping[str, int] | None) -> Devices:
    """Devices for a mesh, or one device. Raises `BackendUnavailable` where there are too few."""
    jax = _module("jax")
    try:
        found = tuple(jax.devices(platform) if axes is not None else jax.local_devices(backend=platform))
    except RuntimeError as error:
        raise BackendUnavailable(f"xla: {str(error).strip().partition(chr(10))[0]}") from None
    wanted = int(np.prod(list(axes.values()))) if axes is not None else 1
    where = f"{found[0].client.platform} has {len(found)}"
    if len(found) < wanted:
        virtual = found[0].client.platform == "cpu" and processes().total == 1
        hint = f"; topos.emission.xla.virtual_devices({wanted}), said first, makes so many" if virtual else ""
        raise BackendUnavailable(f"xla: the mesh wants {wanted} devices, {where}{hint}")
    if axes is not None and processes().total > 1 and len(found) != wanted:
        raise BackendUnavailable(
            f"xla: a mesh over {processes().total} processes takes all devices, {where}, not {wanted}"
        )
    return Devices(found[:wanted], axes)


# programs
class Loaded(NamedTuple):
    """A program that can run: what jax calls a loaded executable."""

    executable: Any

    def run(self, arrays: Sequence[Any]) -> list[list[Any]]:
        """Its results, each as its parts on the devices of this process. What is donated is gone afterwards."""
        if any(array.is_deleted() for array in arrays):  # jaxlib 0.10 ends the process
            raise EngineError("xla: run: an argument was donated to an earlier run")
        with told("run"):
            answered = self.executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
            return [list(parts) for parts in answered]

    def serialized(self) -> bytes | None:
        """As bytes that `loaded` takes; `None` for a platform that cannot."""
        try:
            return bytes(self.executable.serialize())
        except Exception:
            return None


def compiled(text: str, devices: Devices, is_shardy: bool) -> Loaded:
    """Compiles a module. Raises `EngineError` with what XLA says of it."""
    client, listed, options = _circumstances(devices, is_shardy)
    with told("compile"):
        return Loaded(client.compile_and_load(text, listed, options))


def loaded(content: bytes, devices: Devices, is_shardy: bool) -> Loaded | None:
    """What `serialized` gave; `None` where this XLA takes it no more."""
    client, listed, options = _circumstances(devices, is_shardy)
    try:
        return Loaded(client.deserialize_executable(content, listed, options))
    except Exception:
        return None


def _circumstances(devices: Devices, is_shardy: bool) -> tuple[Any, Any, Any]:
    xla = _module("jaxlib.xla_client")
    options = xla.CompileOptions()
    build, members = options.executable_build_options, devices.members
    if devices.axes is not None:
        options.num_partitions = build.num_partitions = len(members)
        build.use_spmd_partitioning, build.use_shardy_partitioner = True, is_shardy
    # Narrow numbers are rounded where the text says so.
    options.env_option_overrides = [("xla_allow_excess_precision", False)]
    build.device_assignment = xla.DeviceAssignment.create(np.array([[device.id for device in members]]))
    return members[0].client, xla.DeviceList(members), options


# arrays
class Place:
    """Where arrays of one shape lie: whole on one device, or cut along mesh axes over several."""

    def __init__(self, devices: Devices, shape: tuple[int, ...], dtype: Any, cuts: Sequence[tuple[str, ...]]) -> None:
        jax, members = _module("jax"), devices.members
        self.shape, self.dtype = shape, np.dtype(dtype)
        self._put = _module("jaxlib._jax").batched_device_put
        self._kind = jax.core.ShapedArray(shape, self.dtype)
        if devices.axes is None:
            self._sharding = jax.sharding.SingleDeviceSharding(members[0])
        else:
            mesh = jax.sharding.Mesh(np.array(members).reshape(tuple(devices.axes.values())), tuple(devices.axes))
            self._sharding = jax.sharding.NamedSharding(
                mesh, jax.sharding.PartitionSpec(*(cut or None for cut in cuts))
            )
        parts = self._sharding.addressable_devices_indices_map(shape)
        self._devices, self._parts = list(parts), list(parts.values())
        self._join = partial(jax.make_array_from_single_device_arrays, shape, self._sharding)

    @property
    def is_whole(self) -> bool:
        """Whether this process sees all of such an array."""
        return bool(self._sharding.is_fully_addressable or self._sharding.is_fully_replicated)

    def put(self, array: Array) -> Any:
        """An array there. Memory that begins on a line of 64 bytes is taken as it is by a processor, not copied."""
        parts = [np.ascontiguousarray(array[part]) if part else array for part in self._parts]
        with told("put"):
            return self._put(self._kind, self._sharding, parts, self._devices, enable_x64=True)

    def joined(self, parts: list[Any]) -> Any:
        """The parts of a result as one array."""
        return parts[0] if len(self._devices) == 1 and self._sharding.is_fully_addressable else self._join(parts)


def fetched(array: Any) -> Array:
    """The numbers of an array once they are computed; of one processor, its own memory, read-only."""
    with told("run"):
        return np.asarray(array)


def wait(arrays: Sequence[Any]) -> None:
    """Until they are computed."""
    with told("run"):
        _module("jax").block_until_ready(arrays)


def is_gone(array: Any) -> bool:
    """Whether an array was donated."""
    return bool(array.is_deleted())


# several processes
def join(coordinator: str, rank: int, count: int, address: str | None, wait_s: int) -> None:
    """Makes this process one of several, before anything runs on XLA. `address` is where it listens to the others."""
    jax, lib = _module("jax"), _module("jaxlib._jax")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if address is not None:  # by itself, gloo listens where the name of the host leads
        lib.make_gloo_tcp_collectives = partial(lib.make_gloo_tcp_collectives, hostname=address)
    times = {"initialization_timeout": wait_s, "heartbeat_timeout_seconds": wait_s, "shutdown_timeout_seconds": wait_s}
    jax.distributed.initialize(coordinator, count, rank, coordinator_bind_address=coordinator, **times)
    jax.devices()


def leave() -> None:
    """Ends what `join` began, when all have come here."""
    _module("jax").distributed.shutdown()
