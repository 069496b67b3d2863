"""What goes over the wire, for the server and the client alike: plain values, UTC times, seconds, nats per token.

Responses may grow fields: a client ignores what it does not know.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ..strategies.layout import Layout
from ..workers.messages.fault_request import Kind
from . import dataframes

#: A place in a job's story, as text: `event.step.log`, and `.ranks` of who hears of those.
CursorText = Annotated[str, BeforeValidator(str)]


class _Wire(BaseModel):
    # The server sends every field, so those with a default are said to be there: only requests may leave them out.
    model_config = ConfigDict(
        extra="ignore", frozen=True, from_attributes=True, json_schema_serialization_defaults_required=True
    )


class FieldError(_Wire):
    """One thing that is wrong, and what to do. `field` is a dotted path into the body, or a parameter's name."""

    field: str | None = None
    message: str
    remedy: str | None = None


class Progress(_Wire):
    """How far a job's training is. Losses are nats per token."""

    step: int
    steps: int
    loss: float | None = None
    tokens: int | None = None
    tokens_per_s: float | None = None
    eta_s: float | None = Field(None, description="Seconds to the last step at the pace of the last steps.")


class Summary(_Wire):
    """What a finished training tells. Losses are nats per token."""

    first_loss: float | None = Field(None, description="Of the first step.")
    last_loss: float | None = Field(None, description="Mean of the last `last_steps` steps.")
    last_steps: int | None = Field(
        None, description="A tenth of the run, from 1 to 20: a single batch's loss varies by much."
    )
    validation_loss: float | None = None
    unigram_loss: float | None = Field(
        None, description="Of a model that knows token frequencies alone, on the same validation split."
    )
    tokens: int | None = None
    tokens_per_s: float | None = None
    tokens_per_s_device: float | None = None
    mfu: float | None = Field(
        None, description="Share of the devices' peak FLOP/s, 0 to 1; null where that is not known."
    )
    mfu_formula: str | None = None
    time_to_first_step_s: float | None = Field(None, description="From the job's creation to its first step.")
    checkpoint: str | None = None
    export: str | None = Field(
        None, description="The Hugging Face folder that the job wrote (`train.checkpoint.export`)."
    )
    steps: int | None = None


class Budget(_Wire):
    used: int = 0
    most: int = 0


class Budgets(_Wire):
    """What keeps a job alive: how much of it is used."""

    restarts: Budget = Field(Budget(), description="New attempts after faults of machines.")
    retries: Budget = Field(Budget(), description="New attempts after exceptions of the training code.")
    repairs: Budget = Field(Budget(), description="Repairs in place, of the newest attempt.")


class Job(_Wire):
    """A job as the store knows it."""

    id: str
    name: str
    state: str = Field(description="queued, placing, starting, running, …, succeeded, failed, cancelled.")
    reason: str | None = Field(None, description="Code of why the job is in this state.")
    message: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    spec: dict[str, Any] = Field(default_factory=dict, title="Submitted spec")  # else generators call it `JobSpec` too
    layout: str = Field("", description="The layout in words, such as `data 2 (ZeRO-1) × tensor 2`.")
    batch: str = Field("", description="The batch maths in words.")
    world_size: int = 1
    device: str | None = Field(None, description="`cpu` or `cuda`, once decided.")
    attempt: int = 0
    restarts: int = 0
    budgets: Budgets = Budgets()
    retry_at: datetime | None = Field(None, description="A lost job's next attempt is not placed before.")
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    progress: Progress | None = None
    summary: Summary | None = None
    checkpoint: str | None = Field(None, description="Path of the newest complete checkpoint.")
    parent: str | None = Field(None, description="Id of the job whose checkpoint it began with.")
    warnings: list[FieldError] = Field(
        default_factory=list, description="In the answer to its submission: options of the spec that have no effect."
    )
    cursor: CursorText = Field("0.0.0", description="The end of the job's story now: a stream after it misses nothing.")


