"""Reads one batch ahead on a thread of its own. A batch that was read ahead counts as read only when it is taken.

The thread starts with the first batch that is read ahead, so that no process is forked while it runs, and ends with `close`.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from ...strategies.fields import Inputs
from ...strategies.thread_device import use_device

#: Token numbers of inputs and targets, each [rows, positions]; or the fields and numbers of samples of the user's own source.
Pair = tuple[Inputs, torch.Tensor]


class ReadAhead:
    """`read(first)` returns the batch that begins with the sample `first`. For a CUDA `device` batches are in pinned memory."""

    def __init__(self, read: Callable[[int], Pair], device: torch.device) -> None:
        self._read, self._device = read, device
        self._thread: ThreadPoolExecutor | None = None
        self._next: tuple[int, Future[Pair]] | None = None

    def take(self, first: int) -> Pair:
        """The batch that begins with `first`, read now if it was not read ahead. Raises what reading it raises."""
        if self._next is None or self._next[0] != first:
            return self._pinned(first)
        (_, coming), self._next = self._next, None
        return coming.result()

    def begin(self, first: int) -> None:
        """Start to read the batch that begins with `first`, in the place of any other."""
        if self._next is not None and self._next[0] == first:
            return
        self._drop()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "read-ahead", initializer=use_device, initargs=(self._device,))
        self._next = (first, self._thread.submit(self._pinned, first))

    def close(self, *, wait: bool = True) -> None:
        """Drop what was read ahead, and end the thread: once the batch that it reads is there, for which only `wait` waits."""
        self._drop()
        if self._thread is not None:
            self._thread.shutdown(wait)
            self._thread = None

    def _drop(self) -> None:
        if self._next is not None:
            self._next[1].cancel()
            self._next = None

    def _pinned(self, first: int) -> Pair:
        inputs, targets = self._read(first)
        return (inputs.pin_memory(), targets.pin_memory()) if self._device.type == "cuda" else (inputs, targets)
