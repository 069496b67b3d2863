"""Every layout of a number of ranks that a model may take: the degrees, what its passes are, and how ZeRO shards it. Imports no torch.

What an axis allows is found by the rules themselves (`layout_rules.py`): each degree is checked alone, and a layout as a whole before it is
taken. Not among the candidates, because they change more than the time: schedules that are not flushed (2BW, PipeDream), ZeRO++, parameter
servers, tensor groups with a shape, and double rings.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..layout import Layout, ModelFacts, Refusal, Schedule, divisors
from ..layout_rules import check_layout
from ..memory_options import Mode

#: Schedules that are flushed, and the stages per rank of those for which a layout says them; the others have the field's default.
_SCHEDULES: Final[tuple[Schedule, ...]] = (
    "1f1b",
    "gpipe",
    "interleaved",
    "interleaved-zb",
    "zb-h1",
    "zb-h2",
    "zbv",
    "dualpipev",
)
_VIRTUAL: Final = (2, 3, 4, 6, 8)
MODES: Final[tuple[Mode, ...]] = ("none", "selective", "full")
#: The largest degree that a layout's fields take, but for `data`.
_MOST: Final = 1024


@dataclass(frozen=True, order=True)
class Degrees:
    """The number of ranks of each axis."""

    pipeline: int
    data: int
    context: int
    tensor: int

    @classmethod
    def of(cls, layout: Layout) -> "Degrees":
        return cls(layout.pipeline, layout.data, layout.context, layout.tensor)


@dataclass(frozen=True)
class Axes:
    """The degrees that the rules allow on each axis alone; of context with that of Ulysses. `refused`: field → first reason, how many."""

    data: tuple[int, ...]
    tensor: tuple[int, ...]
    pipeline: tuple[int, ...]
    context: tuple[tuple[int, int], ...]
    refused: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """A layout without ZeRO, and its recompute: all that decides about the passes. A search holds up to a million, so it is small.

    `degrees`: a layout with the axes' degrees, which many shapes share.
    """

    degrees: Layout
    schedule: str
    virtual: int
    expert: int
    micro_batch: int
    microbatches: int
    recompute: Mode

    @property
    def layout(self) -> Layout:
        """A new object at each call."""
        own = ("schedule", "virtual", "expert", "micro_batch")
        return self.degrees.model_copy(update={name: getattr(self, name) for name in own})


def axes_of(base: Layout, facts: ModelFacts, global_batch: int, seq_len: int, world: int) -> Axes:
    """The divisors of `world` that a model of these `facts` may take on each axis. `base`: the options of all candidates."""
    refused: dict[str, list[str]] = {}

    def allowed(**changes: object) -> bool:
        try:
            layout = base.with_(**changes)
            check_layout(layout, facts, global_batch, seq_len)
        except Refusal as refusal:
            refused.setdefault(refusal.field, []).append(refusal.message)
            return False
        return True

    data = tuple(d for d in divisors(world) if allowed(data=d))
    degrees = [degree for degree in divisors(world) if degree <= _MOST]
    tensor = tuple(t for t in degrees if allowed(tensor=t))
    pipeline = tuple(p for p in degrees if allowed(pipeline=p, schedule="gpipe"))
    context = tuple((c, u) for c in degrees for u in divisors(c) if allowed(context=c, ulysses=u))
    counted = tuple((field, messages[0], len(messages)) for field, messages in refused.items())
    return Axes(data, tensor, pipeline, context, counted)


def shapes(base: Layout, axes: Axes, facts: ModelFacts, global_batch: int, world: int) -> Iterator[Shape]:
    """Every shape of `world` ranks, of degrees that each axis allows and of micro-batches that the schedule runs."""
    for pipeline in axes.pipeline:
        for tensor in axes.tensor:
            for context, ulysses in axes.context:
                data, rest = divmod(world, pipeline * tensor * context)
                if not rest and data in axes.data:
                    changes = {"pipeline": pipeline, "data": data, "context": context, "tensor": tensor}
                    yield from _of_degrees(base.with_(**changes, ulysses=ulysses), facts, global_batch // data)


def zero_choices(replicas: int) -> tuple[dict[str, int], ...]:
    """The fields of every ZeRO stage over `replicas` and, of stage 3, of every size of sharding groups."""
    if replicas == 1:
        return ({"zero": 0},)
    groups = ({"zero": 3, "shard": shard} for shard in divisors(replicas)[1:-1])
    return (*({"zero": stage} for stage in range(4)), *groups)


def simplicity(layout: Layout, recompute: Mode) -> tuple[int | str, ...]:
    """A key that is smallest for the layout with the fewest options: it decides between equal times."""
    return (
        layout.pipeline,
        layout.context,
        layout.tensor,
        layout.zero,
        layout.shard or 0,
        MODES.index(recompute),
        layout.expert,
        layout.ulysses,
        -(layout.micro_batch or 0),
        layout.schedule,
        layout.virtual,
    )


def _of_degrees(layout: Layout, facts: ModelFacts, share: int) -> Iterator[Shape]:
    for schedule, virtual, expert in _variants(layout, facts):
        varied = layout.model_copy(update={"schedule": schedule, "virtual": virtual, "expert": expert})
        for micro in divisors(share):
            microbatches = share // micro
            if varied.microbatch_problem(microbatches) is None and not _dominated(varied, microbatches):
                for mode in MODES:
                    yield Shape(layout, schedule, virtual, expert, micro, microbatches, mode)


def _variants(layout: Layout, facts: ModelFacts) -> Iterator[tuple[str, int, int]]:
    """Schedule, virtual stages and expert degree beside the degrees of `layout`."""
    replicas = layout.data * layout.context
    experts = [1] if facts.experts is None else [e for e in divisors(facts.experts) if replicas % e == 0]
    for schedule in _SCHEDULES if layout.pipeline > 1 else _SCHEDULES[:1]:
        for virtual in _VIRTUAL if schedule.startswith("interleaved") else _VIRTUAL[:1]:
            stages = layout.model_copy(update={"schedule": schedule, "virtual": virtual}).stages
            if facts.layers is None or stages <= facts.layers:  # more cannot be split, and so not estimated
                yield from ((schedule, virtual, expert) for expert in experts)


def _dominated(layout: Layout, microbatches: int) -> bool:
    """Whether 1F1B runs the same micro-batches in the same time and holds fewer of them: GPipe is for less than it takes."""
    return layout.schedule == "gpipe" and microbatches >= layout.pipeline