class Jobs(_Wire):
    """One page of jobs; `next` is the cursor of the page after it."""

    items: list[Job]
    next: str | None = None


class Form(_Wire):
    """A layout that an elastic job may have; `layout` and `batch` in words."""

    data: int
    world_size: int
    layout: str
    batch: str


class Preview(_Wire):
    """What a spec would run as, if it were submitted now."""

    name: str
    layout: str = Field(description="The layout in words.")
    batch: str = Field(description="The batch maths in words.")
    world_size: int
    spares: int = Field(0, description="Warm spares, each on a device of its own.")
    global_batch: int = Field(description="Sequences per step: data × microbatches × micro_batch.")
    data: int
    microbatches: int
    micro_batch: int
    tokens_per_step: int
    tokens: int = Field(description="Of all steps.")
    parameters: int | None = Field(
        None,
        description="null where the API cannot count them: a module of your own, or files that only the workers see.",
    )
    forms: list[Form] = Field(default_factory=list, description="Of an elastic job, the largest first.")
    resume: str | None = Field(None, description="The checkpoint that `resume_from` means now.")
    warnings: list[FieldError] = Field(default_factory=list, description="Options of the spec that have no effect.")


class Template(_Wire):
    """A spec to begin with."""

    name: str
    about: str = Field(description="What it shows.")
    text: str = Field(description="The spec as YAML.")


class Templates(_Wire):
    items: list[Template]


class Outline(_Wire):
    """A job's loss in at most 64 buckets, bucket i of the steps from i · width + 1 to (i + 1) · width; extremes stay."""

    job: str
    width: int
    low: list[float | None]
    high: list[float | None]


class Outlines(_Wire):
    """Those of the jobs that told a step."""

    items: list[Outline]


class Step(_Wire):
    """One optimizer step, over all ranks. Nats per token, seconds; a number that was not finite is null."""

    step: int
    attempt: int = 1
    ts: float | None = Field(None, description="Unix seconds.")
    loss: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    loss_scale: float | None = None
    skipped: bool = False
    tokens: int | None = None
    tokens_per_s: float | None = None
    step_s: float | None = None
    step_s_min: float | None = None
    step_s_median: float | None = None
    step_s_max: float | None = None
    slowest_rank: int | None = None
    mfu: float | None = Field(
        None, description="Share of the devices' peak FLOP/s, 0 to 1; null where that is not known."
    )


class Evaluation(_Wire):
    """One validation. Losses in nats per token."""

    step: int
    loss: float | None = None
    unigram_loss: float | None = None
    ts: float | None = Field(None, description="Unix seconds.")


class Metrics(_Wire):
    """Step records, oldest first. `downsampled` says that some steps were left out; extremes of the loss stay."""

    points: list[Step]
    last_step: int = 0
    downsampled: bool = False
    evals: list[Evaluation] = Field(default_factory=list)
    cursor: CursorText = Field("0.0.0", description="An event stream after it continues the curve without a gap.")

    def to_pandas(self) -> Any:
        """The points as a `pandas.DataFrame` by step, with `validation_loss` where one was measured. Needs the extra `pandas`."""
        return dataframes.of_metrics(self)


class Series(_Wire):
    """One number of the steps, bucket by bucket, to six digits; null where no step of a bucket had it."""

    mean: list[float | None]
    low: list[float | None] | None = Field(None, description="null where each step has a bucket of its own.")
    high: list[float | None] | None = None
    last: float | None = Field(
        None, description="At the range's last step (`end`), which shares its bucket with others."
    )


