"""A parameter server whose workers have clocks of their own: each push is one update, applied when it arrives.

Sources: Li et al., OSDI 2014, section 3.4 (asynchronous), and Ho et al., NIPS 2013 (bounded staleness; `clocks.py` has the rule).

One thread serves one request at a time, so that the order of pushes and pulls is a list. Gradients arrive while a worker's backward
pass runs, in memory for that worker. They take effect as a whole, when it requests that: before, the factor that clips them is not
known. A pull gets the values of that moment, which are copied, because the next push may change them before the worker has received
them. Workers that meet share one copy.

A worker whose connection ends, or that is given up, is gone: it is waited for no more, what it has not pushed as a whole has no
effect, and its memory is freed when its connection has ended. Worker 0 reports on the job, so that its end is an error.

Memory of a server with Ψ_s elements and N workers: its values and the optimizer's state, and for each worker Ψ_s gradients, and at most
one copy of its values in the compute dtype. The first server also sums what workers report of a step (`step_totals.py`).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch

from ..collectives import Pending, receive, send
from ..comm_overlap import Overlap
from ..mesh import SERVER, Mesh
from ..param_shard import Parameter
from ..precision import Precision
from .clocks import Clocks, Meeting
from .inbox import Gone, Inbox
from .parameter_server import Server
from .stale_messages import ANSWER, Push, Request
from .step_totals import StepTotals, Total

#: Updates the param shards, whose gradients are set, for the push of a worker at this clock.
Update = Callable[[int], object]


class StaleServer(Server):
    """The data strategy of such a server. The loop calls `serve` in the place of `reduce` and `publish`."""

    def __init__(self, found: Sequence[Parameter], mesh: Mesh, precision: Precision, overlap: Overlap) -> None:
        super().__init__(found, mesh, precision, overlap)
        options = mesh.layout.parameter_server
        assert options is not None
        assert options.ahead is not None
        self.clocks = Clocks(self._workers, options.ahead)
        self._present = set(range(self._workers))
        self._inbox = Inbox(range(self._workers), self._group)
        self._totals = StepTotals(self._workers) if mesh.index(SERVER) == self._workers else None
        self._received: dict[int, list[torch.Tensor]] = {}  # by worker: memory for its gradients
        self._coming: dict[int, list[Pending]] = {}  # by worker: the gradients of its next push
        self._sending: dict[int, list[Pending]] = {}  # by worker
        self._abandoned: list[Any] = []  # messages of workers that were given up, whose connections may still use them
        self._copy: list[torch.Tensor] | None = None  # of the newest values, in the order in which they are sent

    def reduce(self) -> None:
        """Does nothing: gradients arrive in `serve`."""

    def publish(self) -> None:
        """Send the first values to every worker, which asks for them before its first push."""
        self.serve(0)

    def serve(self, clock: int, update: Update | None = None) -> Meeting:
        """Serve until every worker has pushed `clock` times, and has asked for values after that. Returns who met there.

        Raises ConnectionError if worker 0 is gone, and TimeoutError if no worker sends a request.
        """
        for worker in self._present if clock else ():
            self._expect(worker)
        while not self.clocks.passed(clock):
            self._handle(self._inbox.take(), update)
            for worker, meeting in self.clocks.answers():
                self._answer(worker, meeting)
                if not meeting:  # after a meeting there may be no further push
                    self._expect(worker)
        return self.clocks.meeting(clock)

    def close(self) -> None:
        """Wait for the last request of every worker. Call it at the last meeting. Raises what `serve` raises."""
        while self._present:
            self._handle(self._inbox.take(), None)
        self._inbox.join()

    def lose(self, worker: int) -> None:
        """Give up a worker. Any thread may call it."""
        self._inbox.give_up(worker)

    def _handle(self, request: Request | Gone, update: Update | None) -> None:
        """Serve one request. What a worker that is gone had sent, or sends again, is ignored."""
        if request.worker not in self._present:
            return
        if isinstance(request, Gone):
            self._lose(request)
        elif request.ends:
            self._present.remove(request.worker)
        elif request.push is None:
            self.clocks.ask(request.worker, request.meets)
        else:
            assert update is not None, "values are asked for before the first push"
            self._take(request, request.push, update)

    def _expect(self, worker: int) -> None:
        """Start to receive the worker's next gradients, unless it is done already or they are here."""
        if worker in self._coming or self.clocks.waits(worker):
            return
        if worker not in self._received:
            kept = self._precision.gradients
            self._received[worker] = [torch.empty(row.numel(), dtype=kept) for row in self._rows]
        with suppress(RuntimeError):  # the connection has ended: the inbox reports it
            self._coming[worker] = [receive(into, worker, self._group) for into in self._received[worker]]

    @torch.no_grad()
    def _take(self, request: Request, push: Push, update: Update) -> None:
        """Update the param shards by a worker's gradients, if all have arrived."""
        self._finish(request.worker)
        arrived = self._arrived(request.worker)
        if arrived is None:
            return
        for number, row in enumerate(arrived):
            total = row.to(self._precision.master)
            if push.factor != 1.0:
                total.mul_(push.factor)
            parts = total.split(self._widths[number])
            for shard, part in zip(self._shards[number], parts, strict=True):
                shard.set_gradient(part.view_as(shard.tensor))
        self.gradient_peak = max(self.gradient_peak, sum(row.nbytes for row in self._rows))
        self._copy = None
        update(request.clock)
        for shard in self.shards:
            shard.set_gradient(None)
        self.clocks.push(request.worker)
        if self._totals is not None:  # one server decides, and workers pass it on to the others
            self._totals.add(request.clock, request.worker, Total(push.loss, push.squares, push.rate))
            if push.meets:
                self.clocks.meet_soon()

    def _arrived(self, worker: int) -> list[torch.Tensor] | None:
        """The worker's gradients; None if its connection ended before all were here, which the inbox reports."""
        with suppress(RuntimeError):
            return [wait() for wait in self._coming.pop(worker, [])]
        return None

    @torch.no_grad()
    def _answer(self, worker: int, meeting: Meeting) -> None:
        """Start to send the values of now, and from the first server before them what it knows of steps."""
        self._finish(worker)
        if self._copy is None:
            self._copy = [row.to(self._precision.compute, copy=True) for row in reversed(self._rows)]
        head = [] if self._totals is None else self._head(worker, meeting, self._totals)
        with suppress(RuntimeError):  # the connection has ended: the inbox reports it
            sent = [send(one, worker, self._group, ANSWER) for one in head]
            self._sending[worker] = sent + [send(values, worker, self._group) for values in self._copy]

    def _head(self, worker: int, meeting: Meeting, totals: StepTotals) -> list[torch.Tensor]:
        """The first server's messages before its values: who meets, all pushes so far, and for worker 0 the totals of steps."""
        known = totals.take() if worker == 0 else []  # which reports on the job
        head = torch.tensor([meeting, self.clocks.pushes, len(known)], dtype=torch.float64)
        return [head, torch.tensor(known, dtype=torch.float64)] if known else [head]

    def _lose(self, gone: Gone) -> None:
        """Wait for a worker no more."""
        worker = gone.worker
        if worker == 0:
            raise ConnectionError(f"worker 0, which reports on the job, is gone: {gone.why}")
        self._present.remove(worker)
        self.clocks.leave(worker)
        if self._totals is not None:
            self._totals.leave(worker)
        messages = [kept.pop(worker, None) for kept in (self._received, self._coming, self._sending)]
        if not gone.closed:
            self._abandoned.append(messages)

    def _finish(self, worker: int) -> None:
        """Wait until the worker has received what was sent to it."""
        with suppress(RuntimeError):  # the connection has ended: the inbox reports it
            for wait in self._sending.pop(worker, []):
                wait()

    def settle(self) -> None:
        """Wait until every worker has received the values that it got."""
        for worker in list(self._sending):
            self._finish(worker)
