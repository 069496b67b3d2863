"""Recordings of a training thread by torch: its operators, with their times, shapes and memory; or the memory of a CUDA device.

A recording begins and ends on the training thread. Afterwards any thread may write it, but torch holds the interpreter's lock while it
writes operators (85 MB in 1.5 s), and the training thread waits for that.
"""

import pickle
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from torch.profiler import ProfilerActivity, profile

from ...strategies import torch_version
from ..messages.profile_request import Kind

#: Allocations and frees of a memory recording that are kept, the newest: some hundred megabytes of stacks.
MOST_ENTRIES: Final = 100_000


class NotRecorded(Exception):
    """The recording is not possible here. The message says why."""


class Recording(Protocol):
    """A recording that has begun."""

    def end(self) -> None:
        """Stop it, on the training thread."""

    def write(self, path: str) -> None:
        """Write what was recorded. Raises OSError."""


def begun(kind: Kind, device: torch.device) -> Recording:
    """Raises NotRecorded."""
    try:
        return Operators(device) if kind == "operators" else Memory(device)
    except RuntimeError as error:
        raise NotRecorded(f"torch refused it: {error}") from None


class Operators:
    """`torch.profiler`: a trace in Chrome's format, for <https://ui.perfetto.dev>."""

    def __init__(self, device: torch.device) -> None:
        if torch_version.tried() and torch._C._autograd._profiler_enabled():
            raise NotRecorded("a profiler of the training's own code runs, which would lose what it has")
        cuda = [ProfilerActivity.CUDA] if device.type == "cuda" else []
        self._profile = profile(activities=[ProfilerActivity.CPU, *cuda], record_shapes=True, profile_memory=True)
        self._profile.start()

    def end(self) -> None:
        self._profile.stop()

    def write(self, path: str) -> None:
        self._profile.export_chrome_trace(path)
        if not Path(path).exists():  # torch only prints why
            raise OSError(f"torch could not write {path}")


class Memory:
    """Allocations and frees with their stacks, as a pickle for <https://pytorch.org/memory_viz>."""

    def __init__(self, device: torch.device) -> None:
        if device.type != "cuda":
            raise NotRecorded(
                "memory is recorded on CUDA devices only; the kind operators has a CPU's allocations, too"
            )
        if not torch_version.tried():
            raise NotRecorded(f"memory is not recorded with torch {torch.__version__}, which was not tried")
        self._device, self._history = device, dict[str, Any]()
        torch.cuda.memory._record_memory_history(stacks="python", max_entries=MOST_ENTRIES, device=device)

    def end(self) -> None:
        self._history = torch.cuda.memory._snapshot(self._device)
        torch.cuda.memory._record_memory_history(enabled=None, device=self._device)

    def write(self, path: str) -> None:
        Path(path).write_bytes(pickle.dumps(self._history))
