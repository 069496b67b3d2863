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
    """Events on the current stream: taking one waits for nothing."""

    def now(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000  # milliseconds


def clock_of(device: torch.device) -> Clock:
    return CudaClock() if device.type == "cuda" else HostClock()