class Curves(_Wire):
    """Several numbers over a range of steps, in columns. Extremes of each bucket stay."""

    width: int = Field(description="Steps of a bucket, a power of two.")
    starts: list[int] = Field(description="First step of each bucket; those without a step are left out.")
    series: dict[str, Series] = Field(description="By name; those that no step of the range had are left out.")
    evals: list[Evaluation] = Field(default_factory=list, description="Validations of the whole job, evenly thinned.")
    end: int = Field(0, description="The last step of the range; 0 without any.")
    last_step: int = Field(0, description="The job's newest step.")
    cursor: CursorText = Field("0.0.0", description="An event stream after it continues the curves without a gap.")

    def to_pandas(self) -> Any:
        """As a `pandas.DataFrame` by each bucket's first step: means, with `…_low` and `…_high`. Needs the extra `pandas`."""
        return dataframes.of_curves(self)


class Repair(_Wire):
    """How a gang was repaired in place."""

    generation: int | None = None
    restored: int | None = Field(None, description="Step whose snapshots it went on from; null: from a checkpoint.")
    step: int | None = Field(None, description="The first step after the repair.")
    seconds: float | None = Field(None, description="From the fault's notice to that step.")
    spares: list[int] = Field(default_factory=list, description="Ranks that warm spares took over.")


class Stacks(_Wire):
    """What several ranks were doing alike."""

    ranks: list[int]
    stack: str = Field(description="All threads of one of them, the innermost frame last.")


class Waiting(_Wire):
    """A collective that some ranks had entered and that was not done."""

    ranks: list[int]
    group: str = Field(description="The mesh axis, or `world`.")
    members: list[int]
    seq: int = Field(description="Its number among the group's collectives.")
    op: str
    seconds: float = Field(description="How long they had waited.")


class Incident(_Wire):
    """Something that went wrong with a job, and what was done about it."""

    n: int = Field(description="Its place in the job's story.")
    ts: float = Field(description="Unix seconds.")
    attempt: int
    cause: str = Field(description="`rank_lost`, `node_lost`, `hang`, `exception`, … ; more may come.")
    rank: int | None = None
    node: str | None = None
    generation: int | None = None
    step: int | None = Field(None, description="The newest step that had been told.")
    message: str
    traceback: str | None = None
    stacks: list[Stacks] = Field(default_factory=list, description="Of every rank, equal ones once.")
    waiting: list[Waiting] = Field(default_factory=list)
    log: list[str] = Field(default_factory=list, description="The rank's last lines.")
    ranks: list[int] = Field(
        default_factory=list, description="Those that a lost node took along, or that differ from the others."
    )
    repair: Repair | None = None
    story: str = Field(description="One paragraph for people.")


class Incidents(_Wire):
    """Incidents in the order asked for; `next` is the `after`, or with `newest` the `before`, of the next request, null at the end."""

    items: list[Incident]
    next: int | None = None


class Plan(_Wire):
    """What a gang said before its first step; null before that, and where a model of one's own does not tell."""

    parameters: int | None = None
    tokens_per_step: int | None = None
    train_tokens: int | None = Field(None, description="Of the corpus.")
    validation_tokens: int | None = None


class Span(_Wire):
    """A stretch of a job's life in one state. Unix seconds."""

    state: str
    attempt: int
    generation: int = Field(0, description="Of the gang; 0 before its ranks met, one more with each repair.")
    begun: float
    ended: float | None = Field(None, description="null: it lasts.")
    reason: str | None = None


class Mark(_Wire):
    """Something that happened to a job at one moment."""

    n: int = Field(description="Its place in the job's story.")
    ts: float = Field(description="Unix seconds.")
    kind: str = Field(description="`incident`, `repair` or `reshard`.")
    attempt: int
    about: str = Field(description="An incident's or repair's cause, or the new layout in words.")
    rank: int | None = None
    step: int | None = None


class Timeline(_Wire):
    """A job's life as a line, oldest first. `complete` false: it begins later than the job did."""

    spans: list[Span]
    marks: list[Mark]
    complete: bool = True


class StoryEntry(_Wire):
    """One thing that happened to a job."""

    n: int = Field(description="Its place in the job's story.")
    ts: float = Field(description="Unix seconds.")
    attempt: int
    kind: Literal["state", "checkpoint", "incident", "repair", "reshard", "fault"]
    data: dict[str, Any] = Field(description="What the event tells; of an incident, not its stacks and last lines.")


