"""Forward passes through a pipeline, in rounds: each rank runs at most one of its stages on one micro-batch, then all pass results on.

Both ends of a message put it into the same round's batch, and every rank runs its rounds in order. So no map of stages to ranks can
deadlock, even where a send completes only when it is received (NCCL). A round lasts as long as a pass; there are about v·m + p − 1
of them for m micro-batches, v stages per rank and p ranks. Before its next round a rank waits until what it sent more than p rounds ago
has left, so that it holds the results of p rounds, whatever m. It waits for earlier rounds alone, so this adds no deadlock.

The naive twin of a schedule, used for validation: torch's ZBV and DualPipeV cannot run without a backward pass (`can't
steal_bwd_input if this stage doesn't have backward`, torch 2.13).
"""

import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn

from ..fields import Inputs, stage_inputs
from ..layout import Layout
from ..mesh import Mesh
from ..telemetry.current import wait_on
from .stage_errors import check_passed_on
from .stage_shapes import Hidden, described

#: What a rank runs in one round: (stage, micro-batch).
Pass = tuple[int, int]
#: Rank of the pipeline → what it runs; ranks that wait are absent.
Round = Mapping[int, Pass]
#: What a stage passes on.
Tensors = tuple[torch.Tensor, ...]


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

    arriving: dict[Pass, Tensors]
    leaving: Tensors  # kept until they have left
    works: Sequence[dist.Work]
    group: dist.ProcessGroup

    def wait(self) -> None:
        """Until all have arrived and left; the first call waits."""
        works, self.works = self.works, ()
        for work in works:
            wait_on(work.wait, "receive" if self.arriving else "send", self.group)
        self.leaving = ()


