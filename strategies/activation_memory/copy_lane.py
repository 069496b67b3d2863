"""A lane of copies between device and host: a side stream, ordered by events. The device is never synchronised as a whole.

If the device is a CPU there is no stream: work is done when it is given, and there is nothing to wait for.
"""

from collections.abc import Callable

import torch


class Done:
    """The end of work on a stream."""

    def __init__(self, event: "torch.cuda.Event | None") -> None:
        self._event = event

    def wait_on_host(self) -> None:
        """Let the host wait, for this work alone."""
        if self._event is not None:
            self._event.synchronize()

    def wait_on_device(self) -> None:
        """Let what the current stream gets from now on come after the work. The host does not wait."""
        if self._event is not None:
            torch.cuda.current_stream().wait_event(self._event)


def done_by_now(device: torch.device) -> Done:
    """The end of all that the current stream has so far."""
    return Done(torch.cuda.current_stream().record_event() if device.type == "cuda" else None)


class CopyLane:
    """Copies in one direction. Memory that it reads or writes must stay allocated until its `Done` was waited for."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def after_current(self) -> None:
        """Let the lane's next work come after all that the current stream has so far."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())

    def run(self, work: Callable[[], None]) -> Done:
        """Give `work` to the lane."""
        if self._stream is None:
            work()
            return Done(None)
        with torch.cuda.stream(self._stream):
            work()
            return Done(self._stream.record_event())


def host_like(tensor: torch.Tensor) -> torch.Tensor:
    """Memory on the host for a copy of `tensor`, pinned if it is on a GPU: only such copies do not block."""
    return torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda, requires_grad=False)