class Story(_Wire):
    """What happened, newest first; `next` is the `before` of the next request, null at the end."""

    items: list[StoryEntry]
    next: int | None = None


class Checkpoint(_Wire):
    """A complete checkpoint that a job told of, and what has become of it."""

    n: int = Field(description="Its place in the job's story.")
    ts: float = Field(description="Unix seconds.")
    attempt: int
    step: int
    state: Literal["present", "damaged", "removed"] = Field(
        description="`removed`: by a later save, to make room (`train.checkpoint.keep`), or by hand, as a verification found. `damaged`: "
        "a restore or a verification found files that are not as they were saved. Neither can be resumed from, verified or exported."
    )
    path: str
    bytes: int | None = None
    seconds: float | None = Field(None, description="Until it was complete.")
    held_s: float | None = Field(None, description="Of those, training was held.")


class Checkpoints(_Wire):
    """Checkpoints, newest first; `next` is the `before` of the next request, null at the end."""

    items: list[Checkpoint]
    next: int | None = None


class Verified(_Wire):
    """How a checkpoint was found where gangs run: every file against its checksum."""

    verdict: str = Field(description="`whole`, `damaged`, or `removed` (to make room, or by hand).")
    message: str | None = Field(None, description="What is damaged.")
    damaged: list[str] = Field(description="Files that are not as they were saved, at most 20 of them.")
    damaged_files: int = 0
    files: int = Field(0, description="That were compared.")
    bytes: int = 0


class Exported(_Wire):
    """A checkpoint's weights as a Hugging Face folder, in the job's own."""

    path: str
    dtype: str
    files: int
    parameters: int
    bytes: int = Field(description="Of the files of weights.")


class OperationError(_Wire):
    code: str
    message: str
    remedy: str


class Operation(_Wire):
    """Something that the cluster was asked to do with a checkpoint. Both kinds may be asked for again."""

    id: str
    job: str
    kind: str = Field(description="`verify` or `export`.")
    n: int = Field(description="The checkpoint's place in the job's story.")
    step: int
    path: str = Field(description="The checkpoint's.")
    dtype: str | None = Field(None, description="Of an export's weights.")
    state: str = Field(description="`waiting`, `running`, `done` or `failed`.")
    verified: Verified | None = Field(None, description="When a `verify` is done.")
    exported: Exported | None = Field(None, description="When an `export` is done.")
    error: OperationError | None = Field(None, description="When it has failed.")
    actor: str = Field(description="Who asked.")
    asked_at: datetime
    started_at: datetime | None = None
    settled_at: datetime | None = Field(None, description="When it was done or failed.")


class Operations(_Wire):
    """Operations, newest first; `next` is the `before` of the next request, null at the end."""

    items: list[Operation]
    next: str | None = None


class SlowRank(_Wire):
    """A rank whose own work takes longer than its peers', so that the others wait for it."""

    rank: int
    busy_s: float = Field(description="Seconds of own work in each step.")
    usual_s: float = Field(description="The median of its peers: ranks with an equal share of the work.")
    message: str = Field(description="One sentence for people.")


