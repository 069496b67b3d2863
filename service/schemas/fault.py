"""Injected faults."""

from pydantic import BaseModel, ConfigDict, Field

from ...workers.messages.fault_request import Kind
from .base import Timestamp, Value


class FaultRequest(BaseModel):
    """A fault to strike a running job with. Each strikes once."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    kind: Kind = Field(
        description="`kill-rank` (its trainer), `kill-actor` (the rank's actor), `hang-rank` (its trainer is stopped), `slow-rank`, "
        "`kill-supervisor`, `corrupt-checkpoint` (a bit of the newest)."
    )
    rank: int | None = Field(None, ge=0, le=2**31 - 1, description="Of the kinds that end in a rank or actor.")
    by_ms: float | None = Field(
        None, gt=0, le=60_000, allow_inf_nan=False, description="`slow-rank`: per step; 50 if not said."
    )
    for_s: float | None = Field(
        None, gt=0, le=86_400, allow_inf_nan=False, description="`slow-rank`: for so long; 20 if not said."
    )


class Fault(Value):
    """A fault that was asked for. The event `fault` tells when it was struck, and what was done."""

    id: str
    job: str
    attempt: int = Field(description="The attempt that it is meant for: one that ends before is not struck.")
    kind: str
    rank: int | None = None
    by_ms: float | None = None
    for_s: float | None = None
    actor: str = Field(description="Who asked.")
    asked_at: Timestamp
    settled_at: Timestamp | None = Field(None, description="When it was struck, or missed.")
