"""Commands that users run beside ranks: requests, and how they ended."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ...workers.messages.exec_request import MOST_SECONDS
from .base import Timestamp, Value

Argument = Annotated[str, StringConstraints(max_length=8192, pattern=r"^[^\x00]*$")]


class ExecRequest(BaseModel):
    """A command to run beside a running rank, once."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    rank: int = Field(
        ge=0, le=2**31 - 1, description="The rank in whose working folder, and with whose variables, it runs."
    )
    command: list[Argument] = Field(
        min_length=1, max_length=256, description="The program and its arguments. No shell reads them."
    )
    seconds: int = Field(60, ge=1, le=MOST_SECONDS, description="Seconds after which it is killed.")


class Exec(Value):
    """A requested command. Its output is in the rank's log, in the stream `exec`; the event `exec` reports its end."""

    id: str
    job: str
    attempt: int
    rank: int
    command: list[str]
    seconds: int
    status: int | None = Field(
        None, description="Exit status, or 128 and the signal that ended it; null if it runs, or did not run to an end."
    )
    message: str | None = Field(None, description="How it ended; null while it is open.")
    actor: str = Field(description="Name of the user who ran it.")
    asked_at: Timestamp
    settled_at: Timestamp | None = None


class Execs(Value):
    """One page of commands, newest first. `next` is the `before` of the next request, null on the last page."""

    items: list[Exec]
    next: str | None = None
