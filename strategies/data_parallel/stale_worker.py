"""A worker with a clock of its own: it pushes its gradients and pulls values without waiting for the others.

What it computes with may miss pushes of other workers (`clocks.py` says how many). Gradients leave during the backward pass, bucket by
bucket. A request follows them, with the factor that clips them, which needs the norm of all: only then do they take effect. Pulling
overlaps with the next forward pass.

Traffic per step: Ψ gradients and a request to each server, then another request to each, and Ψ values. The first server answers before
its values whether workers meet. The others learn that from the request.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import torch
from torch import nn

from ..collectives import receive, send
from ..comm_overlap import Overlap
from ..grad_clip import square_sum
from ..mesh import SERVER, Mesh
from ..precision import Precision
from .clocks import Meeting
from .parameter_server import Worker
from .stale_messages import ANSWER, REQUEST, Push, Request
from .step_totals import Total

#: The longest wait for values. Where all workers meet, the slowest one may be a thousand steps behind, of ten minutes each: the group's
#: limit is for one step. It holds for a server's wait for the next request, and so ends a run whose workers hang.
_LIMIT: Final = timedelta(days=7)


class StaleWorker(Worker):
    """The data strategy of such a worker. The loop calls `reduce`, `push` and `pull`."""

    def __init__(self, parts: Sequence[nn.Module], mesh: Mesh, precision: Precision, overlap: Overlap) -> None:
        super().__init__(parts, mesh, precision, overlap)
        self.clock = 0  # pushes so far
        self.pushes = 0  # of all workers, when the first server answered last
        self._rank, self._device = mesh.index(SERVER), mesh.device
        self._first, *self._others = range(mesh.layout.data, mesh.layout.world_size)
        self._rows: dict[int, torch.Tensor] = {}  # by bucket: the gradients of the step
        self._totals: list[Total] = []

    def _push(self, number: int) -> None:
        row = self._rows[number] = self._buckets[number].finish()[0]
        self._pushed.append(send(row, self._servers[number], self._group))

    def square_sum(self) -> float:
        """The sum of squares of this worker's own gradients. Call it after `reduce`."""
        return square_sum(list(self._rows.values()), self._device).item()

    def push(self, push: Push) -> None:
        """Let the gradients take effect, which the servers have received."""
        self.clock += 1
        for server in (self._first, *self._others):
            self._request(server, push=push)

    def pull(self, meets: bool) -> Meeting:
        """Start to pull all values. Waits until the bound allows it, or if `meets` until all workers are at this clock.

        Returns who meets, which any of them may have wanted.
        """
        self._request(self._first, meets)
        together = self._answered()
        for server in self._others:
            self._request(server, bool(together))
        self._rows.clear()
        super().publish()
        return together

    def publish(self) -> None:
        """Pull the first values, of which no worker has changed any."""
        self.pull(meets=True)

    def close(self) -> None:
        """Let the servers expect nothing more of this worker. Call it after the last meeting."""
        for server in (self._first, *self._others):
            self._send(Request(self._rank, self.clock, ends=True), server)
        for wait in self._pushed:
            wait()
        self._pushed.clear()

    def take_totals(self) -> list[Total]:
        """What the first server has sent of steps that all workers have finished, each once; nothing but on the first worker."""
        found, self._totals = self._totals, []
        return found

    def _request(self, server: int, meets: bool = False, push: Push | None = None) -> None:
        self._send(Request(self._rank, self.clock, meets, push), server)

    def _send(self, request: Request, server: int) -> None:
        self._pushed.append(send(request.numbers(), server, self._group, REQUEST))

    def _answered(self) -> Meeting:
        """The first server's answer before its values."""
        head = receive(torch.empty(3, dtype=torch.float64), self._first, self._group, ANSWER, _LIMIT)()
        meeting, self.pushes, count = map(int, head.tolist())
        if count:
            rows = torch.empty(count, len(Total._fields), dtype=torch.float64)
            self._totals += [Total(*row) for row in receive(rows, self._first, self._group, ANSWER)().tolist()]
        return Meeting(meeting)
