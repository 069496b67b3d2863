"""What a cluster and its nodes were used for over time: devices, users, attempts that ran, and nodes that came and went."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from .base import Timestamp, Value
from .curve import Series


class TimeRange(StrEnum):
    """How far back an answer goes from now."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"

    @property
    def seconds(self) -> int:
        return {"hour": 3600, "day": 86_400, "week": 7 * 86_400}[self.value]


class DeviceUse(Value):
    """The devices of one kind by bucket of time: `used`, `free` and `cordoned` add up to `all`. Null: none of this kind."""

    kind: str = Field(description="Kind of device: `cpu` or `cuda`.")
    all: list[float | None]
    used: list[float | None]
    free: list[float | None] = Field(description="Devices that new gangs can use.")
    cordoned: list[float | None] = Field(description="Devices that no gang has, on cordoned machines.")


class HolderUse(Value):
    """The devices that one user's jobs, or one team's, had by bucket of time."""

    by: Literal["user", "team"] = Field(
        description="`user`: who submitted the jobs. `team`: the jobs' label of this name."
    )
    kind: str = Field(description="Kind of device: `cpu` or `cuda`.")
    name: str = Field(description="Empty: all others together, where there are more than 20.")
    used: list[float]


class ClusterUse(Value):
    """What is in use of the machines over time, as columns: means of samples that were taken each minute."""

    width: int = Field(description="Seconds of a bucket.")
    starts: list[int] = Field(
        description="Unix seconds at which each bucket begins. Buckets without a sample are left out."
    )
    nodes: list[float] = Field(description="Machines that were alive.")
    cordoned: list[float] = Field(description="Those of them on which no new gangs were placed.")
    devices: list[DeviceUse]
    holders: list[HolderUse] = Field(description="Users, then teams, each those with the most devices first.")


class NodeCurve(Series):
    """One metric of a machine, or of one of its GPUs, by bucket of time."""

    name: str
    unit: str
    gpu: str | None = Field(None, description="The GPU, as Ray numbers it; null: it is of the machine.")


class NodeCurves(Value):
    """What a machine used over time, as columns. Gangs sample it: between jobs only its devices in use are known."""

    node: str
    host: str = Field(description="Empty: the machine is gone.")
    width: int = Field(description="Seconds of a bucket.")
    starts: list[int] = Field(
        description="Unix seconds at which each bucket begins. Buckets without a sample are left out."
    )
    curves: list[NodeCurve] = Field(description="Metrics that no sample has are left out.")


class PastAttempt(Value):
    """An attempt that has ended, on the cluster or on one machine."""

    job: str
    name: str
    actor: str = Field(description="Who submitted the job.")
    state: str = Field(description="State of the job now.")
    attempt: int
    device: str
    devices: float = Field(
        description="Devices that it had, with those of hot spares; on one machine: the most that it had there."
    )
    since: Timestamp
    until: Timestamp
    outcome: str | None = Field(
        None, description="Code of the reason why the attempt ended; null: it goes on elsewhere."
    )
    device_s: float = Field(description="Device-seconds within the range: `devices` for the whole time.")


class PastAttempts(Value):
    """One page of attempts, the last to end first."""

    items: list[PastAttempt]
    next: str | None = Field(None, description="`after` of the next request; null on the last page.")


class DeviceTime(Value):
    """What the jobs of one user took of one kind of device in the range."""

    actor: str
    device: str
    jobs: int
    device_s: float = Field(description="Device-seconds, of attempts that run too.")


class DeviceTimes(Value):
    """Device time by user and kind of device, the most first."""

    since: Timestamp
    until: Timestamp
    items: list[DeviceTime]


class NodeChange(Value):
    """A machine joined, was lost or returned, or its cordon began or ended."""

    at: Timestamp = Field(description="Time at which the dispatcher saw it.")
    node: str
    host: str = Field(description="Empty: unknown.")
    kind: Literal["joined", "lost", "returned", "cordoned", "uncordoned", "cordon_expired"]
    actor: str | None = Field(None, description="Who began or lifted a cordon; null for other changes.")
    message: str = Field("", description="Reason; empty if there is none.")


class NodeChanges(Value):
    """One page of changes, newest first."""

    items: list[NodeChange]
    next: str | None = Field(None, description="`after` of the next request; null on the last page.")
