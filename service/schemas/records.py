"""What the service gives out: plain frozen values, in UTC times and seconds, without a trace of SQL or HTTP."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from ...workers.elastic_layouts import Form
from ...workers.messages.fault_request import Kind
from ..cluster.interface import Node
from ..errors import InvalidCursor
from ..states import State


@dataclass(frozen=True)
class Progress:
    """How far a job is, as of its newest step. `tokens` counts all steps so far."""

    step: int
    steps: int
    loss: float | None
    tokens: int | None
    tokens_per_s: float | None
    eta_s: float | None


class Cursor(NamedTuple):
    """How far a reader of one job's story is: the last event, step and log position it has seen. Text: `e.s.l`.

    Of one who has seen samples of the ranks `e.s.l.r`.
    """

    event: int = 0
    step: int = 0
    log: int = 0
    ranks: int = 0

    def __str__(self) -> str:
        return f"{self.event}.{self.step}.{self.log}" + (f".{self.ranks}" if self.ranks else "")

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Raises `InvalidCursor` for anything but three or four counting numbers."""
        parts = text.split(".")
        if len(parts) not in (3, 4) or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
            remedy = "Use an id that the stream gave, or leave it out."
            raise InvalidCursor(f"{text[:80]!r} is not a cursor.", field="after", remedy=remedy)
        return cls(*(int(part) for part in parts))


@dataclass(frozen=True)
class Budget:
    used: int
    most: int


@dataclass(frozen=True)
class Budgets:
    """What keeps a job alive, used and allowed: new attempts by cause, and repairs in place of the newest attempt."""

    restarts: Budget  # after faults of machines
    retries: Budget  # after exceptions of the training code
    repairs: Budget


@dataclass(frozen=True)
class Job:
    """A job as of one moment. `attempt` is 0 until the first placement; `cursor` is the end of its story then.

    `retry_at`: a lost job's next attempt is not placed before; None where it does not wait for that.
    """

    id: str
    name: str
    state: State
    reason: str | None
    message: str | None
    labels: dict[str, str]
    spec: dict[str, Any]
    layout: str
    batch: str
    world_size: int
    device: str | None
    attempt: int
    restarts: int
    budgets: Budgets
    retry_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    progress: Progress | None
    summary: dict[str, Any] | None
    checkpoint: str | None
    parent: str | None  # the job whose checkpoint it began with
    cursor: Cursor


class Order(StrEnum):
    """In which jobs are listed. An index has each, so that a page begins where the one before ended, however many there are."""

    NEWEST = "newest"
    OLDEST = "oldest"
    NAME = "name"


@dataclass(frozen=True)
class Page:
    """One page of jobs; `next` is the cursor of the following page, None at the end."""

    items: list[Job]
    next: str | None


@dataclass(frozen=True)
class Step:
    """One optimizer step's record. Seconds; loss in nats per token; `mfu` from 0 to 1; a number that was not finite is None."""

    step: int
    attempt: int
    ts: float
    loss: float | None
    lr: float | None
    grad_norm: float | None
    loss_scale: float | None
    skipped: bool
    tokens: int | None
    tokens_per_s: float | None
    step_s: float | None
    step_s_min: float | None
    step_s_median: float | None
    step_s_max: float | None
    slowest_rank: int | None
    mfu: float | None


@dataclass(frozen=True)
class Evaluation:
    step: int
    loss: float | None
    unigram_loss: float | None
    ts: float


@dataclass(frozen=True)
class Metrics:
    """A job's curve. `points` are in order of step; when `downsampled`, each bucket keeps its lowest and highest loss.

    A stream that starts after `cursor` continues the curve without a gap.
    """

    points: list[Step]
    last_step: int
    downsampled: bool
    evals: list[Evaluation]
    cursor: Cursor


@dataclass(frozen=True)
class Series:
    """One number, bucket by bucket; `low` and `high` are None where each step has a bucket of its own. `last`: at the range's last step."""

    mean: list[float | None]
    low: list[float | None] | None
    high: list[float | None] | None
    last: float | None


@dataclass(frozen=True)
class Curves:
    """Columns by bucket: `starts` are their first steps, `width` how many steps each has. Series that no step had are left out."""

    width: int
    starts: list[int]
    series: dict[str, Series]
    evals: list[Evaluation]
    end: int  # the range's last step
    last_step: int
    cursor: Cursor


