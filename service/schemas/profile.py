"""Profiles of running ranks: requests, and what became of them."""

from pydantic import BaseModel, ConfigDict, Field

from ...workers.messages.profile_request import MOST_SECONDS, Kind
from .base import Timestamp, Value


class ProfileRequest(BaseModel):
    """A profile to take of a running rank. Each is taken once."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    rank: int = Field(ge=0, le=2**31 - 1, description="The rank to profile.")
    kind: Kind = Field(
        "stacks",
        description="`stacks`: the stacks of all threads of its Python processes, as text. `cpu`: the functions that its Python processes "
        "run, sampled 100 times a second, for <https://www.speedscope.app>. `operators`: torch's operators with their times, "
        "shapes and memory, as a trace for <https://ui.perfetto.dev>. `memory`: allocations on its GPU with their stacks, for "
        "<https://pytorch.org/memory_viz>. A program records the last two of itself once it has made a step of an optimizer of torch, or "
        "joined a group of torch.distributed.",
    )
    seconds: int = Field(
        10,
        ge=1,
        le=MOST_SECONDS,
        description="Duration in seconds, without effect on `stacks`. `operators` takes whole steps, at most 10.",
    )


class Profile(Value):
    """A requested profile. The event `profile` reports its end."""

    id: str
    job: str
    attempt: int
    rank: int
    kind: str
    seconds: int
    state: str = Field(description="State of the profile: `open`, `done` or `failed`.")
    message: str | None = Field(None, description="What was profiled, or why it failed; null while it is open.")
    file: str | None = Field(
        None, description="Name of the file of the job that has it: GET /v1/jobs/JOB/artifacts/NAME; null without one."
    )
    actor: str = Field(description="Name of the user who requested the profile.")
    asked_at: Timestamp
    settled_at: Timestamp | None = None


class Profiles(Value):
    """One page of profiles, newest first. `next` is the `before` of the next request, null on the last page."""

    items: list[Profile]
    next: str | None = None