class RankSample(_Wire):
    """What each rank did lately: lists by rank, means over `steps` steps up to `step`; null where it is not known."""

    n: int = Field(description="Its place among the job's samples.")
    ts: float = Field(description="Unix seconds.")
    attempt: int
    step: int
    steps: int
    axes: dict[str, int] | None = Field(
        description="Mesh axis → degree, the outermost first: ranks count through them, the last one fastest."
    )
    parts: list[int] | None = Field(description="By rank: those with the same number do equal work.")
    step_s: list[float | None] = Field(description="Seconds of a step.")
    busy_s: list[float | None] = Field(description="Of those, the rank's own work.")
    wait_s: list[float | None] = Field(description="Of those, waiting for other ranks.")
    memory: list[int | None] = Field(description="Bytes.")
    memory_of: str | None = Field(description="`allocated` (by torch, on CUDA), or `resident` (the trainer's process).")
    nodes: list[str] = Field(description="Ids of the machines.")
    node_of: list[int | None] = Field(description="By rank: place in `nodes`.")
    slow: SlowRank | None = Field(description="The rank that makes the others wait, if one does.")

    def place(self, rank: int) -> dict[str, int]:
        """A rank's coordinate on each axis; empty where the axes are not known."""
        found: dict[str, int] = {}
        for axis, degree in reversed((self.axes or {}).items()):
            rank, found[axis] = divmod(rank, degree)
        return {axis: found[axis] for axis in self.axes or {}}


class Ranks(_Wire):
    """Samples of what each rank does, newest first; `next` is the `before` of the next request, null at the end.

    Of a long job the oldest are thinned out: `first` and `last` are places of samples that are there, between them some are not.
    """

    items: list[RankSample]
    first: int | None = Field(None, description="Place of the oldest sample.")
    last: int | None = Field(None, description="Place of the newest sample.")
    next: int | None = None

    def to_pandas(self) -> Any:
        """As a `pandas.DataFrame` by attempt, step and rank, with the rank's place on each axis. Needs the extra `pandas`."""
        return dataframes.of_ranks(self)


class Held(_Wire):
    """What a rank holds of one kind, in bytes: measured beside the formula."""

    kind: str = Field(description="`parameters`, `gradients`, `optimizer`, `activations`; on CUDA `allocated`.")
    least: float | None = Field(description="Measured, the least of all ranks.")
    most: float | None = Field(description="Measured, the most of all ranks.")
    formula: str | None = Field(description="In words: Ψ parameters of the rank.")
    low: float | None = Field(description="What the formula says, the least of all ranks or its lower bound.")
    high: float | None = Field(description="What the formula says, the most of all ranks or its upper bound.")
    reason: str | None = Field(description="Why there is no formula.")


class Flow(_Wire):
    """What rank 0 sends in a step of one collective on one mesh axis: logical traffic, whatever the backend does."""

    axis: str
    collective: str
    calls: int | None = Field(description="Measured, as are `elements` and `bytes`.")
    elements: float | None
    bytes: float | None
    formula: str | None = Field(description="In words.")
    formula_elements: float | None
    formula_bytes: float | None
    reason: str | None = Field(description="Why there is no formula.")


class JobResources(_Wire):
    """Memory and traffic of a job, by formula and as its newest probe measured them."""

    layout: str
    step: int | None = Field(description="The probed step; null before the first.")
    memory: list[Held]
    traffic: list[Flow]
    reason: str | None = Field(description="Why there is no formula at all.")


class FaultRequest(BaseModel):
    """A fault to strike a running job with. Each strikes once."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    kind: Kind = Field(
        description="`kill-rank` (its trainer), `kill-actor` (the rank's actor), `hang-rank` (its trainer is stopped), `slow-rank`, "
        "`kill-supervisor`, `corrupt-checkpoint` (a bit of the newest)."
    )
    rank: int | None = Field(None, ge=0, le=2**31 - 1, description="Of the kinds that end in a rank or actor.")
    by_ms: float | None = Field(
        None, gt=0, le=60_000, allow_inf_nan=False, description="`slow-rank`: per step; 50 if not said."
    )
    for_s: float | None = Field(
        None, gt=0, le=86_400, allow_inf_nan=False, description="`slow-rank`: for so long; 20 if not said."
    )


class Fault(_Wire):
    """A fault that was asked for. The event `fault` tells when it was struck, and what was done."""

    id: str
    job: str
    attempt: int = Field(description="The attempt that it is meant for: one that ends before is not struck.")
    kind: str
    rank: int | None = None
    by_ms: float | None = None
    for_s: float | None = None
    actor: str = Field(description="Who asked.")
    asked_at: datetime
    settled_at: datetime | None = Field(None, description="When it was struck, or missed.")


class Trace(_Wire):
    """A trace of a job's steps that was asked for. The event `trace_finished` reports its end."""

    id: str
    job: str
    attempt: int
    steps: int
    state: str = Field(description="`open`, `done` or `failed`.")
    message: str | None = Field(None, description="Why it failed.")
    first_step: int | None = None
    last_step: int | None = None
    parts: int = Field(0, description="What is stored, one for each rank and step.")
    parts_wanted: int = 0
    actor: str = Field(description="Who asked.")
    asked_at: datetime
    settled_at: datetime | None = None