@dataclass(frozen=True)
class SlowRank:
    """A rank whose own work takes longer than its peers' median, in seconds, so that the others wait for it."""

    rank: int
    busy_s: float
    usual_s: float
    message: str


@dataclass(frozen=True)
class RankSample:
    """What each rank did lately: lists by rank, means over `steps` steps up to `step`. Seconds and bytes; None where it is not known.

    `axes`: mesh axis → degree, the outermost first; a rank's number counts through them, the last one fastest. `node_of` are places in
    `nodes`. `memory_of`: `allocated` (by torch, on CUDA) or `resident`. `parts`: ranks with the same number do equal work.
    """

    n: int
    ts: float
    attempt: int
    step: int
    steps: int
    axes: dict[str, int] | None
    parts: list[int] | None
    step_s: list[float | None]
    busy_s: list[float | None]
    wait_s: list[float | None]
    memory: list[int | None]
    memory_of: str | None
    nodes: list[str]
    node_of: list[int | None]
    slow: SlowRank | None


@dataclass(frozen=True)
class RankPage:
    """Samples, the newest first; `next` is the `before` of the next page. `first` and `last`: of all that are kept."""

    items: list[RankSample]
    first: int | None
    last: int | None
    next: int | None


@dataclass(frozen=True)
class Held:
    """What a rank holds of one kind: measured bytes, least and most over ranks, beside the formula's, or why there is none."""

    kind: str
    least: float | None
    most: float | None
    formula: str | None
    low: float | None
    high: float | None
    reason: str | None


@dataclass(frozen=True)
class Flow:
    """What rank 0 sends in a step of one collective on one mesh axis, measured and by formula, or why there is none."""

    axis: str
    collective: str
    calls: int | None
    elements: float | None
    bytes: float | None
    formula: str | None
    formula_elements: float | None
    formula_bytes: float | None
    reason: str | None


@dataclass(frozen=True)
class ResourcesRecord:
    """Memory and traffic of a job; `step`: the probed one that measured them, None before the first. `reason`: why no formula is known."""

    layout: str
    step: int | None
    memory: list[Held]
    traffic: list[Flow]
    reason: str | None


@dataclass(frozen=True)
class OutlineRecord:
    """A job's loss in buckets of `width` steps, the lowest and the highest of each; None where no step of it had a finite one."""

    job: str
    width: int
    low: list[float | None]
    high: list[float | None]


@dataclass(frozen=True)
class SpecWarning:
    """An option of a spec that has no effect."""

    field: str
    message: str
    remedy: str


@dataclass(frozen=True)
class Preview:
    """What a spec would run as. `parameters` is None where they cannot be counted from here; `forms` are those of an elastic job."""

    name: str
    layout: str
    batch: str
    world_size: int
    spares: int
    global_batch: int
    data: int
    microbatches: int
    micro_batch: int
    tokens_per_step: int
    tokens: int
    parameters: int | None
    forms: list[Form]
    resume: str | None
    warnings: list[SpecWarning]


@dataclass(frozen=True)
class Repair:
    """A gang's repair in place: the new generation, the step whose snapshots it began with, its first step, and seconds lost."""

    generation: int | None
    restored: int | None  # None: from a checkpoint, or from the start
    step: int | None
    seconds: float | None
    spares: list[int]  # ranks that spares took over


@dataclass(frozen=True)
class Stacks:
    """What several ranks were doing alike: all threads of one of them, the innermost frame last."""

    ranks: list[int]
    stack: str


@dataclass(frozen=True)
class Waiting:
    """A collective that `ranks` had entered and that was not done: number `seq` of a group's, whose `members` it needs."""

    ranks: list[int]
    group: str
    members: list[int]
    seq: int
    op: str
    seconds: float  # the longest of them


