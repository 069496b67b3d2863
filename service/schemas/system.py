"""What jobs and nodes use: CPUs, memory, disks, network, GPUs."""

from typing import Any

from pydantic import Field

from . import dataframes
from .base import Timestamp, Value
from .curve import Series


class JobUse(Value):
    """What all ranks of a job use together, as last sampled."""

    at: Timestamp = Field(description="Time of the sample.")
    cpu: float | None = Field(
        None, description="Percent of one CPU, the sum over the ranks: 250 is two and a half CPUs."
    )
    memory: float | None = Field(None, description="Resident bytes, the sum over the ranks.")
    gpu: float | None = Field(None, description="Percent, the mean GPU utilization of the ranks; null on CPUs.")


class NodeUse(Value):
    """What all processes of a machine use, as last sampled by a gang on it. A value that the machine does not give is null."""

    at: Timestamp = Field(description="Time at which the sample was stored.")
    cpu: float | None = Field(None, description="Percent of all CPUs.")
    memory_used: float | None = Field(None, description="Bytes that are not available.")
    memory_available: float | None = Field(None, description="Bytes that processes may still use.")
    memory_limit: float | None = Field(None, description="Bytes that the smallest cgroup allows; null without a limit.")
    memory_limit_used: float | None = Field(None, description="Bytes that count against that limit.")
    disk_read: float | None = Field(None, description="Bytes per second, all disks.")
    disk_write: float | None = Field(None, description="Bytes per second, all disks.")
    disk_full: float | None = Field(None, description="Percent of the disk with the data folder.")
    network_receive: float | None = Field(None, description="Bytes per second.")
    network_send: float | None = Field(None, description="Bytes per second.")


class SystemMetric(Value):
    """A system metric that a job has, with its unit."""

    name: str
    unit: str


class SystemCurve(Series):
    """One metric of one node or rank, by bucket of time."""

    node: str | None = Field(None, description="Id of the node; null: it is of a rank.")
    rank: int | None = Field(None, description="Number of the rank; null: it is of a node.")


class SystemCurves(Value):
    """One system metric over a range of time, of some nodes or ranks, as columns."""

    name: str
    unit: str
    width: int = Field(description="Seconds of a bucket.")
    starts: list[int] = Field(
        description="Unix seconds at which each bucket begins. Buckets without a sample are left out."
    )
    curves: list[SystemCurve] = Field(description="Nodes in order of their ids, or ranks in order.")
    next: str | None = Field(None, description="`after` of the next request; null on the last page.")
    metrics: list[SystemMetric] = Field(description="All metrics that the job has in this range.")

    def to_pandas(self) -> Any:
        """The means as a `pandas.DataFrame` by time (UTC), with a column for each rank or node. Needs the extra `pandas`."""
        columns = {curve.node if curve.rank is None else curve.rank: curve.mean for curve in self.curves}
        return dataframes.of_system(self.starts, columns)
