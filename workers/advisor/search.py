"""Finds the fastest layouts of a spec that fit, one of each choice of degrees. Imports no torch.

A candidate is a layout with a recompute mode. It is taken if the spec's own checks allow it and its memory plan fits. Candidates are
compared by the time of their step. The search is exact: it gives what a comparison of all candidates gives. It is fast because few of
them are looked at whole:

1. All shapes (degrees, schedule, micro-batch, recompute, without ZeRO) are ordered by a lower bound of their time: their passes as if
   messages took none. The search ends at the first bound above the slowest row that would be shown.
2. The passes with their messages come next, then each ZeRO stage's messages and update. A time above the best one of its degrees ends it.
3. Lower bounds of the memory plan, on the device and in host memory, come before the plan, and the plan before the checks that need it.

Offload is tried only if nothing fits without it. What a spec says of layout, recompute and offload is replaced, but for how a sequence is
divided (`sequence`, `context_method`, `context_inner`), and for what a spec with `layout: auto` decides itself (`fixed_options.py`).
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...strategies.advisor.candidates import (
    MODES,
    Axes,
    Degrees,
    Shape,
    axes_of,
    shapes,
    simplicity,
    zero_choices,
)
from ...strategies.advisor.hardware import Hardware
from ...strategies.advisor.step_time import StepTime, follow_zero, passes_of, with_update
from ...strategies.batch import Batch
from ...strategies.cost.estimate import Setting
from ...strategies.cost.model_shape import Decoder
from ...strategies.cost.node_room import CPU_RESERVED_BYTES, GPU_RESERVED_BYTES, Cluster, Room, Verdict, verdict
from ...strategies.cost.on_host import least_on_host
from ...strategies.cost.plan import KINDS, Plan, least_bytes, plan
from ...strategies.layout import Layout, Refusal
from ...strategies.loss_chunks import loss_chunk
from ...strategies.memory_options import Mode, Offload, Recompute
from ..cost_inputs import planned_setting
from ..device_choices import Capability
from ..models.param_shapes import sizes
from ..models.presets import Architecture
from ..spec import TrainSpec, facts_of
from .fixed_options import KEPT, Fixed, fixed_by


@dataclass(frozen=True)
class Question:
    """For what layouts are wanted. `top`: how many rows; `capability`: that of the GPUs, where it is known.

    `tensors`: the tensor degrees of which the nodes have room for as many groups; None: all.
    """

    train: TrainSpec
    architecture: Architecture
    hardware: Hardware
    world: int
    top: int = 10
    capability: Capability | None = None
    tensors: tuple[int, ...] | None = None

    @property
    def clusters(self) -> list[Cluster]:
        """The hardware as the memory plan's verdict reads it."""
        of = self.hardware
        room = Room(of.ranks_per_node, of.memory, shared=of.device == "cpu", host=of.host_memory)
        return [Cluster([room] * self._nodes)]

    @property
    def room(self) -> float:
        """Bytes that a rank's tensors may take; what is rounded in a plan is left to it."""
        memory = self.hardware.memory
        if memory is None:
            return math.inf
        own = memory if self.hardware.device == "cuda" else memory // self._sharing
        return own - self.reserved + len(KINDS)

    @property
    def host_room(self) -> float:
        """Bytes of host memory that the tensors of a GPU's rank may take."""
        memory = self.hardware.host_memory
        return math.inf if memory is None else memory // self._sharing - CPU_RESERVED_BYTES

    @property
    def reserved(self) -> int:
        """Bytes that a rank's process holds beside its tensors."""
        return CPU_RESERVED_BYTES if self.hardware.device == "cpu" else GPU_RESERVED_BYTES

    @property
    def _nodes(self) -> int:
        return -(-self.world // self.hardware.ranks_per_node)

    @property
    def _sharing(self) -> int:
        """Ranks of the node with most of them."""
        return -(-self.world // self._nodes)

    @property
    def fixed(self) -> Fixed:
        """What the spec decides itself. Raises `Refusal` for what is not searched."""
        return fixed_by(self.train, self.hardware.ranks_per_node, self.tensors)

    def based_on(self, offload: Offload) -> TrainSpec:
        """The spec on one rank, with the options that all candidates have."""
        layout = Layout.model_validate({name: getattr(self.train.layout, name) for name in KEPT})
        recompute = self.fixed.recompute or Recompute()
        return self.train.model_copy(update={"layout": layout, "recompute": recompute, "offload": offload})

    def setting(self, train: TrainSpec) -> Setting:
        """The inputs of the formulas for `train`. Raises `Refusal`, as a submission does."""
        train.check_compiled(facts_of(self.architecture))
        return planned_setting(train, self.architecture, self.hardware.device, self.capability)


@dataclass(frozen=True)
class Row:
    """A candidate that fits. `train`: the spec with it."""

    train: TrainSpec
    batch: Batch
    time: StepTime
    plan: Plan
    verdict: Verdict

    @property
    def order(self) -> tuple[float, tuple[int | str, ...]]:
        """The key by which candidates are compared."""
        return self.time.seconds, simplicity(self.train.layout, self.train.recompute.mode)


@dataclass(frozen=True)
class Advice:
    """The rows, fastest first, and what became of the other candidates.

    `refused`: field → candidates that the spec's checks refuse; `slower`: those that were left out by their time, most of them by a lower
    bound of it. `least_needed`: a lower bound of the bytes that a rank of the most frugal candidate needs that does not fit;
    `least_on_host`: the same of host memory, where that is what is short.
    """

    rows: tuple[Row, ...]
    axes: Axes
    candidates: int
    refused: Mapping[str, int]
    too_large: int
    slower: int
    offloaded: bool
    least_needed: float
    least_on_host: float


def advise(question: Question) -> Advice:
    """The fastest layouts. Raises `Refusal` for a spec that no layout can run."""
    fixed = question.fixed
    found = _Search(question, fixed.offload or Offload()).found()
    if found.rows or fixed.offload is not None:
        return found
    return replace(_Search(question, Offload(optimizer=1.0)).found(), offloaded=True)


def candidates(question: Question, offload: Offload | None = None) -> Iterator[TrainSpec]:
    """Every candidate, refused or not, whatever it needs: for comparisons with what the search finds."""
    base = question.based_on(offload or Offload())
    facts = facts_of(question.architecture)
    axes, fixed = axes_of(base.layout, facts, base.global_batch, base.data.seq_len, question.world), question.fixed
    for shape in filter(fixed.takes, shapes(base.layout, axes, facts, base.global_batch, question.world)):
        for fields in filter(fixed.takes_zero, zero_choices(shape.degrees.data * shape.degrees.context)):
            yield _with(base, shape, fields)


def _with(base: TrainSpec, shape: Shape, fields: Mapping[str, int]) -> TrainSpec:
    layout = shape.layout.with_(**fields)
    return base.model_copy(update={"layout": layout, "recompute": _recompute(base, shape.recompute)})


def _recompute(base: TrainSpec, mode: Mode) -> Recompute:
    """With what the spec says beside the mode, if it decides about recompute."""
    return base.recompute if base.recompute.mode == mode else Recompute(mode=mode)


@dataclass
class _Counts:
    """Candidates by what became of them. `least`: bytes that a rank of the most frugal one needs at least that does not fit.

    `least_on_host`: the same of host memory.
    """

    all: int = 0
    too_large: int = 0
    fitting: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    least: float = math.inf
    least_on_host: float = math.inf

    def does_not_fit(self, needed: float) -> None:
        self.too_large += 1
        self.least = min(self.least, needed)

    def lacks_host(self, needed: float) -> None:
        self.too_large += 1
        self.least_on_host = min(self.least_on_host, needed)


class _Search:
    """One search, and what it has found so far."""

    def __init__(self, question: Question, offload: Offload) -> None:
        self._question, self._base, self._fixed = question, question.based_on(offload), question.fixed
        self._facts, self._room = facts_of(question.architecture), question.room
        self._host_room = math.inf if offload == Offload() else question.host_room
        self._plain = question.setting(self._base)
        plain = self._plain.memory_options
        self._options = {mode: replace(plain, recompute=_recompute(self._base, mode)) for mode in MODES}
        self._decoders: dict[int, Decoder] = {1: self._plain.decoder}  # by the degree of experts
        self._zero: dict[int, list[dict[str, int]]] = {}  # by the number of replicas
        self._best: dict[Degrees, Row] = {}
        self._cut = math.inf  # seconds of the slowest row that would be shown now
        self._counts = _Counts()

    def found(self) -> Advice:
        question, base, counts = self._question, self._base, self._counts
        axes = axes_of(base.layout, self._facts, base.global_batch, base.data.seq_len, question.world)
        for bound, shape in self._ordered(axes):
            if bound > self._cut:
                break
            self._consider(bound, shape)
        rows = sorted(self._best.values(), key=lambda row: row.order)[: question.top]
        slower = counts.all - counts.fitting - counts.too_large - counts.refused.total()
        least = counts.least, counts.least_on_host
        return Advice(tuple(rows), axes, counts.all, counts.refused, counts.too_large, slower, False, *least)

    def _ordered(self, axes: Axes) -> list[tuple[float, Shape]]:
        """All shapes by the lower bound of their time. Those whose ranks compute the same have the same one."""
        base = self._base
        found: list[tuple[float, Shape]] = []
        bounds: dict[tuple[object, ...], float] = {}
        every = shapes(base.layout, axes, self._facts, base.global_batch, self._question.world)
        for shape in filter(self._fixed.takes, every):
            layout = shape.degrees
            schedule = (layout.pipeline, shape.schedule, shape.virtual, shape.microbatches, shape.recompute)
            key = (*schedule, shape.micro_batch, layout.context, layout.tensor, shape.expert > 1)
            if key not in bounds:
                bounds[key] = passes_of(self._setting(shape), self._question.hardware, messages=False).seconds
            found.append((bounds[key], shape))
            self._counts.all += len(self._zero_choices(layout.data * layout.context))
        return sorted(found, key=lambda one: one[0])

    def _zero_choices(self, replicas: int) -> list[dict[str, int]]:
        """The fields of every ZeRO stage that is searched."""
        if replicas not in self._zero:
            self._zero[replicas] = [fields for fields in zero_choices(replicas) if self._fixed.takes_zero(fields)]
        return self._zero[replicas]

    def _setting(self, shape: Shape) -> Setting:
        """The inputs of the formulas for a shape, without the spec's checks."""
        layout, base = shape.layout, self._base
        micro = layout.micro_batch or 1
        tokens = micro * base.data.seq_len // layout.context
        architecture = self._question.architecture
        if layout.expert not in self._decoders:
            self._decoders[layout.expert] = sizes(architecture, base.data.seq_len, layout.expert)
        return replace(
            self._plain,
            layout=layout,
            batch=Batch(base.global_batch, layout.data, shape.microbatches, micro),
            decoder=self._decoders[layout.expert],
            memory_options=self._options[shape.recompute],
            loss_chunk=loss_chunk(tokens, architecture.vocab, layout.tensor, base.loss.chunk_tokens),
        )

    def _limit(self, degrees: Degrees) -> float:
        """Seconds above which a candidate of these degrees is of no interest."""
        best = self._best.get(degrees)
        return self._cut if best is None else min(self._cut, best.time.seconds)

    def _consider(self, bound: float, shape: Shape) -> None:
        """Take the best of a shape's ZeRO stages if it is better than what was found for its degrees."""
        degrees, hardware = Degrees.of(shape.degrees), self._question.hardware
        if bound > self._limit(degrees):
            return
        setting = self._setting(shape)
        passes, follow = {0: passes_of(setting, hardware)}, follow_zero(setting.layout)  # by ZeRO stage
        below = not follow or shape.microbatches > 1  # without ZeRO they take no longer than with it
        if below and passes[0].seconds > self._limit(degrees):
            return
        for fields in self._zero_choices(setting.replicas):
            sharded, stage = replace(setting, layout=setting.layout.model_copy(update=fields)), fields["zero"]
            time = with_update(sharded, hardware, passes[0])
            if follow and stage > 1 and not (below and time.seconds > self._limit(degrees)):
                if stage not in passes:
                    passes[stage] = passes_of(sharded, hardware)
                time = replace(time, passes=passes[stage])
            if time.seconds > self._limit(degrees):
                continue
            if (least := least_bytes(sharded)) > self._room:
                self._counts.does_not_fit(least + self._question.reserved)
            elif self._host_room < math.inf and (on_host := least_on_host(sharded)) > self._host_room:
                self._counts.lacks_host(on_host + CPU_RESERVED_BYTES)
            else:
                self._judge(_with(self._base, shape, fields), time)

    def _judge(self, train: TrainSpec, time: StepTime) -> None:
        """Check a candidate as a submission would be, and keep it if it is the best of its degrees."""
        question, counts = self._question, self._counts
        try:
            setting = question.setting(train)
        except Refusal as refusal:
            counts.refused[refusal.field] += 1
            return
        planned = plan(setting)
        found = verdict(planned, question.hardware.device, question.world, question.clusters)
        if found.fits is False:
            if found.lacks_host:
                counts.lacks_host(found.host.needed)
            else:
                counts.does_not_fit(found.needed)
            return
        counts.fitting += 1
        row = Row(train, setting.batch, time, planned, found)
        degrees = Degrees.of(train.layout)
        best = self._best.get(degrees)
        if best is None or row.order < best.order:
            self._best[degrees] = row
            seconds = sorted(one.time.seconds for one in self._best.values())
            if len(seconds) >= question.top:
                self._cut = seconds[question.top - 1]