@dataclass(frozen=True)
class Incident:
    """Something that went wrong. `n` is its place in the job's story; `step` the newest that had been told."""

    n: int
    ts: float
    attempt: int
    cause: str
    rank: int | None
    node: str | None
    generation: int | None
    step: int | None
    message: str
    traceback: str | None
    stacks: list[Stacks]
    waiting: list[Waiting]
    log: list[str]  # the rank's last lines
    ranks: list[int]  # those that a lost node took along, or that differ from the others
    repair: Repair | None
    story: str  # one paragraph for people


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint that a gang told of; `n` is its place in the job's story."""

    n: int
    ts: float
    attempt: int
    step: int
    state: str  # present, damaged, removed
    path: str
    bytes: int | None
    seconds: float | None  # until it was complete
    held_s: float | None  # of those, training was held


@dataclass(frozen=True)
class CheckpointPage:
    """`next` is the `before` of the next page."""

    items: list[Checkpoint]
    next: int | None


@dataclass(frozen=True)
class IncidentPage:
    """`next` is the `after`, or of pages from the newest on the `before`, of the next page; None at the end."""

    items: list[Incident]
    next: int | None


@dataclass(frozen=True)
class Span:
    """A stretch of a job's life in one state. Unix seconds; `ended` None: it lasts. `generation` is 0 before the ranks met."""

    state: str
    attempt: int
    generation: int
    begun: float
    ended: float | None
    reason: str | None


@dataclass(frozen=True)
class Mark:
    """What happened at one moment: `about` is an incident's or repair's cause, or the new layout in words."""

    n: int
    ts: float
    kind: str
    attempt: int
    about: str
    rank: int | None
    step: int | None


@dataclass(frozen=True)
class LifeLine:
    """Spans and marks, oldest first. `complete` False: it begins later than the job did."""

    spans: list[Span]
    marks: list[Mark]
    complete: bool


@dataclass(frozen=True)
class StoryEntry:
    """One thing that happened to a job, as it was told; an incident's stacks and last lines aside."""

    n: int
    ts: float
    attempt: int
    kind: str
    data: dict[str, Any]


@dataclass(frozen=True)
class StoryPage:
    """Newest first. `next` is the `before` of the next page; None at the end."""

    items: list[StoryEntry]
    next: int | None


@dataclass(frozen=True)
class FaultRecord:
    """A fault that `actor` asked for. `settled_at`: when it was struck, or missed with its attempt's end."""

    id: str
    job: str
    attempt: int
    kind: Kind
    rank: int | None
    by_ms: float | None
    for_s: float | None
    actor: str
    asked_at: datetime
    settled_at: datetime | None


@dataclass(frozen=True)
class OperationRecord:
    """What `actor` has the cluster do with the checkpoint at place `n` of the job's story. `state`: waiting, running, done or failed.

    Done, it has one of `verified` and `exported` (a mapping that `workers/tasks/checkpoint_task.py` makes);
    failed, an `error`: code, message, remedy.
    """

    id: str
    job: str
    kind: str
    n: int
    step: int
    path: str
    dtype: str | None
    state: str
    verified: dict[str, Any] | None
    exported: dict[str, Any] | None
    error: dict[str, str] | None
    actor: str
    asked_at: datetime
    started_at: datetime | None
    settled_at: datetime | None


@dataclass(frozen=True)
class OperationPage:
    """`next` is the `before` of the next page."""

    items: list[OperationRecord]
    next: str | None


@dataclass(frozen=True)
class TraceRecord:
    """A trace of `steps` steps that `actor` asked for. `state`: open, done or failed, for which `message` says why.

    `parts`: how much is stored, one for each rank and step, of so many that are wanted.
    """

    id: str
    job: str
    attempt: int
    steps: int
    state: str
    message: str | None
    first_step: int | None
    last_step: int | None
    parts: int
    parts_wanted: int
    actor: str
    asked_at: datetime
    settled_at: datetime | None


@dataclass(frozen=True)
class TracePage:
    """`next` is the `before` of the next page."""

    items: list[TraceRecord]
    next: str | None


@dataclass(frozen=True)
class TracedRank:
    """Where a rank's time went, in seconds, by category. `busy_s` is what it did not wait; bubbles are shares of the schedule's time.

    `pipeline` numbers the pipelines, `place` the ranks within one; None without a pipeline.
    """

    rank: int
    pipeline: int | None
    place: int | None
    seconds: float
    error_s: float  # of its clock against rank 0's, at most
    sums: dict[str, float]
    busy_s: float
    wait_s: float
    bubble_measured: float | None
    bubble_simulated: float | None
    dropped: int  # spans that the rank did not keep