class Traces(_Wire):
    """Traces, newest first; `next` is the `before` of the next request, null at the end."""

    items: list[Trace]
    next: str | None = None


class TracedRank(_Wire):
    """Where a rank's time went, in seconds."""

    rank: int
    pipeline: int | None = Field(None, description="Number of its pipeline; null without one.")
    place: int | None = Field(None, description="Its place in the pipeline.")
    seconds: float
    error_s: float = Field(0.0, description="Of its clock against rank 0's, at most.")
    sums: dict[str, float] = Field(
        description="By category: `forward`, `backward`, `weight`, `optimizer`, `send`, `receive`, `collective`, `data`, `other`."
    )
    busy_s: float = Field(description="What it did not wait for others (`send`, `receive`, `collective`).")
    wait_s: float
    bubble_measured: float | None = Field(None, description="Share of the schedule's time.")
    bubble_simulated: float | None = Field(None, description="Of the ideal schedule of the same durations.")
    dropped: int = Field(0, description="Spans that the rank did not keep; the sums have them.")


class TracedStep(_Wire):
    """A step over its ranks."""

    step: int
    began: float = Field(description="Unix seconds.")
    seconds: float = Field(description="Of the rank that took longest.")
    ranks: int
    slowest_rank: int | None = Field(None, description="The rank with the most own work.")
    slower_by_s: float | None = Field(None, description="By so much more than the others' median.")
    bubble_measured: float | None = Field(None, description="Mean over ranks.")
    bubble_simulated: float | None = None


class TraceSummary(_Wire):
    """`ranks`, the slowest and the bubbles are of one `step`, or, where that is null, means over all steps."""

    trace: Trace
    steps: list[TracedStep]
    step: int | None = None
    ranks: list[TracedRank]
    slowest_rank: int | None = None
    slower_by_s: float | None = None
    bubble_measured: float | None = None
    bubble_simulated: float | None = None


class RankSpans(_Wire):
    """One rank's spans, by their start. Times are µs after the step's begin."""

    rank: int
    pipeline: int | None = None
    place: int | None = None
    began_us: int
    length_us: int
    error_us: int = 0
    lanes: list[str] = Field(description="Lane 0 is the training thread, the others what was sent in the background.")
    spans: list[tuple[int, int, int, int, int, int | None, int | None]] = Field(
        description="Lane, category and name (indices), start, length, micro-batch, stage."
    )
    ideal: list[tuple[int, int, int, int, int]] = Field(
        description="The ideal schedule's row: category (index), stage, micro-batch, start, length."
    )
    dropped: int = Field(0, description="Spans that are not here.")


class TraceSpans(_Wire):
    """One traced step as it is drawn."""

    trace: str
    step: int
    began: float = Field(description="Unix seconds.")
    length_us: int
    categories: list[str]
    names: list[str]
    ranks: list[RankSpans]
    dropped: int = 0


class LogLine(_Wire):
    """One line of one rank. `n` is its place in the job's log, `line` its place in the rank's stream."""

    n: int
    rank: int
    attempt: int = 1
    line: int = 0
    stream: str = "stdout"
    text: str
    ts: float | None = Field(None, description="Unix seconds.")


class Logs(_Wire):
    """Log lines in order; `next` is the `after` of the next request, null when there is no more for now."""

    lines: list[LogLine]
    next: int | None = None


