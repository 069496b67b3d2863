"""Forward passes through a pipeline, in rounds: each rank runs at most one of its stages on one micro-batch, then all pass results on.

Both ends of a message put it into the same round's batch, and every rank runs its rounds in order. So no map of stages to ranks can
deadlock, even where a send completes only when it is received (NCCL). A round lasts as long as a pass; there are about v·m + p − 1
of them for m micro-batches, v stages per rank and p ranks.

The naive twin of a schedule, used for validation: torch's ZBV and DualPipeV cannot run without a backward pass (`can't
steal_bwd_input if this stage doesn't have backward`, torch 2.13).
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from ..documents import Packed, taken
from ..layout import Layout
from ..mesh import Mesh
from ..telemetry.current import wait_on

#: What a rank runs in one round: (stage, micro-batch).
Pass = tuple[int, int]
#: Rank of the pipeline → what it runs; ranks that wait are absent.
Round = Mapping[int, Pass]


@functools.lru_cache(maxsize=4)
def rounds(layout: Layout, microbatches: int) -> tuple[Round, ...]:
    """All ranks' passes, the same on every rank. A rank prefers its latest stage that can run, so that little waits between stages."""
    done = [0] * layout.stages  # micro-batches that each stage has run, in order
    found = []
    while done[-1] < microbatches:
        before = tuple(done)
        now: dict[int, Pass] = {}
        for rank in range(layout.pipeline):
            for stage in sorted(layout.stages_of(rank), reverse=True):
                if before[stage] < (before[stage - 1] if stage else microbatches):
                    now[rank] = (stage, before[stage])
                    done[stage] += 1
                    break
        found.append(now)
    return tuple(found)


@dataclass
class _Messages:
    """One round's messages of this rank: what it gets, for which of its passes, and what it sends."""

    arriving: dict[Pass, torch.Tensor]
    leaving: torch.Tensor | None  # kept until it has left
    works: Sequence[dist.Work]
    group: dist.ProcessGroup

    def wait(self) -> None:
        """Until all have arrived and left; the first call waits."""
        works, self.works = self.works, ()
        for work in works:
            wait_on(work.wait, "receive" if self.arriving else "send", self.group)
        self.leaving = None


class ForwardOnly:
    """The stages of this rank. Works for any map of stages to ranks.

    `hidden` is the shape and dtype of what stages pass on. If it is None, as for a module of the user's own, each stage's first result
    is preceded by a header.
    """

    def __init__(
        self,
        parts: Sequence[nn.Module],
        mesh: Mesh,
        microbatches: int,
        hidden: tuple[Sequence[int], torch.dtype] | None = None,
    ) -> None:
        layout = mesh.layout
        self._layout, self._microbatches, self._last = layout, microbatches, layout.stages - 1
        self._mine = dict(zip(layout.stages_of(mesh.index("pipeline")), parts, strict=True))
        self._owners = {stage: rank for rank in range(layout.pipeline) for stage in layout.stages_of(rank)}
        self._rank, self._group, self._device = mesh.index("pipeline"), mesh.group("pipeline"), mesh.device
        self._passed_on = dict.fromkeys(range(self._last), hidden) if hidden else {}

    def run(self, inputs: torch.Tensor | Packed, finish: Callable[[int, torch.Tensor], None]) -> None:
        """Push `inputs` [micro-batches × micro-batch, seq] through; `finish(number, output)` is called on the last stage's rank."""
        parts = [taken(part) for part in inputs.chunk(self._microbatches)]
        given: dict[Pass, torch.Tensor] = {(0, number): tokens for number, (tokens, _) in enumerate(parts)}
        awaited: dict[Pass, _Messages] = {}
        rounds_sent = []
        for now in rounds(self._layout, self._microbatches):
            output = None
            if self._rank in now:
                stage, number = now[self._rank]
                if (stage, number) in awaited:
                    messages = awaited.pop((stage, number))
                    messages.wait()
                    given[stage, number] = messages.arriving.pop((stage, number))
                output = self._mine[stage](given.pop((stage, number)), **parts[number][1])
                if stage == self._last:
                    finish(number, output)
                elif self._owners[stage + 1] == self._rank:
                    given[stage + 1, number] = output
            messages = self._exchange(now, output)
            awaited |= dict.fromkeys(messages.arriving, messages)
            rounds_sent.append(messages)
        for messages in rounds_sent:
            messages.wait()

    def _exchange(self, now: Round, output: torch.Tensor | None) -> _Messages:
        """Start the messages of one round: `output` to its next stage, and what this rank's stages get."""
        leaving: list[Pass] = []
        coming: list[Pass] = []
        for rank, (stage, number) in now.items():
            to = self._owners[stage + 1] if stage < self._last else rank
            if to != rank and self._rank in (rank, to):
                (leaving if rank == self._rank else coming).append((stage, number))
        output = output.contiguous() if output is not None and leaving else None
        self._learn({stage for stage, _ in coming}, {stage for stage, _ in leaving}, output)
        operations = [self._message(dist.isend, output, stage + 1) for stage, _ in leaving if output is not None]
        arriving = {}
        for stage, number in coming:
            shape, dtype = self._passed_on[stage]
            arriving[stage + 1, number] = torch.empty(*shape, dtype=dtype, device=self._device)
            operations.append(self._message(dist.irecv, arriving[stage + 1, number], stage))
        return _Messages(arriving, output, dist.batch_isend_irecv(operations) if operations else (), self._group)

    def _learn(self, coming: set[int], leaving: set[int], output: torch.Tensor | None) -> None:
        """Exchange headers of stages of which it is not known what they pass on: three sizes and the dtype."""
        operations, headers = [], {}
        for stage in sorted(leaving - self._passed_on.keys()):
            assert output is not None
            self._passed_on[stage] = (output.shape, output.dtype)
            header = torch.tensor([*output.shape, _DTYPES.index(output.dtype)], device=self._device)
            operations.append(self._message(dist.isend, header, stage + 1))
        for stage in sorted(coming - self._passed_on.keys()):
            headers[stage] = torch.empty(4, dtype=torch.int64, device=self._device)
            operations.append(self._message(dist.irecv, headers[stage], stage))
        for work in dist.batch_isend_irecv(operations) if operations else ():
            wait_on(work.wait, "receive", self._group)
        for stage, header in headers.items():
            *shape, dtype = header.tolist()
            self._passed_on[stage] = (shape, _DTYPES[dtype])

    def _message(self, operation: Callable[..., dist.Work | None], tensor: torch.Tensor, stage: int) -> dist.P2POp:
        """To or from the rank that runs `stage`."""
        return dist.P2POp(operation, tensor, group=self._group, group_peer=self._owners[stage])


_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
