"""A job as its row and newest step have it."""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ...strategies.layout import Layout
from .base import Timestamp, Value
from .cursor import CursorText
from .problem import FieldError


class Progress(Value):
    """How far a job's training is. Losses are nats per token."""

    step: int
    steps: int
    loss: float | None = None
    tokens: int | None = None
    tokens_per_s: float | None = None
    eta_s: float | None = Field(None, description="Seconds to the last step at the pace of the last steps.")


class Summary(Value):
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


class Budget(Value):
    used: int = 0
    most: int = 0


class Budgets(Value):
    """What keeps a job alive: how much of it is used."""

    restarts: Budget = Field(Budget(), description="New attempts after faults of machines.")
    retries: Budget = Field(Budget(), description="New attempts after exceptions of the training code.")
    repairs: Budget = Field(Budget(), description="Repairs in place, of the newest attempt.")


class Job(Value):
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
    retry_at: Timestamp | None = Field(None, description="A lost job's next attempt is not placed before.")
    created_at: Timestamp
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    progress: Progress | None = None
    summary: Summary | None = None
    checkpoint: str | None = Field(None, description="Path of the newest complete checkpoint.")
    parent: str | None = Field(None, description="Id of the job whose checkpoint it began with.")
    warnings: list[FieldError] = Field(
        default_factory=list, description="In the answer to its submission: options of the spec that have no effect."
    )
    cursor: CursorText = Field("0.0.0", description="The end of the job's story now: a stream after it misses nothing.")


class Order(StrEnum):
    """In which jobs are listed. An index has each, so that a page begins where the one before ended, however many there are."""

    NEWEST = "newest"
    OLDEST = "oldest"
    NAME = "name"


class Jobs(Value):
    """One page of jobs; `next` is the cursor of the page after it."""

    items: list[Job]
    next: str | None = None


class LayoutChange(BaseModel):
    """The layout that a job goes on with."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    layout: Layout
