"""The layout: how many ranks each mesh axis has, and its batch maths. Imports no torch.

`layout_rules.py` says which layouts a model may take. Each refusal names the field, says what is wrong, and gives the nearest value that
would work.
"""

from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticKnownError

from .auto_layout import AutoLayout
from .batch import Batch
from .elastic import MOST, DataRange, number_or_range
from .layout_text import format_layout
from .number_object import beside_the_number
from .pipeline_shape import PipelineShape, StageBlocks, StageSplit, stages_or_shape
from .server_options import ParameterServer
from .tensor_shape import MOST_RANKS, Division, TensorShape, degree_or_shape
from .zero_plus_plus import ZeroPlusPlus

Schedule = Literal[
    "gpipe", "1f1b", "interleaved", "interleaved-zb", "zb-h1", "zb-h2", "zbv", "dualpipev", "2bw", "pipedream"
]
ContextMethod = Literal["ring", "all-gather", "ring-self-attention"]

#: Schedules whose stages go down the ranks and back up: the first rank holds the first stage and the last.
V_SCHEDULES = ("zbv", "dualpipev")

#: Schedules that are not flushed between steps: a step's gradients are taken at older weights than those that they change.
DELAYED = ("2bw", "pipedream")

#: Mesh axes from the outermost (slowest link) to the innermost (fastest link): ranks of one tensor group are neighbours.
AXES = ("pipeline", "data", "context", "tensor")


class Refusal(ValueError):
    """A combination that cannot run: `field` (dotted, inside the train spec), what is wrong, and the nearest thing that works."""

    def __init__(self, field: str, message: str, remedy: str) -> None:
        super().__init__(f"{field}: {message} {remedy}".removeprefix(": "))
        self.field = field
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True)
class ModelFacts:
    """What a layout must know of a model. `None` where a user's own model does not say."""

    layers: int | None
    heads: int | None
    kv_heads: int | None
    hidden: int | None  # the feed-forward width
    experts: int | None = None  # per mixture-of-experts layer
    dim: int | None = None  # the width of hidden states
    tied: bool = False  # whether the embedding and the head share a weight


