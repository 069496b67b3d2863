"""A job's states over time, and what its gang planned."""

from pydantic import Field

from .base import Value


class Plan(Value):
    """Sizes that a gang reported before its first step; null if they are not known yet, or if a custom model does not report them."""

    parameters: int | None = None
    tokens_per_step: int | None = None
    train_tokens: int | None = Field(None, description="Number of training tokens in the corpus.")
    validation_tokens: int | None = None
    precision: str | None = Field(None, description="The dtype of computation.")
    compile: bool | None = Field(None, description="Whether blocks are compiled.")
    choices: list[str] | None = Field(
        None, description="For each option that is `auto` in the spec: its value, and why."
    )


class StateSpan(Value):
    """A period that a job spent in one state. Times are in Unix seconds."""

    state: str
    attempt: int
    generation: int = Field(
        0, description="Generation of the gang: 0 before its ranks have connected, and one more with each repair."
    )
    begun: float
    ended: float | None = Field(None, description="End of the period; null if the job is still in this state.")
    reason: str | None = None


class TimelineEvent(Value):
    """An event of a job at one point in time."""

    position: int = Field(description="Position in the job's history.")
    ts: float = Field(description="Time in Unix seconds.")
    kind: str = Field(description="Kind of event: `incident`, `repair` or `reshard`.")
    attempt: int
    about: str = Field(description="Cause of the incident or repair, or the new layout as text.")
    rank: int | None = None
    step: int | None = None


class Timeline(Value):
    """A job's states and events, oldest first. If `complete` is false, older ones are left out."""

    spans: list[StateSpan]
    marks: list[TimelineEvent]
    complete: bool = True
