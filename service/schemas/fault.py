"""Injected faults."""

from pydantic import BaseModel, ConfigDict, Field

from ...workers.messages.fault_request import Kind
from .base import Timestamp, Value


class FaultRequest(BaseModel):
    """A fault to inject into a running job. Each fault is injected once."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    kind: Kind = Field(
        description="Kind of fault: `kill-rank` (kills its trainer), `kill-actor` (kills the rank's actor), `hang-rank` (stops its "
        "trainer), `slow-rank`, `kill-supervisor` or `corrupt-checkpoint` (flips a bit of the newest checkpoint)."
    )
    rank: int | None = Field(
        None, ge=0, le=2**31 - 1, description="Target rank; required by kinds that end in `-rank` or `-actor`."
    )
    delay_ms: float | None = Field(
        None,
        gt=0,
        le=60_000,
        allow_inf_nan=False,
        description="Delay of `slow-rank` in milliseconds per step; 50 by default.",
    )
    duration_s: float | None = Field(
        None, gt=0, le=86_400, allow_inf_nan=False, description="Duration of `slow-rank` in seconds; 20 by default."
    )


class Fault(Value):
    """A requested fault. The event `fault` reports when it was injected, and its effect."""

    id: str
    job: str
    attempt: int = Field(
        description="Attempt for which the fault is meant. If that attempt ends first, the fault is not injected."
    )
    kind: str
    rank: int | None = None
    delay_ms: float | None = None
    duration_s: float | None = None
    actor: str = Field(description="Name of the user who requested the fault.")
    asked_at: Timestamp
    settled_at: Timestamp | None = Field(
        None, description="Time at which the fault was injected, or its attempt ended without it."
    )
