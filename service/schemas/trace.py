"""Traces of steps: their summary, and their spans."""

from pydantic import Field

from .base import Timestamp, Value


class Trace(Value):
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
    asked_at: Timestamp
    settled_at: Timestamp | None = None


class Traces(Value):
    """Traces, newest first; `next` is the `before` of the next request, null at the end."""

    items: list[Trace]
    next: str | None = None


class TracedRank(Value):
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


class TracedStep(Value):
    """A step over its ranks."""

    step: int
    began: float = Field(description="Unix seconds.")
    seconds: float = Field(description="Of the rank that took longest.")
    ranks: int
    slowest_rank: int | None = Field(None, description="The rank with the most own work.")
    slower_by_s: float | None = Field(None, description="By so much more than the others' median.")
    bubble_measured: float | None = Field(None, description="Mean over ranks.")
    bubble_simulated: float | None = None


class TraceSummary(Value):
    """`ranks`, the slowest and the bubbles are of one `step`, or, where that is null, means over all steps."""

    trace: Trace
    steps: list[TracedStep]
    step: int | None = None
    ranks: list[TracedRank]
    slowest_rank: int | None = None
    slower_by_s: float | None = None
    bubble_measured: float | None = None
    bubble_simulated: float | None = None


#: Lane, category, name (indices), start and length in µs after the step's begin, micro-batch, stage.
SpanRow = tuple[int, int, int, int, int, int | None, int | None]
#: Category (index), stage, micro-batch, start and length in µs after the step's begin.
IdealRow = tuple[int, int, int, int, int]


class RankSpans(Value):
    """One rank's spans, by their start. Times are µs after the step's begin."""

    rank: int
    pipeline: int | None = None
    place: int | None = None
    began_us: int
    length_us: int
    error_us: int = 0
    lanes: list[str] = Field(description="Lane 0 is the training thread, the others what was sent in the background.")
    spans: list[SpanRow] = Field(description="Lane, category and name (indices), start, length, micro-batch, stage.")
    ideal: list[IdealRow] = Field(
        description="The ideal schedule's row: category (index), stage, micro-batch, start, length."
    )
    dropped: int = Field(0, description="Spans that are not here.")


class TraceSpans(Value):
    """One traced step as it is drawn."""

    trace: str
    step: int
    began: float = Field(description="Unix seconds.")
    length_us: int
    categories: list[str]
    names: list[str]
    ranks: list[RankSpans]
    dropped: int = 0