class LogHits(_Wire):
    """Lines that match, in order, of the stretch that was looked through. A log is never looked through as a whole."""

    lines: list[LogLine]
    looked: int = Field(description="How far: pass it as `after` to look on.")
    last: int = Field(description="The log's last place just now.")
    done: bool = Field(description="The log's end was reached.")


class Cordon(_Wire):
    """New gangs keep away from a machine."""

    node: str
    since: datetime
    until: datetime | None = Field(None, description="null: until somebody lifts it.")
    by_hand: bool = Field(False, description="An operator's word; else the machine's faults brought it about.")
    actor: str = ""
    message: str = ""
    ended_at: datetime | None = Field(None, description="Lifted before its time.")
    ended_by: str | None = None


class Cordons(_Wire):
    """Cordons, the newest first."""

    items: list[Cordon]


class Devices(_Wire):
    """A machine's devices of one kind, in ranks: a GPU takes one, a core SHARDYARD_CPU_RANKS_PER_CORE."""

    kind: str = Field(description="`cpu` or `cuda`.")
    all: int
    free: int


class Replicas(_Wire):
    min: int
    max: int


class Holding(_Wire):
    """What one job's gang has of a machine."""

    job: str
    name: str
    state: str
    ranks: int = Field(description="Devices, those of its spares too.")
    elastic: Replicas | None = Field(None, description="Between which numbers of replicas the job may go on.")


class Node(_Wire):
    """One machine of the cluster."""

    id: str
    host: str
    cluster: str = Field(description="Its cluster's name (SHARDYARD_CLUSTER): several may share a database.")
    alive: bool
    cpu: float
    gpu: float
    cpu_used: float = 0
    gpu_used: float = 0
    memory_bytes: int = 0
    seen_at: datetime | None = None
    faults: int = Field(0, description="Attempts that it broke lately (SHARDYARD_CORDON_WINDOW_S).")
    cordon: Cordon | None = Field(None, description="What keeps new gangs away from it now.")
    in_use: bool = Field(
        True, description="New gangs may come to it; true of the last one, too, when faults cordoned all."
    )
    devices: list[Devices] = Field(default_factory=list)
    held: list[Holding] = Field(default_factory=list, description="Who has them, the largest first.")
    held_more: int = Field(0, description="Gangs beyond those in `held`.")


class Nodes(_Wire):
    items: list[Node]


class Server(_Wire):
    """What this control plane is, and what it allows."""

    version: str
    fault_injection: bool = Field(description="Faults may be struck at running jobs (SHARDYARD_FAULT_INJECTION).")
    authentication: bool = Field(True, description="Whether it asks for an access token.")


class LayoutChange(BaseModel):
    """The layout that a job goes on with."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    layout: Layout


class SignIn(BaseModel):
    """What signs a browser in: one of the two."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    token: str | None = Field(None, max_length=1024, description="The access token.")
    code: str | None = Field(None, max_length=1024, description="Of `shardyard open`; good once.")


class Session(_Wire):
    """A browser's session; its cookie comes with the answer."""

    seconds: int = Field(description="Until it ends.")


class SignInCode(_Wire):
    """A code that signs a browser in once, in the fragment of a page's address: `#code=…`."""

    code: str
    seconds: int = Field(description="Until it expires.")


class Health(_Wire):
    status: str


class Check(_Wire):
    """One thing that the API needs."""

    ok: bool
    code: str | None = Field(None, description="What is wrong, as in a refusal's `code`.")
    message: str | None = None
    remedy: str | None = None


class Readiness(_Wire):
    """Whether this API can do its work: `status` is `ready`, `degraded` (it serves what is stored) or `unready`."""

    status: str
    checks: dict[str, Check]


class Problem(_Wire):
    """RFC 9457 problem details; `code` is stable, `detail` is for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    instance: str | None = None
    errors: list[FieldError] = Field(default_factory=list)
