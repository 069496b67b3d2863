"""One clock over all ranks: how far each rank's is from the first one's, by messages there and back (Cristian, 1989).

    offset = T − (sent + received) / 2        error ≤ (received − sent) / 2

with T the first rank's time when it answers: it lies somewhere between. Of several round trips the shortest counts. Clocks that run at
different speeds are measured at the begin and at the end of what is timed, and in between a straight line is drawn. The messages are CPU
tensors, by gloo also where devices have NCCL. A trace begins and ends with it; nothing else pays.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
import torch.distributed as dist

#: Round trips per rank. On a busy machine a trip takes long; one of these probably does not.
TRIPS: Final = 8


@dataclass(frozen=True)
class Offset:
    """Seconds to add to this rank's clock for the common one, measured at `at` of its own; it may be wrong by `error_s`."""

    at: float
    seconds: float
    error_s: float


@dataclass(frozen=True)
class Aligned:
    """A rank's clock between two measurements."""

    first: Offset
    last: Offset

    def common(self, moment: float) -> float:
        """The common clock's time at `moment` of this rank's."""
        span = self.last.at - self.first.at
        share = (moment - self.first.at) / span if span > 0 else 0.0
        return moment + self.first.seconds + share * (self.last.seconds - self.first.seconds)

    @property
    def error_s(self) -> float:
        """By how much it may be wrong at either end."""
        return max(self.first.error_s, self.last.error_s)


def offset_to_first(epoch: float, now: Callable[[], float] = time.perf_counter) -> Offset:
    """This rank's offset to `epoch` + the first rank's `now()`. Collective over the world; `epoch` counts on the first rank alone."""
    at = now()
    if dist.get_rank() == 0:
        _answer(epoch, now)
        return Offset(at, epoch, 0.0)
    trips = [_trip(now) for _ in range(TRIPS)]
    return min(trips, key=lambda trip: trip.error_s)


def _answer(epoch: float, now: Callable[[], float]) -> None:
    """The first rank's part: one rank after the other, so that none waits behind another's message."""
    asked = torch.zeros(1)
    for rank in range(1, dist.get_world_size()):
        for _ in range(TRIPS):
            dist.recv(asked, src=rank)
            dist.send(torch.tensor([epoch + now()], dtype=torch.float64), dst=rank)


def _trip(now: Callable[[], float]) -> Offset:
    time_of_first = torch.zeros(1, dtype=torch.float64)
    sent = now()
    dist.send(torch.zeros(1), dst=0)
    dist.recv(time_of_first, src=0)
    received = now()
    return Offset(received, time_of_first.item() - (sent + received) / 2, (received - sent) / 2)