class Layout(BaseModel):
    """The degrees and variants of parallelism. The world size is `data × context × tensor × pipeline`, and parameter servers beside."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: int = Field(
        1,
        ge=1,
        le=MOST,
        description="Data-parallel degree: replicas of the model (sharded when `zero` > 0). "
        "`{min: 1, max: 4}`: as many of them as there are devices for.",
        json_schema_extra=number_or_range,
    )
    elastic: DataRange | None = Field(
        None, description="The degrees between which the service may change `data`; what `data: {min, max}` becomes."
    )
    zero: Literal[0, 1, 2, 3] = Field(
        0,
        description="ZeRO stage over data × context: 0 replicates, 1 shards optimizer state, 2 also gradients, 3 also parameters.",
    )
    shard: int | None = Field(
        None,
        ge=2,
        le=65536,
        description="ZeRO-3 only: shard inside groups of this many neighbouring replicas, replicate across groups (HSDP).",
    )
    zero_plus_plus: ZeroPlusPlus | None = Field(
        None, description="ZeRO++'s smaller messages: `{weights: int8, secondary: 4, gradients: int4}`, each alone too."
    )
    tensor: int = Field(
        1,
        ge=1,
        le=MOST_RANKS,
        description="Tensor-parallel degree (Megatron column/row split of each block). "
        "`{mode: 2d, shape: [2, 2]}`: blocks of every matrix and activation on a grid of ranks; also `2.5d` and `3d`, with [2, 2, 2].",
        json_schema_extra=degree_or_shape,
    )
    tensor_shape: TensorShape | None = Field(
        None, description="The shape of the tensor group; what `tensor: {mode: 2d, shape: [q, q]}` becomes."
    )
    sequence: bool = Field(
        True, description="Sequence parallelism over the tensor axis; without effect when `tensor` is 1."
    )
    context: int = Field(
        1, ge=1, le=1024, description="Context-parallel degree: parts of each sequence on different ranks."
    )
    ulysses: int = Field(
        1,
        ge=1,
        le=1024,
        description="Part of `context` that exchanges heads for positions (Ulysses); the rest, context / ulysses, is a ring.",
    )
    context_inner: Literal["ulysses", "ring"] = Field(
        "ulysses",
        description="Which ranks of `context` are neighbours: those that exchange heads (`ulysses`) or those of a ring (`ring`); "
        "without effect unless there are both.",
    )
    context_method: ContextMethod = Field(
        "ring",
        description="How ranks of a ring get each other's keys and values: passed on rank by rank (`ring`), all at once "
        "(`all-gather`, for short sequences), or rank by rank with all scores kept (`ring-self-attention`, 2105.13120); "
        "without effect where context / ulysses is 1.",
    )
    ring_window: int | None = Field(
        None,
        ge=2,
        le=512,
        description="Double ring: keys and values travel around windows of this many neighbouring ranks of a ring, and then to the next "
        "window.",
    )
    pipeline: int = Field(
        1,
        ge=1,
        le=1024,
        description="Pipeline-parallel degree: consecutive layers on different ranks. "
        "`{stages: 4, split: profile}`: split by measured times; `{stages: 4, blocks: [2, 3, 3, 2]}`: as you say.",
        json_schema_extra=stages_or_shape,
    )
    pipeline_split: StageSplit = Field(
        "flops", description="What `pipeline: {stages, split}` becomes beside the number."
    )
    pipeline_blocks: StageBlocks | None = Field(
        None, description="What `pipeline: {stages, blocks}` becomes beside the number."
    )
    schedule: Schedule = Field(
        "1f1b",
        description="Pipeline schedule; without effect when `pipeline` is 1. `2bw` applies each gradient one step late, which changes the "
        "optimisation, and has no bubble between steps; `pipedream` up to `pipeline` − 1 steps, by stage, and takes longer than "
        "`1f1b` unless `optimizer.clip_norm` is null. `dualpipev` hides all-to-alls.",
    )
    vertical_sync: bool = Field(
        False,
        description="`pipedream` only: a step's minibatch uses one version of the weights in all stages, `pipeline` − 1 steps old.",
    )
    virtual: int = Field(
        2,
        ge=2,
        le=16,
        description="Stages per rank of the `interleaved` and `interleaved-zb` schedules (`zbv` and `dualpipev` have two).",
    )
    expert: int = Field(
        1,
        ge=1,
        le=1024,
        description="Expert-parallel degree: the experts of each layer spread over that many neighbouring replicas (model family `moe`).",
    )
    parameter_server: ParameterServer | None = Field(
        None,
        description="`{servers: 2}`: that many further ranks hold parameters and optimizer state; `data` workers push gradients to them "
        "and pull values, on CPUs. Not with another axis, nor with `zero`. Each step equals data parallelism, or with "
        "`{servers: 2, mode: stale, bound: 2}` or `mode: async` workers do not wait for each other, which changes the optimisation.",
    )
    micro_batch: int | None = Field(
        None,
        ge=1,
        description="Sequences per micro-batch. Default: the whole share of a data rank, or what fills the pipeline.",
    )
    auto: AutoLayout | None = Field(
        None,
        description="The layout advisor chooses the layout when the job is submitted: `{world: 8}`, or `{}` for all devices. Fields "
        "beside it are kept as they are. `layout: auto` is the same as `layout: {auto: {}}`.",
    )

    @model_validator(mode="before")
    @classmethod
    def _objects_beside_the_degrees(cls, given: Any) -> Any:
        for field, kind in (("data", DataRange), ("tensor", TensorShape), ("pipeline", PipelineShape)):
            given = beside_the_number(given, field, kind)
        return given

    @field_validator("zero", mode="before")
    @classmethod
    def _stage_is_a_whole_number(cls, given: Any) -> Any:
        """Raises where a literal takes what equals its choice: `true` for 1, `2.0` for 2."""
        if isinstance(given, bool | float):
            raise PydanticKnownError("int_type")
        return given

    @field_validator("elastic")
    @classmethod
    def _degree_within(cls, given: DataRange | None, info: ValidationInfo) -> DataRange | None:
        if given is not None and info.data.get("data", given.max) not in given:
            raise ValueError(f"data {info.data['data']} is not within {given}")
        return given

    @field_validator("tensor_shape")
    @classmethod
    def _shape_of_the_degree(cls, given: TensorShape | None, info: ValidationInfo) -> TensorShape | None:
        if given is not None and info.data.get("tensor", given.ranks) != given.ranks:
            raise ValueError(f"a grid of {given} has {given.ranks} ranks, and tensor is {info.data['tensor']}")
        return given

    @property
    def division(self) -> Division:
        """How the shape of a tensor group divides hidden states and a micro-batch: into one part without a shape."""
        return Division() if self.tensor_shape is None else self.tensor_shape.division

    @property
    def world_size(self) -> int:
        return self.data * self.context * self.tensor * self.pipeline + self.servers

    @property
    def servers(self) -> int:
        """Parameter servers: the last ranks, after all workers."""
        return 0 if self.parameter_server is None else self.parameter_server.servers

    @property
    def degrees(self) -> dict[str, int]:
        """Mesh axis → degree, in the order of `AXES`."""
        return {"pipeline": self.pipeline, "data": self.data, "context": self.context, "tensor": self.tensor}

    def place(self, rank: int) -> dict[str, int]:
        """A rank's coordinate on each axis: `rank = ((pipeline · D + data) · C + context) · T + tensor`."""
        coordinates: dict[str, int] = {}
        for axis, degree in reversed(self.degrees.items()):
            rank, coordinates[axis] = divmod(rank, degree)
        return {axis: coordinates[axis] for axis in AXES}

    def part(self, rank: int) -> int:
        """Number of a rank's share of a step's work: ranks with the same do equal work, if on other tokens or other columns."""
        if rank >= self.world_size - self.servers:
            return self.pipeline * self.expert
        place = self.place(rank)
        replica = place["data"] * self.context + place["context"]
        return place["pipeline"] * self.expert + replica % self.expert

    @property
    def ring(self) -> int:
        """The part of the context degree around which keys and values travel."""
        return self.context // self.ulysses

    @property
    def stages_per_rank(self) -> int:
        if self.pipeline == 1:
            return 1
        if self.schedule in V_SCHEDULES:
            return 2
        return self.virtual if self.schedule.startswith("interleaved") else 1

    @property
    def stages(self) -> int:
        return self.pipeline * self.stages_per_rank

    @property
    def versions(self) -> int:
        """The most versions of its weights that a rank holds: the first of its pipeline."""
        return {"2bw": 2, "pipedream": self.pipeline}.get(self.schedule, 1) if self.pipeline > 1 else 1

    def stages_of(self, pipeline_rank: int) -> list[int]:
        """The stages a pipeline rank holds: r, r+p, … for loops; r and 2p−1−r for the V of ZBV (2401.10241, section 6) and DualPipeV."""
        if self.pipeline > 1 and self.schedule in V_SCHEDULES:
            return [pipeline_rank, 2 * self.pipeline - 1 - pipeline_rank]
        return [pipeline_rank + self.pipeline * turn for turn in range(self.stages_per_rank)]

    def __str__(self) -> str:
        return format_layout(self)

    def batch(self, global_batch: int) -> Batch:
        """Derive the batch maths once. Raises `Refusal` where `global_batch` cannot be divided so."""
        share, rest = divmod(global_batch, self.data)
        if rest or share == 0:
            nearest = max(self.data, round(global_batch / self.data) * self.data)
            raise Refusal(
                "global_batch",
                f"{global_batch} sequences do not divide over {self.data} data ranks.",
                f"Use a multiple of {self.data}, for example {nearest}.",
            )
        if self.micro_batch is None:
            _check_rows(self, share, share)  # without a multiple of the rows there is no micro-batch to choose
        micro = self.micro_batch or _default_micro_batch(self, share)
        microbatches, rest = divmod(share, micro)
        if rest or microbatches == 0:
            raise Refusal(
                "layout.micro_batch",
                f"a data rank's share of {share} sequences does not divide into micro-batches of {micro}.",
                f"Use a divisor of {share}: {divisors(share)}.",
            )
        _check_rows(self, micro, share)
        _check_microbatches(self, microbatches, share)
        return Batch(global_batch, self.data, microbatches, micro)

    @property
    def least_microbatches(self) -> int:
        """The fewest micro-batches of a step: one per rank, in DualPipeV one per stage; GPipe, like no pipeline, takes any number.

        ZB-H2's first rank begins with 2p − 1 forward passes. In 2BW (2006.09503, section 3.1) m ≥ p, so that two versions are enough.
        """
        if self.pipeline == 1 or self.schedule in ("gpipe", "pipedream"):
            return 1
        if self.schedule == "zb-h2":
            return 2 * self.pipeline - 1
        return self.stages if self.schedule == "dualpipev" else self.pipeline

    def microbatch_problem(self, microbatches: int) -> str | None:
        """Why the schedule cannot run this number of micro-batches, or None. See docs/design/parallel-pipeline.md."""
        if self.pipeline == 1 or self.schedule == "gpipe":
            return None
        if self.schedule == "pipedream" and microbatches > 1:
            return "the pipedream schedule updates the weights after each micro-batch, of which a step has one"
        if microbatches < self.least_microbatches:
            return f"the {self.schedule} schedule needs at least {self.least_microbatches} micro-batches to fill its pipeline"
        if self.schedule.startswith("interleaved") and microbatches % (microbatches // self.pipeline):
            return f"the {self.schedule} schedule runs its micro-batches in equal rounds"
        return None

    def with_(self, **changes: object) -> Self:
        """A changed copy, validated again."""
        return type(self).model_validate({**self.model_dump(), **changes})


def divides_hidden(layout: Layout) -> bool:
    """Whether each tensor rank holds a part of the hidden state between layers: with sequence parallelism, and on a grid."""
    return layout.sequence or layout.tensor_shape is not None


def own_clocks(layout: Layout) -> bool:
    """Whether each worker of parameter servers has a clock of its own, and applies its gradients without the others."""
    return layout.parameter_server is not None and layout.parameter_server.ahead is not None


def profiled(layout: Layout) -> bool:
    """Whether measured times decide which blocks a stage has."""
    return layout.pipeline > 1 and layout.pipeline_split == "profile"


def _default_micro_batch(layout: Layout, share: int) -> int:
    """Without a pipeline the whole share; with one, the largest micro-batch that fills it twice over, or else the smallest."""
    if layout.pipeline == 1:
        return share
    legal = legal_sizes(layout, share)
    full = [d for d in legal if share // d >= 2 * layout.pipeline]
    return max(full) if full else min(legal, default=layout.division.rows)


def legal_sizes(layout: Layout, share: int) -> list[int]:
    """Micro-batches of `share` sequences that rows and schedule allow."""
    rows = layout.division.rows
    return [d for d in divisors(share) if d % rows == 0 and layout.microbatch_problem(share // d) is None]


def _check_microbatches(layout: Layout, microbatches: int, share: int) -> None:
    problem = layout.microbatch_problem(microbatches)
    if problem is None:
        return
    legal = legal_sizes(layout, share)
    if legal:
        remedy = f"Set layout.micro_batch to one of {legal}."
        raise Refusal("layout.micro_batch", f"{microbatches} micro-batches: {problem}.", remedy)
    least = layout.data * (layout.micro_batch or layout.division.rows) * layout.least_microbatches
    raise Refusal(
        "global_batch",
        f"{microbatches} micro-batches: {problem}.",
        f"Use a global_batch of at least {least}, a multiple of it, or layout.schedule: gpipe.",
    )


def _check_rows(layout: Layout, micro: int, share: int) -> None:
    """Each row of a grid takes as many sequences of a micro-batch as the others."""
    rows = layout.division.rows
    if micro % rows == 0:
        return
    legal, multiple = [d for d in divisors(share) if d % rows == 0], layout.data * rows
    example = multiple * layout.least_microbatches
    both = "" if layout.micro_batch is None else f" And leave layout.micro_batch out, or use a multiple of {rows}."
    raise Refusal(
        "layout.micro_batch" if legal else "global_batch",
        f"a micro-batch of {micro} sequences does not divide over the {rows} rows of layout.tensor.",
        f"Use one of {legal}." if legal else f"Use a multiple of {multiple}, for example {example}.{both}",
    )


def divisors(n: int) -> list[int]:
    """The divisors of `n`, in order."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})
