"""Clocks that take moments as the device passes them, and know afterwards how long it was between two."""

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """Taking a moment waits for nothing; asking for the seconds may."""

    def now(self) -> Any: ...

    def seconds(self, start: Any, end: Any) -> float: ...


class HostClock:
    """The time on the host, which waits for each operation."""

    def now(self) -> float:
        return time.perf_counter()

    def seconds(self, start: float, end: float) -> float:
        return end - start


class CudaClock:
    """Events on the stream that is current when the clock is made: taking one waits for nothing.

    Within other streams too, such as those in which torch's `fully_shard` sends: between events of two streams there is no time.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.current_stream(device)

    def now(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000  # milliseconds


def clock_of(device: torch.device) -> Clock:
    return CudaClock(device) if device.type == "cuda" else HostClock()
