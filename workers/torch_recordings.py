"""What torch records of the process that it runs in: operators, with their times, shapes and memory; or the memory of CUDA devices.

A recording of operators begins and ends on one thread, and has that thread's operators. Afterwards any thread may write it, but torch
holds the interpreter's lock while it writes (85 MB in 1.5 s), and the other threads wait for that. The process must not end before it:
torch crashes then. A recording of memory has that of all threads.

Needs torch and the standard library, of Python 3.8 or newer: users' own interpreters run this file, too.
"""

from __future__ import annotations

import functools
import pickle
import threading
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.autograd import profiler
from torch.profiler import ProfilerActivity, profile

#: Allocations and frees of a memory recording that are kept, the newest: some hundred megabytes of stacks.
MOST_ENTRIES = 100_000
#: Functions of torch's profiler that begin one.
BEGINNINGS = ("_prepare_profiler", "_enable_profiler")


class NotRecorded(Exception):
    """The recording is not possible here. The message says why."""


class Recording(Protocol):
    """A recording that has begun."""

    def end(self) -> None:
        """Stop it, on the thread that began it."""

    def write(self, path: str) -> None:
        """Write what was recorded. Raises OSError."""


def begun(kind: str, device: str) -> Recording:
    """A recording of `kind`, `operators` or `memory`, of a process that computes on a device of this type. Raises NotRecorded."""
    try:
        return Operators(device) if kind == "operators" else Memory(device)
    except (RuntimeError, AttributeError, TypeError) as error:  # also a version of torch with other private functions
        raise NotRecorded(f"torch refused it: {error}") from None


class Operators:
    """`torch.profiler`: a trace in Chrome's format, for <https://ui.perfetto.dev>."""

    def __init__(self, device: str) -> None:
        if torch._C._autograd._profiler_enabled():
            raise NotRecorded("a profiler of the job's own code runs, which would lose what it has")
        cuda = [ProfilerActivity.CUDA] if device == "cuda" else []
        self._thread = threading.get_ident()
        self._runs, self._gave_way = True, False
        self._profile = profile(activities=[ProfilerActivity.CPU, *cuda], record_shapes=True, profile_memory=True)
        self._profile.start()
        self._usual = {name: getattr(profiler, name) for name in BEGINNINGS if hasattr(profiler, name)}
        for name, usual in self._usual.items():
            setattr(profiler, name, functools.partial(self._begin_other, usual))

    def end(self) -> None:
        if self._runs:
            self._runs = False
            for name, usual in self._usual.items():
                setattr(profiler, name, usual)
            self._profile.stop()

    def write(self, path: str) -> None:
        if self._gave_way:
            raise OSError("a profiler of the job's own code began meanwhile")
        self._profile.export_chrome_trace(path)
        if not Path(path).exists():  # torch only prints why
            raise OSError(f"torch could not write {path}")

    def _begin_other(self, usual: Any, *args: Any, **kwargs: Any) -> Any:
        """Make way for a profiler of the job's own code, which versions of torch refuse while this one runs."""
        if threading.get_ident() == self._thread:
            self._gave_way = True
            self.end()
        return usual(*args, **kwargs)


class Memory:
    """Allocations and frees with their stacks, as a pickle for <https://pytorch.org/memory_viz>."""

    def __init__(self, device: str) -> None:
        if device != "cuda":
            raise NotRecorded(
                "memory is recorded on CUDA devices only; the kind operators has a CPU's allocations, too"
            )
        if torch._C._cuda_isHistoryEnabled():
            raise NotRecorded("the job's own code records its memory, and would lose what it has")
        self._history: Any = None
        torch.cuda.memory._record_memory_history(stacks="python", max_entries=MOST_ENTRIES)

    def end(self) -> None:
        try:
            self._history = torch.cuda.memory._snapshot()
        finally:
            torch.cuda.memory._record_memory_history(enabled=None)

    def write(self, path: str) -> None:
        Path(path).write_bytes(pickle.dumps(self._history))
