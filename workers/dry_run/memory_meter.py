"""Meters device memory by operator while a step runs on fake tensors: how much is held, at most by phase, and by what.

Each storage counts from the operator that made it until it is freed, at its size when it was made or resized, rounded up to 512 bytes
as CUDA's caching allocator does.
"""

import sys
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

import torch
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_iter

from ...strategies.dispatch_mode import DispatchMode
from .even_routing import value_of
from .fake_streams import Event, Stream
from .fake_tensors import FakeTensor, unset_fake_temporarily
from .report import KINDS, HostWait, Kind, Phase
from .vector_clocks import host

#: What the caching allocator hands out is a multiple of this.
_BLOCK: Final = 512
#: The package's folder: lines in its `strategies` and `workers` are ours.
_ROOT: Final = str(Path(__file__).parents[2])
_OURS: Final = tuple(f"{_ROOT}/{folder}/" for folder in ("strategies", "workers"))
_SELF: Final = f"{_ROOT}/workers/dry_run/"
#: Where DTensor finds the shapes of whole tensors, which no device holds: torch runs an operator on fake ones, once for each shape.
_WHOLE_SHAPES: Final = "/torch/distributed/tensor/_sharding_prop.py"


@dataclass(frozen=True)
class Site:
    """A place of the code at which the device's memory grows."""

    phase: Phase
    line: str
    operator: str
    backward: bool


@dataclass(frozen=True)
class Reading:
    """How many bytes the device holds, and of what: bytes by kind in the order of `KINDS`."""

    bytes: int
    by_kind: tuple[int, ...]


@dataclass
class Use:
    """The readings at one site in one step. Between the first and the last one, memory rises or falls from block to block."""

    first: Reading
    last: Reading
    most: Reading


