"""Pipeline schedules as torch implements them: GPipe (1811.06965), 1F1B and interleaved 1F1B (2104.04473), interleaved zero-bubble
(ZB1P) and ZBV (2401.10241), DualPipeV (2412.19437). The order of ZB-H1 and ZB-H2 (2401.10241) is ours, and torch runs it.
DualPipeV's pairs of passes are overlapped by `overlapped_pair.py`.

The bubble is (p−1)/m of the ideal time for GPipe and 1F1B, divided by the stages per rank when interleaved; zero-bubble schedules fill it
with gradients of weights, which can wait. 1F1B holds the activations of p − i micro-batches on 0-based rank i, GPipe those of all m.
Each micro-batch moves [micro-batch, seq, dim] over each boundary between ranks, forward and back.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from ..cost.stage_balance import ModuleCosts, stage_blocks, stage_costs
from ..data_parallel.shared_gradients import unshare
from ..data_strategy import DataStrategy
from ..delayed_rules import alternates
from ..fields import Inputs, stage_inputs
from ..layout import Layout
from ..mesh import Mesh
from ..process_groups import in_pairs
from ..runner import Runner
from ..telemetry.clock_sync import Aligned
from ..telemetry.current import current
from ..telemetry.device_clock import clock_of
from ..telemetry.step_tracer import Recorded
from .bubble import Bubble, BubbleTimer
from .forward_only import ForwardOnly
from .given_order import schedule_of
from .ideal_timeline import (
    BACKWARD,
    BACKWARD_INPUT,
    FORWARD,
    LOSS,
    SCHEDULE,
    WEIGHT,
    Passes,
    Replay,
    passes_of,
    replay,
)
from .last_passes import LastPasses
from .overlapped_pair import OverlappedPair, overlapped_pair
from .own_gradients import own_gradients
from .own_stages import take_fields
from .p2p_trace import seen
from .schedule_order import Order, alternating_order, delayed_order, order_of
from .simulator import Timeline, evenly, simulate
from .stage_errors import check_passed_on, unwrapped
from .stage_shapes import Examples, FoundShapes, Hidden, StageShapes
from .weight_pass_errors import check_graph, explained
from .zero_bubble import HANDCRAFTED, passes

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_SCHEDULES: dict[str, Any] = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
    "interleaved-zb": ScheduleInterleavedZeroBubble,
    "zbv": ScheduleZBVZeroBubble,
    "dualpipev": ScheduleDualPipeV,
}


class OwnStage(PipelineStage):
    """A stage whose passes count as its rank's busy time, while the schedule around them waits for neighbours.

    `data` is informed of passes that set gradients of weights without calling hooks, and within `last` of the stage's last pass. `pairs`
    has the groups over which its messages go, as `Mesh.pairs`. `schedule`: its name in the layout. `passed_on`: shapes and dtypes of what
    it passes on, if a forward pass has shown them.
    """

    data: DataStrategy
    last: Callable[[], AbstractContextManager[None]]
    pairs: Mapping[int, dist.ProcessGroup]
    schedule: str
    passed_on: Sequence[Hidden] | None = None
    _is_checked = False

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        span = current().tracer.span("forward", FORWARD, fwd_chunk_id, self.stage_index)
        with current().clock.busy, span, current().logged.microbatch():
            given = unwrapped(partial(super().forward_one_chunk, fwd_chunk_id, *args, **kwargs))
        if self.passed_on is not None:
            check_passed_on(self.stage_index, given if isinstance(given, tuple) else (given,), self.passed_on)
        return given

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: Any = False
    ) -> Any:
        name = BACKWARD if full_backward else BACKWARD_INPUT
        ending = self.last() if full_backward and last_backward else nullcontext()
        if not full_backward and not self.is_first and not self._is_checked:
            check_graph(self.submod, *self.fwd_cache[bwd_chunk_id], self.schedule)
            self._is_checked = True
        if not (full_backward or self.is_first or self.is_last):
            given, taken = self.fwd_cache[bwd_chunk_id]
            self.fwd_cache[bwd_chunk_id] = (tuple(map(_no_view, given)), taken)
        with current().clock.busy, current().tracer.span("backward", name, bwd_chunk_id, self.stage_index), ending:
            given = unwrapped(partial(super().backward_one_chunk, bwd_chunk_id, loss, full_backward, last_backward))
        if full_backward and not last_backward:
            for weight in self.submod.parameters():  # under ZeRO-3 the whole ones, which have no hooks
                unshare(weight)
        if not full_backward:  # torch leaves the gradient that it sends with the input, until the next step
            for value in self.backward_state[bwd_chunk_id][0]:
                value.grad = None
        return given

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: Any = False) -> Any:
        ending = self.last() if last_backward else nullcontext()
        span = current().tracer.span("weight", WEIGHT, bwd_chunk_id, self.stage_index)
        groups = self.backward_state[bwd_chunk_id][1]
        refusing = explained(self.submod, groups, self.schedule)
        with current().clock.busy, span, ending, refusing, own_gradients(self.submod, groups):
            given = unwrapped(partial(super().backward_weight_one_chunk, bwd_chunk_id, last_backward))
            self.data.collect()
            return given

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return in_pairs(super().get_fwd_recv_ops(fwd_chunk_id), self.pairs)

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return in_pairs(_contiguous(super().get_fwd_send_ops(fwd_chunk_id)), self.pairs)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return in_pairs(super().get_bwd_recv_ops(bwd_chunk_id), self.pairs)

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return in_pairs(_contiguous(super().get_bwd_send_ops(bwd_chunk_id)), self.pairs)


def _no_view(value: torch.Tensor) -> torch.Tensor:
    """The same result of a stage, which torch detaches in place after a pass for its inputs alone, as it cannot detach a view."""
    return value.clone() if value._is_view() else value


def _contiguous(operations: Sequence[dist.P2POp]) -> list[dist.P2POp]:
    """The same messages, in the order of elements in which they are received: NCCL sends a strided tensor as it lies in memory.

    The gradient of a stage's inputs alone has the strides of its last operation, such as those of a permuted convolution.
    """
    return [dist.P2POp(one.op, one.tensor.contiguous(), one.peer, one.group, one.tag) for one in operations]


@dataclass(frozen=True)
class Split:
    """What a model's split depends on, and the shapes of its stages; None: torch's stages find out in the first step."""

    costs: ModuleCosts
    shapes: StageShapes | None = None


class Pipeline(Runner):
    """Runs the micro-batches of a step through the stages. Gradients are summed over micro-batches; `data` starts to reduce them."""

    def __init__(
        self,
        parts: Sequence[nn.Module],
        mesh: Mesh,
        microbatches: int,
        loss: Loss,
        split: Split,
        data: DataStrategy,
    ) -> None:
        layout = mesh.layout
        indices = layout.stages_of(mesh.index("pipeline"))
        self._first, self.last = 0 in indices, layout.stages - 1 in indices
        self._relay = ForwardOnly(parts, mesh, microbatches, split.shapes.passed_on if split.shapes else None)
        self._loss, self._microbatches = loss, microbatches
        self._layout, self._costs, self._mesh = layout, split.costs, mesh
        self._stopwatch: BubbleTimer | None = None
        self._pair: OverlappedPair | None = None
        self._parts, self._data = parts, data
        self._shapes: Examples | None = split.shapes
        if split.shapes is None:
            for part, index in zip(parts, indices, strict=True):
                take_fields(part, last=index == layout.stages - 1)
        self.stages = self._make_stages(parts, split.shapes, data)

    def _make_stages(self, parts: Sequence[nn.Module], shapes: Examples | None, data: DataStrategy) -> Sequence[Any]:
        """This rank's stages, in torch's schedule."""
        layout, mesh = self._layout, self._mesh
        group, indices = mesh.group("pipeline"), layout.stages_of(mesh.index("pipeline"))
        stages = [
            OwnStage(part, index, layout.stages, mesh.device, group=group, **_examples(shapes, index, layout.stages))
            for part, index in zip(parts, indices, strict=True)
        ]
        self._last_passes = LastPasses([list(part.parameters()) for part in parts], data)
        for number, stage in enumerate(stages):
            stage.schedule = layout.schedule
            if isinstance(shapes, FoundShapes):
                stage.passed_on = shapes.passed_on.get(stage.stage_index)
            stage.data, stage.last, stage.pairs = data, partial(self._last_passes.of, number), mesh.pairs
        self._schedule = _make(layout, stages, self._microbatches, self._loss_of)
        self._pair = overlapped_pair(self._schedule, stages, parts, layout, mesh.device)
        return stages

    @property
    def order(self) -> Order:
        """The actions of every rank of the pipeline in a step, read from the schedule that runs them."""
        return order_of(self._schedule, self._layout.schedule, self._layout.pipeline, self._microbatches)

    def timeline(self) -> Timeline:
        """The order simulated with each stage's work; messages take no time."""
        return simulate(self.order, evenly(stage_costs(self._costs, stage_blocks(self._layout, self._costs))))

    def plan(self) -> dict[str, Any]:
        """For the `plan` event: `stage_blocks`, [first, one past the last] per stage, and `bubble_simulated`, a share of the step."""
        blocks = stage_blocks(self._layout, self._costs)
        return {
            "stage_blocks": tuple((part.start, part.stop) for part in blocks),
            "bubble_simulated": self.timeline().bubble,
        }

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Time every action of the step inside, for `bubble`. Collective over the pipeline."""
        loss, self._stopwatch = self._loss, BubbleTimer(clock_of(self._mesh.device))
        self._loss = self._stopwatch.loss(loss)
        try:
            with self._stopwatch.running(self.stages, self._mesh):
                yield
        finally:
            self._loss = loss

    def bubble(self) -> Bubble | None:
        """The bubble of the last timed step, None if there was none. Collective over the pipeline."""
        return None if self._stopwatch is None else self._stopwatch.bubble(self.order, self._mesh)

    def replay(self, steps: Sequence[Recorded], clock: Aligned) -> list[Replay | None]:
        """Traced steps beside a simulation with the measured duration of every stage's passes. Collective over the pipeline."""
        mine = [passes_of(step, clock) for step in steps]
        everyone = [mine] * self._mesh.size("pipeline")
        dist.all_gather_object(everyone, mine, group=self._mesh.group("pipeline"))
        return [self._compared(ranks) for ranks in zip(*everyone, strict=True)]

    def _compared(self, everyone: Sequence[Passes]) -> Replay:
        """One traced step of all ranks of the pipeline beside its simulation."""
        return replay(self.order, everyone, self._mesh.index("pipeline"))

    def prepare(self, inputs: Inputs) -> None:
        """Find out what the stages of a module of the user's own pass on, by a forward pass of the first micro-batch. Collective, once.

        It draws no random number that a step would draw. Torch's stages would give later ones numbers that are no samples.
        """
        of_torch = self._layout.versions == 1  # other stages need no examples
        if self._shapes is not None or self._layout.tensor_shape is not None or not of_torch:
            return
        cuda = [self._mesh.device] if self._mesh.device.type == "cuda" else []
        self._data.settle()
        with torch.no_grad(), torch.random.fork_rng(devices=cuda):
            self._relay.learn(inputs)
        self._data.after_validation()
        self._shapes = FoundShapes(self._relay.passed_on, self._relay.taken)
        self.stages = self._make_stages(self._parts, self._shapes, self._data)

    def train(self, inputs: Inputs, targets: torch.Tensor) -> torch.Tensor:
        """Forward and backward of `inputs`, `targets` [micro-batches × micro-batch, …]; the summed loss (0 off the last stage)."""
        self.prepare(inputs)
        losses: list[torch.Tensor] = []
        self._last_passes.begin()
        tensors, more = stage_inputs(inputs)  # every stage reads the rows, and so knows their documents
        given = tensors if self._first else ()
        wanted = {"target": targets, "losses": losses} if self.last else {}
        traced = seen() if current().tracer.on else nullcontext()
        timers = () if self._stopwatch is None else (self._stopwatch,)
        thread = nullcontext() if self._pair is None else self._pair.thread(*timers)
        # The stages' own passes are timed as busy inside.
        with current().clock.waiting, current().tracer.span("other", SCHEDULE), traced, thread:
            self._schedule.step(*given, **wanted, **more, return_outputs=False)
        if not self.last:
            return torch.zeros((), device=targets.device)
        return torch.stack([loss.detach() for loss in losses]).sum()

    def _loss_of(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss function at this moment: timed or not."""
        with current().clock.busy, current().tracer.span("forward", LOSS):
            return self._loss(output, target)

    @torch.no_grad()
    def validate(self, inputs: Inputs, targets: torch.Tensor) -> torch.Tensor:
        """The summed loss, forward only (0 off the last stage)."""
        losses = [torch.zeros((), device=targets.device)]
        expected = targets.chunk(self._microbatches)
        self._relay.run(inputs, lambda number, output: losses.append(self._loss(output, expected[number])))
        return torch.stack([loss.double() for loss in losses]).sum()


def _examples(shapes: Examples | None, stage: int, stages: int) -> dict[str, Any]:
    if shapes is None:
        return {}
    return {"input_args": shapes.inputs(stage), "output_args": shapes.outputs(stage, stages)}


def _make(layout: Layout, stages: Sequence[Any], microbatches: int, loss: Loss) -> Any:
    if layout.schedule in HANDCRAFTED:
        return schedule_of(passes(layout.schedule, layout.pipeline, microbatches), stages, microbatches, loss)
    several = layout.schedule not in ("gpipe", "1f1b")
    given = list(stages) if several else stages[0]
    return _SCHEDULES[layout.schedule](given, microbatches, loss_fn=loss, scale_grads=False)


@dataclass
class _Place:
    """The attributes of a stage that a schedule needs to make its order, without ranks and without a model."""

    stage_index: int
    num_stages: int
    group_size: int
    group_rank: int
    submod: nn.Module
    stage_index_to_group_rank: Any = None


def planned_order(layout: Layout, microbatches: int, ends_apart: bool = False) -> Order:
    """The order that `layout` runs with `microbatches`, computed without ranks. Raises `ValueError` for too few micro-batches."""
    if layout.schedule == "pipedream" or alternates(layout, microbatches, ends_apart):
        return alternating_order(layout.pipeline, microbatches)
    if layout.schedule == "2bw":
        return delayed_order(layout.pipeline, microbatches)
    rank, nothing = 0, nn.Identity()
    places = [_Place(s, layout.stages, layout.pipeline, rank, nothing) for s in layout.stages_of(rank)]
    schedule = _make(layout, places, microbatches, lambda output, _: output)
    return order_of(schedule, layout.schedule, layout.pipeline, microbatches)
