"""A job's states over time, and what its gang planned."""

from pydantic import Field

from .base import Value


class Plan(Value):
    """What a gang said before its first step; null before that, and where a model of one's own does not tell."""

    parameters: int | None = None
    tokens_per_step: int | None = None
    train_tokens: int | None = Field(None, description="Of the corpus.")
    validation_tokens: int | None = None


class Span(Value):
    """A stretch of a job's life in one state. Unix seconds."""

    state: str
    attempt: int
    generation: int = Field(0, description="Of the gang; 0 before its ranks met, one more with each repair.")
    begun: float
    ended: float | None = Field(None, description="null: it lasts.")
    reason: str | None = None


class Mark(Value):
    """Something that happened to a job at one moment."""

    n: int = Field(description="Its place in the job's story.")
    ts: float = Field(description="Unix seconds.")
    kind: str = Field(description="`incident`, `repair` or `reshard`.")
    attempt: int
    about: str = Field(description="An incident's or repair's cause, or the new layout in words.")
    rank: int | None = None
    step: int | None = None


class Timeline(Value):
    """A job's life as a line, oldest first. `complete` false: it begins later than the job did."""

    spans: list[Span]
    marks: list[Mark]
    complete: bool = True
