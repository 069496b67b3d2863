"""A parameter server whose workers have clocks of their own: each push is one update, applied when it arrives.

Sources: Li et al., OSDI 2014, section 3.4 (asynchronous), and Ho et al., NIPS 2013 (bounded staleness; `clocks.py` has the rule).

One thread serves one request at a time, so that the order of pushes and pulls is a list. Gradients arrive while a worker's backward pass
runs, in memory for that worker. They take effect as a whole, when it requests that: before, the factor that clips them is not known. A pull
gets the values of that moment, which are copied, because the next push may change them before the worker has received them. Workers that
meet share one copy.

Memory of a server with Ψ_s elements and N workers: its values and the optimizer's state, and for each worker Ψ_s gradients, and at most
one copy of its values in the compute dtype. The first server also sums what workers report of a step (`step_totals.py`).
"""

from collections.abc import Callable, Sequence

import torch

from ..collectives import Pending, receive, send
from ..comm_overlap import Overlap
from ..mesh import SERVER, Mesh
from ..param_shard import Parameter
from ..precision import Precision
from .clocks import Clocks
from .parameter_server import Server
from .stale_messages import ANSWER, REQUEST, Push, Request, empty_request
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
        self._totals = StepTotals(self._workers) if mesh.index(SERVER) == self._workers else None
        self._received: dict[int, list[torch.Tensor]] = {}  # by worker: memory for its gradients
        self._coming: dict[int, list[Pending]] = {}  # by worker: the gradients of its next push
        self._sending: dict[int, list[Pending]] = {}  # by worker
        self._copy: list[torch.Tensor] | None = None  # of the newest values, in the order in which they are sent

    def reduce(self) -> None:
        """Does nothing: gradients arrive in `serve`."""

    def publish(self) -> None:
        """Send the first values to every worker, which asks for them before its first push."""
        self.serve(0)

    def serve(self, clock: int, update: Update | None = None) -> bool:
        """Serve until every worker has pushed `clock` times, and has asked for values after that. Returns whether all met there."""
        for worker in range(self._workers if clock else 0):
            self._expect(worker)
        while not self.clocks.passed(clock):
            request = Request.of(receive(empty_request(), None, self._group, REQUEST)())
            if request.push is None:
                self.clocks.ask(request.worker, request.meets)
            else:
                assert update is not None, "values are asked for before the first push"
                self._take(request, request.push, update)
            for worker, meets in self.clocks.answers():
                self._answer(worker, meets)
                if not meets:  # after a meeting there may be no further push
                    self._expect(worker)
        return self.clocks.met == clock

    def _expect(self, worker: int) -> None:
        """Start to receive the worker's next gradients, unless it is done already or they are here."""
        if worker in self._coming or self.clocks.waits(worker):
            return
        if worker not in self._received:
            kept = self._precision.gradients
            self._received[worker] = [torch.empty(row.numel(), dtype=kept) for row in self._rows]
        self._coming[worker] = [receive(into, worker, self._group) for into in self._received[worker]]

    @torch.no_grad()
    def _take(self, request: Request, push: Push, update: Update) -> None:
        """Update the param shards by a worker's gradients."""
        self._finish(request.worker)
        for number, wait in enumerate(self._coming.pop(request.worker)):
            total = wait().to(self._precision.master)
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
            self._totals.add(request.clock, Total(push.loss, push.squares, push.rate))
            if push.meets:
                self.clocks.meet_soon()

    @torch.no_grad()
    def _answer(self, worker: int, meets: bool) -> None:
        """Start to send the values of now, and from the first server before them what it knows of steps."""
        self._finish(worker)
        sending = self._sending[worker] = []
        if self._totals is not None:
            known = self._totals.take() if worker == 0 else []  # which reports on the job
            head = torch.tensor([meets, len(known)], dtype=torch.float64)
            sending.append(send(head, worker, self._group, ANSWER))
            if known:
                sending.append(send(torch.tensor(known, dtype=torch.float64), worker, self._group, ANSWER))
        if self._copy is None:
            self._copy = [row.to(self._precision.compute, copy=True) for row in reversed(self._rows)]
        sending += [send(values, worker, self._group) for values in self._copy]

    def _finish(self, worker: int) -> None:
        """Wait until the worker has received what was sent to it."""
        for wait in self._sending.pop(worker, []):
            wait()

    def settle(self) -> None:
        """Wait until every worker has received the values that it got."""
        for worker in list(self._sending):
            self._finish(worker)