@dataclass
class Meter(DispatchMode):
    """Counts while it is entered. `phase` says what runs, `known` which storages hold what from step to step."""

    phase: Phase = "build"
    known: Mapping[int, Kind] = field(default_factory=dict)
    sites: dict[Site, Use] = field(default_factory=dict)
    syncs: Counter[tuple[str, HostWait]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__()
        self._now: Counter[str] = Counter()
        self._by_kind: Counter[Kind] = Counter()
        self._held: dict[int, tuple[int, Kind]] = {}
        self._host_peak = 0
        self._host: dict[int, int] = {}

    @property
    def device_bytes(self) -> int:
        return self._now["cuda"]

    @property
    def host_bytes(self) -> int:
        """The most that host tensors held."""
        return self._host_peak

    def begin_step(self, known: Mapping[int, Kind]) -> None:
        """Forget the readings and counts so far; what is held stays."""
        self.sites, self.known = {}, known
        self.syncs.clear()
        self._by_kind.clear()
        for key, (held, kind) in self._held.items():
            self._held[key] = (held, known.get(key, kind))
            self._by_kind[self._held[key][1]] += held

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it comes again, as plain tensors
        name = func.name()
        if name == "aten::_local_scalar_dense" and isinstance(args[0], FakeTensor):
            value = self.read(args[0])
            while isinstance(value, list):  # of one number
                (value,) = value
            return value
        self._note_copy(name, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        for tensor in tree_iter(result):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor, name)
        return result

    def read(self, tensor: torch.Tensor) -> Any:
        """What the host gets for a fake tensor, as a number or nested lists: its values where they are known, else ones.

        They are known of even counts (`even_routing.py`), and of what a module's code writes out, such as `torch.tensor(4)`.
        """
        if tensor.device.type == "cuda":
            self._waits_for_stream("read from device")
        carried = value_of(tensor)
        known = tensor.constant if carried is None and isinstance(tensor, FakeTensor) else carried
        with unset_fake_temporarily():
            values = torch.ones(tensor.shape, dtype=tensor.dtype) if known is None else known
            return values.numpy().tolist() if values.dtype != torch.bfloat16 else values.float().numpy().tolist()

    @contextmanager
    def metering(self) -> Iterator["Meter"]:
        """Enter this meter, and see what does not pass through a dispatch mode: reads of tensors, resized storages, synchronisations."""
        fake, storage = cast(Any, FakeTensor), cast(Any, torch.UntypedStorage)
        resize = storage.resize_

        def resized(self_: torch.UntypedStorage, size: int) -> Any:
            result = resize(self_, size)
            if self_._cdata in self._held:  # the storages of parameters that FSDP2 gathers and frees
                self._see_on_device(self_, "resize_")
            return result

        storage.resize_ = resized
        fake.tolist = lambda tensor: self.read(tensor)  # noqa: PLW0108  (a method is no function of a class)
        try:
            with self, self._synchronisations():
                yield self
        finally:
            storage.resize_ = resize
            del fake.tolist

    @contextmanager
    def _synchronisations(self) -> Iterator[None]:
        """Count where the host waits for an event, a stream or the device."""
        events, streams, cuda = cast(Any, Event), cast(Any, Stream), cast(Any, torch.cuda)
        of_event, of_stream, of_device = events.synchronize, streams.synchronize, cuda.synchronize

        def event(self_: Event) -> None:
            if not all(host().comes_after(actor, time) for actor, time in self_.clock.items()):
                self.syncs[_line() or "", "event"] += 1
            of_event(self_)

        def stream(self_: Stream) -> None:
            self.syncs[_line() or "", "stream"] += 1
            of_stream(self_)

        def everything(device: Any = None) -> None:
            self.syncs[_line() or "", "device"] += 1
            of_device(device)

        events.synchronize, streams.synchronize, cuda.synchronize = event, stream, everything
        try:
            yield
        finally:
            events.synchronize, streams.synchronize, cuda.synchronize = of_event, of_stream, of_device

    def _waits_for_stream(self, what: HostWait) -> None:
        """Count a wait for all that the current stream has."""
        self.syncs[_line() or "", what] += 1
        host().follow(cast(Stream, torch.cuda.current_stream()).clock)

    def _note_copy(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Count a copy between host and device for which the host waits."""
        if name.startswith("aten::_to_copy"):
            source, target, waits = args[0].device, kwargs.get("device"), not kwargs.get("non_blocking")
        elif name.startswith("aten::copy_"):
            source, target = args[1].device, args[0].device
            waits = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        else:
            return
        if target is not None and waits and {source.type, target.type} == {"cpu", "cuda"}:
            self._waits_for_stream("copy to device" if target.type == "cuda" else "copy to host")

    def _see(self, tensor: torch.Tensor, name: str) -> None:
        storage, device = tensor.untyped_storage(), tensor.device.type
        key = storage._cdata
        if device == "cuda":
            self._see_on_device(storage, name)
        elif device == "cpu" and key not in self._host:
            self._host[key] = _rounded(storage.nbytes())
            self._count("cpu", self._host[key])
            weakref.finalize(storage, self._drop_on_host, key)

    def _see_on_device(self, storage: torch.UntypedStorage, name: str) -> None:
        key, size = storage._cdata, _rounded(storage.nbytes())
        held, kind = self._held.get(key, (None, None))
        if held == size or (line := _line()) is None:
            return
        if held is None:
            weakref.finalize(storage, self._drop, key)
        backward = torch._C._current_graph_task_id() != -1
        kind = kind or self.known.get(key) or _kind(self.phase, line, backward)
        self._held[key] = (size, kind)
        self._count("cuda", size - (held or 0))
        self._by_kind[kind] += size - (held or 0)
        reading = Reading(self._now["cuda"], tuple(self._by_kind[kind] for kind in KINDS))
        use = self.sites.setdefault(Site(self.phase, line, name, backward), Use(reading, reading, reading))
        use.last, use.most = reading, max(use.most, reading, key=lambda one: one.bytes)

    def _count(self, device: str, size: int) -> None:
        self._now[device] += size
        if device == "cpu":
            self._host_peak = max(self._host_peak, self._now["cpu"])

    def _drop(self, key: int) -> None:
        held, kind = self._held.pop(key)
        self._now["cuda"] -= held
        self._by_kind[kind] -= held

    def _drop_on_host(self, key: int) -> None:
        self._now["cpu"] -= self._host.pop(key)


def _kind(phase: Phase, line: str, backward: bool) -> Kind:
    """What a storage of this step holds, by the line that made it."""
    if line.startswith("strategies/loss.py"):
        return "logits"
    if line.startswith("strategies/chunked_loss.py"):  # computes gradients in the forward pass
        return "gradients"
    if line.startswith("strategies/data_parallel/"):
        return "gradients" if backward or phase != "forward and backward" else "buffers"
    if phase == "forward and backward":
        return "gradients" if backward else "activations"
    return "buffers"


def _rounded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _line() -> str | None:
    """The innermost line of Shardyard's code on the stack, relative to the package; empty if there is none, None inside `_WHOLE_SHAPES`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_OURS) and not file.startswith(_SELF):
            return f"{file.removeprefix(_ROOT + '/')}:{frame.f_lineno}"
        if file.endswith(_WHOLE_SHAPES):
            return None
        frame = frame.f_back
    return ""
