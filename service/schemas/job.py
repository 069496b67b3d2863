"""Jobs: state, progress, summary, and lists of them."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from ...strategies.layout import Layout, Refusal
from ..program_spec import CommandLayout
from ..spec import Labels, Name
from .base import Timestamp, Value
from .certificate import JobCertificate
from .cursor import CursorText
from .problem import FieldError
from .system import JobUse

#: Maximum number of characters of a job's notes.
LONGEST_NOTES = 16_384


class Progress(Value):
    """Training progress of a job. Losses are in nats per token."""

    step: int
    steps: int
    loss: float | None = None
    tokens: int | None = None
    tokens_per_s: float | None = None
    eta_s: float | None = Field(
        None, description="Estimated seconds to the last step, at the speed of the most recent steps."
    )


class Summary(Value):
    """Results of a finished training run. Losses are in nats per token."""

    first_loss: float | None = Field(None, description="Loss of the first step with a finite loss; fp16 skips others.")
    last_loss: float | None = Field(None, description="Mean loss of the last `last_steps` steps with a finite loss.")
    last_steps: int | None = Field(
        None, description="Number of steps averaged in `last_loss`: a tenth of the run, from 1 to 20."
    )
    validation_loss: float | None = None
    unigram_loss: float | None = Field(
        None, description="Loss of a unigram model (token frequencies only) on the same validation split."
    )
    tokens: int | None = None
    tokens_per_s: float | None = None
    tokens_per_s_device: float | None = None
    mfu: float | None = Field(
        None, description="Model FLOPs utilization, from 0 to 1; null if the devices' peak FLOP/s is not known."
    )
    mfu_formula: str | None = None
    time_to_first_step_s: float | None = Field(None, description="Seconds from the job's creation to its first step.")
    checkpoint: str | None = None
    export: str | None = Field(
        None, description="Path of the Hugging Face folder that the job wrote (`train.checkpoint.export`)."
    )
    steps: int | None = None


class Budget(Value):
    """How many attempts or repairs are used, and how many are allowed."""

    used: int = 0
    limit: int = 0


class Budgets(Value):
    """How many new attempts and repairs a job has used, and how many it is allowed."""

    restarts: Budget = Field(Budget(), description="New attempts after machine faults.")
    retries: Budget = Field(Budget(), description="New attempts after exceptions in the training code.")
    repairs: Budget = Field(Budget(), description="Repairs in place during the newest attempt.")


class TimeLimit(Value):
    """For how long a job may hold devices (`policy.max_duration`). Time in the queue and paused time do not count."""

    limit_s: float = Field(description="Seconds for which it may hold devices.")
    used_s: float = Field(description="Seconds for which it has held devices, in all attempts.")
    ends_at: Timestamp | None = Field(
        None, description="When the job is stopped, if it holds its devices until then; null while it holds none."
    )


class JobFiles(Value):
    """What one source of a job's `files` had when the job first read it."""

    target: str = Field(description="Path at which the program finds the files.")
    source: str = Field(description="Where they come from, as the spec says.")
    revision: str | None = Field(None, description="Commit of a repository of the Hugging Face Hub.")
    digest: str | None = Field(
        None,
        description="Digest of names, sizes and checksums; null for a path that all nodes see, which is not copied.",
    )
    files: int | None = Field(None, description="Number of files; null for a path that all nodes see.")
    bytes: int | None = Field(None, description="Size of all files; null for a path that all nodes see.")


