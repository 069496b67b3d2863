"""Step traces: requests, summaries and spans."""

from pydantic import Field

from .base import Timestamp, Value


class Trace(Value):
    """A requested trace of a job's steps. The event `trace_finished` reports its end."""

    id: str
    job: str
    attempt: int
    steps: int
    state: str = Field(description="State of the trace: `open`, `done` or `failed`.")
    message: str | None = Field(None, description="Why the trace failed; null if it did not.")
    first_step: int | None = None
    last_step: int | None = None
    parts: int = Field(0, description="Number of stored parts, one for each rank and step.")
    parts_wanted: int = Field(0, description="Number of parts of the complete trace.")
    actor: str = Field(description="Name of the user who requested the trace.")
    asked_at: Timestamp
    settled_at: Timestamp | None = None


class Traces(Value):
    """One page of traces, newest first. `next` is the `before` of the next request, null on the last page."""

    items: list[Trace]
    next: str | None = None


class TracedRank(Value):
    """How a rank spent its time, in seconds."""

    rank: int
    pipeline: int | None = Field(None, description="Number of the rank's pipeline; null without pipeline parallelism.")
    place: int | None = Field(None, description="Position of the rank in its pipeline.")
    seconds: float
    error_s: float = Field(0.0, description="Upper bound of the clock error against rank 0, in seconds.")
    sums: dict[str, float] = Field(
        description="Seconds by category: `forward`, `backward`, `weight`, `optimizer`, `send`, `receive`, `collective`, `data`, `other`."
    )
    busy_s: float = Field(
        description="Seconds in which the rank did not wait for others (`send`, `receive`, `collective`)."
    )
    wait_s: float = Field(description="Seconds in which the rank waited for others.")
    bubble_measured: float | None = Field(
        None, description="Pipeline bubble as a share of the schedule's time, as measured."
    )
    bubble_simulated: float | None = Field(
        None, description="Pipeline bubble of the ideal schedule with the same durations."
    )
    dropped: int = Field(0, description="Number of spans that the rank dropped. The sums include them.")


class TracedStep(Value):
    """One traced step over all its ranks."""

    step: int
    began: float = Field(description="Begin of the step in Unix seconds.")
    seconds: float = Field(description="Seconds of the slowest rank.")
    ranks: int
    slowest_rank: int | None = Field(None, description="Rank with the most compute time.")
    slower_by_s: float | None = Field(
        None, description="Seconds by which that time exceeds the median of the other ranks."
    )
    bubble_measured: float | None = Field(None, description="Mean of the measured bubble over the ranks.")
    bubble_simulated: float | None = None


class TraceSummary(Value):
    """Summary of a trace. If `step` is null, `ranks`, the slowest rank and the bubbles are means over all steps."""

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
    """The spans of one rank, in order of their start. Times are in µs after the begin of the step."""

    rank: int
    pipeline: int | None = None
    place: int | None = None
    began_us: int
    length_us: int
    error_us: int = 0
    lanes: list[str] = Field(
        description="Names of the lanes. Lane 0 is the training thread; the others are communication in the background."
    )
    spans: list[SpanRow] = Field(
        description="Rows of lane, category and name (indices), start, length, micro-batch and stage."
    )
    ideal: list[IdealRow] = Field(
        description="Rows of the ideal schedule: category (index), stage, micro-batch, start and length."
    )
    dropped: int = Field(0, description="Number of spans that are left out. A shorter period has them.")
    unrecorded: int = Field(
        0,
        description="Number of spans of the whole step that were not recorded: the shortest. No request returns them.",
    )


class TraceSpans(Value):
    """The spans of one traced step."""

    trace: str
    step: int
    began: float = Field(description="Begin of the step in Unix seconds.")
    length_us: int
    categories: list[str]
    names: list[str]
    ranks: list[RankSpans]
    dropped: int = Field(0, description="Number of spans that are left out, of all ranks.")
    unrecorded: int = Field(0, description="Number of spans that were not recorded, of all ranks.")