class ForwardOnly:
    """The stages of this rank. Works for any map of stages to ranks.

    `hidden` is the shape and dtype of what stages pass on. If it is None, as for a module of the user's own, each stage's first result
    of a run is preceded by a header, and may be several tensors: of other shapes than in another run, as a validation split may have.
    `passed_on`: by stage, as far as this rank's stages pass it on or take it; `taken`: what the first stage takes by position, once it
    is learnt.
    """

    def __init__(
        self,
        parts: Sequence[nn.Module],
        mesh: Mesh,
        microbatches: int,
        hidden: Hidden | None = None,
    ) -> None:
        layout = mesh.layout
        self._layout, self._microbatches, self._last = layout, microbatches, layout.stages - 1
        self._mine = dict(zip(layout.stages_of(mesh.index("pipeline")), parts, strict=True))
        self._owners = {stage: rank for rank in range(layout.pipeline) for stage in layout.stages_of(rank)}
        self._rank, self._group, self._device = mesh.index("pipeline"), mesh.group("pipeline"), mesh.device
        self._known = dict.fromkeys(range(self._last), (hidden,)) if hidden else {}
        self.passed_on: dict[int, tuple[Hidden, ...]] = {}
        self.taken: tuple[Hidden, ...] = ()

    def run(self, inputs: Inputs, finish: Callable[[int, torch.Tensor], None]) -> None:
        """Push `inputs` [micro-batches × micro-batch, …] through; `finish(number, output)` is called on the last stage's rank.

        Raises Refusal if a stage passes on other shapes for a later micro-batch than for the first.
        """
        self._run([stage_inputs(part) for part in inputs.chunk(self._microbatches)], finish)

    def learn(self, inputs: Inputs) -> None:
        """Push the first micro-batch of `inputs` through, so that `passed_on` and `taken` are known."""
        first = stage_inputs(inputs.chunk(self._microbatches)[0])
        self.taken = described(first[0])
        self._run([first], lambda _, __: None)

    def _run(
        self, parts: Sequence[tuple[Tensors, dict[str, Any]]], finish: Callable[[int, torch.Tensor], None]
    ) -> None:
        self.passed_on = dict(self._known)
        given: dict[Pass, Tensors] = {(0, number): tensors for number, (tensors, _) in enumerate(parts)}
        awaited: dict[Pass, _Messages] = {}
        rounds_sent = deque[_Messages]()
        for now in rounds(self._layout, len(parts)):
            leaving: Tensors = ()
            if self._rank in now:
                stage, number = now[self._rank]
                if (stage, number) in awaited:
                    messages = awaited.pop((stage, number))
                    messages.wait()
                    given[stage, number] = messages.arriving.pop((stage, number))
                output = self._mine[stage](*given.pop((stage, number)), **parts[number][1])
                if stage == self._last:
                    finish(number, output)
                else:
                    leaving = output if isinstance(output, tuple) else (output,)
                    if self._owners[stage + 1] == self._rank:
                        given[stage + 1, number] = leaving
                        self.passed_on[stage] = described(leaving)
            messages = self._exchange(now, leaving)
            awaited |= dict.fromkeys(messages.arriving, messages)
            rounds_sent.append(messages)
            while len(rounds_sent) > self._layout.pipeline:
                rounds_sent.popleft().wait()
        for messages in rounds_sent:
            messages.wait()

    def _exchange(self, now: Round, results: Tensors) -> _Messages:
        """Start the messages of one round: `results` to the next stage, and what this rank's stages get."""
        leaving: list[Pass] = []
        coming: list[Pass] = []
        for rank, (stage, number) in now.items():
            to = self._owners[stage + 1] if stage < self._last else rank
            if to != rank and self._rank in (rank, to):
                (leaving if rank == self._rank else coming).append((stage, number))
        sent = tuple(tensor.contiguous() for tensor in results) if leaving else ()
        self._learn({stage for stage, _ in coming}, {stage for stage, _ in leaving}, sent)
        operations = [self._message(dist.isend, tensor, stage + 1) for stage, _ in leaving for tensor in sent]
        arriving = {}
        for stage, number in coming:
            known = self.passed_on[stage]
            empty = tuple(torch.empty(shape, dtype=dtype, device=self._device) for shape, dtype in known)
            arriving[stage + 1, number] = empty
            operations += [self._message(dist.irecv, tensor, stage) for tensor in empty]
        return _Messages(arriving, sent, dist.batch_isend_irecv(operations) if operations else (), self._group)

    def _learn(self, coming: set[int], leaving: set[int], sent: Tensors) -> None:
        """Exchange headers of stages of which it is not known what they pass on."""
        operations, headers = [], {}
        for stage in leaving & self.passed_on.keys():
            check_passed_on(stage, sent, self.passed_on[stage])
        for stage in sorted(leaving - self.passed_on.keys()):
            self.passed_on[stage] = described(sent)
            header = torch.tensor(header_of(self.passed_on[stage]), device=self._device)
            operations.append(self._message(dist.isend, header, stage + 1))
        for stage in sorted(coming - self.passed_on.keys()):
            headers[stage] = torch.empty(_HEADER, dtype=torch.int64, device=self._device)
            operations.append(self._message(dist.irecv, headers[stage], stage))
        for work in dist.batch_isend_irecv(operations) if operations else ():
            wait_on(work.wait, "receive", self._group)
        for stage, header in headers.items():
            self.passed_on[stage] = read_header(header.tolist())

    def _message(self, operation: Callable[..., dist.Work | None], tensor: torch.Tensor, stage: int) -> dist.P2POp:
        """To or from the rank that runs `stage`."""
        return dist.P2POp(operation, tensor, group=self._group, group_peer=self._owners[stage])


#: The dtypes of what may be passed on, each with its number in headers.
_DTYPES: Final = (
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
#: Numbers of a header: of each tensor its dimensions, its dtype and its sizes; the rest is −1.
_HEADER: Final = 64


def header_of(tensors: Sequence[Hidden]) -> list[int]:
    """The header of these tensors. Raises ValueError for more than it has room for, or a dtype that has no number."""
    numbers: list[int] = []
    for shape, dtype in tensors:
        if dtype not in _DTYPES:
            raise ValueError(f"a stage passes on a tensor of {dtype}; it may be any of {', '.join(map(str, _DTYPES))}")
        numbers += [len(shape), _DTYPES.index(dtype), *shape]
    if len(numbers) > _HEADER:
        raise ValueError(
            f"a stage passes on {len(tensors)} tensors, more than a header of {_HEADER} numbers has room for"
        )
    return numbers + [-1] * (_HEADER - len(numbers))


def read_header(header: Sequence[int]) -> tuple[Hidden, ...]:
    """What `header_of` was made of."""
    found: list[Hidden] = []
    place = 0
    while place < len(header) and header[place] >= 0:
        sizes = place + 2
        after = sizes + header[place]
        found.append((tuple(header[sizes:after]), _DTYPES[header[place + 1]]))
        place = after
    return tuple(found)