class Job(Value):
    """A job as it is stored."""

    id: str
    name: str
    actor: str = Field("", description="Name of the user who submitted the job.")
    state: str = Field(
        description="The job's state: queued, placing, starting, running, …, succeeded, failed or cancelled."
    )
    reason: str | None = Field(None, description="Code of the reason for this state.")
    message: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    notes: str = Field("", description="Notes of the users, plain text of several lines.")
    spec: dict[str, Any] = Field(default_factory=dict, title="Submitted spec")  # else generators call it `JobSpec` too
    layout: str = Field("", description="The parallel layout as text, such as `data 2 (ZeRO-1) × tensor 2`.")
    layout_choice: str | None = Field(
        None,
        description="For which devices the layout advisor chose the layout, and the predicted time of a step; null if the spec says the "
        "layout.",
    )
    batch: str = Field("", description="How the global batch is split, as text.")
    world_size: int = 1
    device: str | None = Field(None, description="`cpu` or `cuda`; null until the scheduler has chosen.")
    attempt: int = 0
    restarts: int = 0
    budgets: Budgets = Budgets()
    time_limit: TimeLimit | None = Field(
        None,
        description="What is used of `policy.max_duration`; null without one, in lists of jobs, and in the response to a change.",
    )
    retry_at: Timestamp | None = Field(
        None, description="Earliest time of the next attempt; null if the job is not backing off."
    )
    created_at: Timestamp
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    device_s: float | None = Field(
        None,
        description="Device-seconds of its attempts, up to now for one that has not ended; null before its first attempt, and in the "
        "response to a change.",
    )
    progress: Progress | None = None
    use: JobUse | None = Field(None, description="What its ranks use; null without a sample, and when it has no ranks.")
    summary: Summary | None = None
    checkpoint: str | None = Field(None, description="Path of the newest complete checkpoint.")
    parent: str | None = Field(None, description="Id of the job whose checkpoint this job resumed from.")
    retry_of: str | None = Field(None, description="Id of the job that this job retries.")
    retried_by: str | None = Field(None, description="Id of the newest job that retries this job.")
    pinned: bool = Field(False, description="Whether the job is kept: it cannot be deleted, whatever its age.")
    deleted_at: Timestamp | None = Field(
        None, description="When the job was deleted; it can be restored until it is removed. null: it is not deleted."
    )
    deleted_by: str | None = Field(None, description="Who deleted the job; `retention`: it was deleted by its age.")
    files: list[JobFiles] = Field(
        default_factory=list,
        description="What the sources of the spec's `files` had when the job first read them; empty before that, and in lists of jobs.",
    )
    certificate: JobCertificate | None = Field(
        None, description="What `shardyard verify --job` found; null if there is no certificate, and in lists of jobs."
    )
    warnings: list[FieldError] = Field(
        default_factory=list,
        description="Warnings about the spec, as a preview has them; set in the response to a submission only.",
    )
    cursor: CursorText = Field(
        "0.0.0", description="Cursor at the end of the job's events. A stream after it misses no event."
    )


class Jobs(Value):
    """One page of jobs. `next` is the cursor of the following page, null on the last one."""

    items: list[Job]
    next: str | None = None


class LayoutChange(BaseModel):
    """The layout with which a job continues. That of a job that runs a command is its ranks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    layout: Layout | CommandLayout


class JobClone(BaseModel):
    """In what a clone differs from its job."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Name | None = Field(None, description="Name of the new job. Default: that of the old one, with `-clone`.")
    set: dict[Annotated[str, StringConstraints(min_length=1, max_length=200)], Any] = Field(
        default_factory=dict,
        max_length=100,
        description="Values of its spec by the path of their key, such as `train.optimizer.lr` or `command[2]`.",
    )


class JobEdit(BaseModel):
    """What changes of a job. A field that is null or left out stays as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Name | None = Field(None, description="Name of the job: lower-case letters, digits and dashes.")
    labels: Labels | None = Field(None, description="They replace all labels of the job; `{}` removes them.")
    notes: Annotated[str, StringConstraints(max_length=LONGEST_NOTES, pattern=r"^[^\x00]*$")] | None = Field(
        None, description="Plain text of several lines, kept as it is; empty text removes the notes."
    )
    pinned: bool | None = Field(None, description="Whether the job is kept, whatever its age.")

    @model_validator(mode="after")
    def _changes_something(self) -> "JobEdit":
        if self.name is None and self.labels is None and self.notes is None and self.pinned is None:
            remedy = 'Give name, labels, notes or pinned, such as {"notes": "A text."}.'
            raise Refusal("", "The body changes nothing.", remedy)
        return self
