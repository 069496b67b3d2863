"""Meters device memory by operator while a step runs on fake tensors: how much is held, at most by phase, and by what.

Each storage counts from the operator that made it until it is freed, at its size when it was made or resized, rounded up to 512 bytes
as CUDA's caching allocator does.
"""

import sys
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

import torch
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_iter

from ...strategies.dispatch_mode import DispatchMode
from .report import HostSync, Phase, PhasePeak

#: What the caching allocator hands out is a multiple of this.
_BLOCK: Final = 512
#: The package's folder: lines in its `strategies` and `workers` are ours.
_ROOT: Final = str(Path(__file__).parents[2])
_OURS: Final = tuple(f"{_ROOT}/{folder}/" for folder in ("strategies", "workers"))
_SELF: Final = f"{_ROOT}/workers/dry_run/"


@dataclass(frozen=True)
class Held:
    """One storage on the device: its size, and the phase and line that made it."""

    key: int
    bytes: int
    phase: Phase
    line: str
    backward: bool


@dataclass
class Meter(DispatchMode):
    """Counts while it is entered; `phase` says what runs. Give it the number of an operator in `stop_at` to see what is held there."""

    phase: Phase = "build"
    stop_at: int | None = None
    operators: int = 0
    peaks: dict[Phase, PhasePeak] = field(default_factory=dict)
    peak: int = 0
    peak_at: int = 0  # the operator's number
    at_stop: tuple[Held, ...] = ()
    syncs: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__()
        self._now: Counter[str] = Counter()
        self._held: dict[int, Held] = {}
        self._host_peak = 0
        self._host: dict[int, int] = {}

    @property
    def device_bytes(self) -> int:
        return self._now["cuda"]

    @property
    def host_bytes(self) -> int:
        """The most that host tensors held."""
        return self._host_peak

    def begin_step(self, stop_at: int | None = None) -> None:
        """Forget the peaks and counts so far; what is held stays."""
        self.operators, self.peak, self.peak_at, self.peaks, self.stop_at = 0, 0, 0, {}, stop_at
        self.syncs.clear()

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
        if name == "aten::_local_scalar_dense":
            return self.read(args[0])
        self._note_copy(name, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        self.operators += 1
        for tensor in tree_iter(result):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor, name)
        if self.operators == self.stop_at:
            self.at_stop = tuple(self._held.values())
        return result

    def read(self, tensor: torch.Tensor) -> float | int | bool:
        """The value that the host gets for a fake number: 1."""
        if tensor.device.type == "cuda":
            self.syncs[_line(), "read from device"] += 1
        if tensor.dtype == torch.bool:
            return True
        return 1.0 if tensor.dtype.is_floating_point else 1

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
            self.syncs[_line(), "copy to device" if target.type == "cuda" else "copy to host"] += 1

    def _see(self, tensor: torch.Tensor, name: str) -> None:
        storage = tensor.untyped_storage()
        key, size, device = storage._cdata, -(-storage.nbytes() // _BLOCK) * _BLOCK, tensor.device.type
        if device == "cuda":
            self._see_on_device(storage, key, size, name)
        elif device == "cpu" and key not in self._host:
            self._host[key] = size
            self._count("cpu", size)
            weakref.finalize(storage, self._drop_on_host, key)

    def _see_on_device(self, storage: torch.UntypedStorage, key: int, size: int, name: str) -> None:
        known = self._held.get(key)
        if known is not None and known.bytes == size:
            return
        if known is None:
            weakref.finalize(storage, self._drop, key)
        backward = torch._C._current_graph_task_id() != -1
        line = _line()
        self._held[key] = Held(key, size, self.phase, line, backward)
        self._count("cuda", size - (known.bytes if known else 0))
        now = self._now["cuda"]
        if self.phase not in self.peaks or now > self.peaks[self.phase].bytes:
            self.peaks[self.phase] = PhasePeak(self.phase, now, name, line)
        if now > self.peak:
            self.peak, self.peak_at = now, self.operators

    def _count(self, device: str, size: int) -> None:
        self._now[device] += size
        if device == "cpu":
            self._host_peak = max(self._host_peak, self._now["cpu"])

    def _drop(self, key: int) -> None:
        self._now["cuda"] -= self._held.pop(key).bytes

    def _drop_on_host(self, key: int) -> None:
        self._now["cpu"] -= self._host.pop(key)

    def host_syncs(self) -> tuple[HostSync, ...]:
        return tuple(HostSync(line, cast(Any, what), count) for (line, what), count in sorted(self.syncs.items()))


def _line() -> str:
    """The innermost line of Shardyard's code on the stack, relative to the package; empty if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_OURS) and not file.startswith(_SELF):
            return f"{file.removeprefix(_ROOT + '/')}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