@dataclass(frozen=True)
class TracedStep:
    """A step over its ranks: how long the longest took, which worked longest by itself and by how much more than the others' median."""

    step: int
    began: float
    seconds: float
    ranks: int
    slowest_rank: int | None
    slower_by_s: float | None
    bubble_measured: float | None  # means over ranks
    bubble_simulated: float | None


@dataclass(frozen=True)
class TraceSummary:
    """`ranks` are of one `step`, or means over all steps, for which `slowest_rank` and the bubbles are too."""

    trace: TraceRecord
    steps: list[TracedStep]
    step: int | None
    ranks: list[TracedRank]
    slowest_rank: int | None
    slower_by_s: float | None
    bubble_measured: float | None
    bubble_simulated: float | None


#: lane, category, name (indices), start and length in µs after the step's begin, micro-batch, stage.
SpanRow = tuple[int, int, int, int, int, int | None, int | None]
#: category (index), stage, micro-batch, start and length in µs after the step's begin.
IdealRow = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class RankSpans:
    """One rank's spans in order of their start. `began_us`: its own begin after the step's; `dropped`: spans that are not here."""

    rank: int
    pipeline: int | None
    place: int | None
    began_us: int
    length_us: int
    error_us: int
    lanes: list[str]
    spans: list[SpanRow]
    ideal: list[IdealRow]
    dropped: int


@dataclass(frozen=True)
class StepSpans:
    """A step's spans: as many as fit, the longest of all ranks. `categories` and `names` are what the rows' indices mean."""

    trace: str
    step: int
    began: float
    length_us: int
    categories: list[str]
    names: list[str]
    ranks: list[RankSpans]
    dropped: int


@dataclass(frozen=True)
class LogLine:
    """One line: `n` is its position in the whole job's log, `line` its number within its rank's attempt."""

    n: int
    rank: int
    attempt: int
    line: int
    stream: str
    text: str
    ts: float


@dataclass(frozen=True)
class LogPage:
    """Lines in order of `n`. `next`: pass it as `after` for the lines that follow; None when there are none yet."""

    lines: list[LogLine]
    next: int | None


@dataclass(frozen=True)
class LogHits:
    """Lines that match, in order. `looked`: all up to this place was looked through; `last`: the log's last place just now."""

    lines: list[LogLine]
    looked: int
    last: int
    done: bool


@dataclass(frozen=True)
class TailItem:
    """One thing that happened. `kind` is an event's kind, `step` or `log`; `cursor` resumes right after it."""

    kind: str
    ts: float
    data: dict[str, Any]
    cursor: Cursor


@dataclass(frozen=True)
class Tail:
    """What happened after a cursor. `done`: the job has ended and nothing will ever follow these items."""

    items: list[TailItem]
    cursor: Cursor
    state: State
    done: bool


@dataclass(frozen=True)
class CordonRecord:
    """New gangs keep away from a node. `until` None: until somebody lifts it; `ended_at`: lifted before its time."""

    node: str
    since: datetime
    until: datetime | None
    by_hand: bool
    actor: str
    message: str
    ended_at: datetime | None
    ended_by: str | None


@dataclass(frozen=True)
class Devices:
    """A machine's devices of one kind, in ranks: a GPU takes one, a core several."""

    kind: str
    all: int
    free: int


@dataclass(frozen=True)
class Replicas:
    """Between which numbers of replicas an elastic job may go on."""

    min: int
    max: int


@dataclass(frozen=True)
class Holding:
    """What one job's gang has of a machine; `ranks` counts its spares too."""

    job: str
    name: str
    state: State
    ranks: int
    elastic: Replicas | None


@dataclass(frozen=True, kw_only=True)
class NodeRecord(Node):
    """A machine of the cluster, as a dispatcher last saw it at `seen_at`.

    `cluster`: which of those that share the database it is of. `faults`: attempts that it broke lately. `in_use`: new gangs may
    come to it, which of the last one is true though it is cordoned.
    """

    cluster: str
    seen_at: datetime
    faults: int
    cordon: CordonRecord | None
    in_use: bool
    devices: list[Devices]
    held: list[Holding]
    held_more: int  # gangs beyond those in `held`
