"""Messages between a pipeline's neighbours in rounds: in a round every rank sends the same way, one hidden state or its gradient.

Both ends of a message put it into the same round, and every rank runs its rounds in order. So ranks never wait for each other forever,
also where a send completes only when it is received (NCCL). A message travels while its two ranks compute, until `wait`.

Where the mesh has groups of pairs, a round's send and receive are started one after the other, each over that of its two ranks: in one
batch the send would end only when the message from the other side has come, too. That adds no deadlock: the rank at which a round's
messages end only receives, so the one before it sends and then receives, and so on.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..mesh import Mesh
from ..process_groups import in_pairs
from ..telemetry.current import current, now
from ..telemetry.step_tracer import Category
from .p2p_trace import LANE


class Neighbours:
    """What goes from rank to rank `towards` the end (1) or the beginning (-1) of the pipeline.

    All messages have one shape and dtype, `hidden`. `arrived`: micro-batch → what was received and not yet used.
    """

    def __init__(self, mesh: Mesh, towards: int, hidden: tuple[Sequence[int], torch.dtype]) -> None:
        self._group, self._device, self._hidden = mesh.group("pipeline"), mesh.device, hidden
        self._pairs = mesh.pairs
        self._to, self._from = mesh.index("pipeline") + towards, mesh.index("pipeline") - towards
        self.arrived: dict[int, torch.Tensor] = {}
        self._works: Sequence[dist.Work] = ()
        self._leaving: torch.Tensor | None = None  # kept until it has left
        self._category: Category = "send"  # of the round, in a trace
        self._since: Any = None

    def exchange(self, leaving: torch.Tensor | None, coming: int | None) -> None:
        """Start a round: send `leaving`, receive for the micro-batch `coming`, where there are such. Waits for the round before."""
        self.wait()
        operations = []
        if leaving is not None:
            self._leaving = leaving.contiguous()
            operations.append(dist.P2POp(dist.isend, self._leaving, group=self._group, group_peer=self._to))
        if coming is not None:
            shape, dtype = self._hidden
            self.arrived[coming] = torch.empty(*shape, dtype=dtype, device=self._device)
            operations.append(dist.P2POp(dist.irecv, self.arrived[coming], group=self._group, group_peer=self._from))
        if operations:
            self._category = "send" if coming is None else "receive"
            self._since = now() if coming is not None else None
            with current().tracer.span(self._category, f"start to {self._category}"):
                self._works = self._start(operations)

    def _start(self, operations: list[dist.P2POp]) -> list[dist.Work]:
        """Start the messages: in one batch, or each over the group of its pair."""
        batches = [[one] for one in in_pairs(operations, self._pairs)] if self._pairs else [operations]
        return [work for batch in batches for work in dist.batch_isend_irecv(batch)]

    def wait(self) -> None:
        """Until the round's messages have arrived and left."""
        if self._works:
            tracer = current().tracer
            with current().clock.waiting, tracer.span(self._category, f"{self._category} {LANE}"):
                for work in self._works:
                    work.wait()
            tracer.record_async(LANE, self._category, self._category, self._since)
        self._works, self._leaving = (), None

    def renumber(self, by: int) -> None:
        """Give what has arrived the numbers that its micro-batches have in the next step: `by` less."""
        self.arrived = {number - by: tensor for number, tensor in self.arrived.items()}

    def forget(self) -> None:
        """Drop what has arrived."""
        self.arrived.clear()
