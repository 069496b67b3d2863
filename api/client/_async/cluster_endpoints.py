"""The calls of `AsyncClient` about the cluster's use over time, its queue and its history."""

from abc import ABC, abstractmethod
from typing import TypeVar

from ....service.schemas.cluster import ClusterUse, DeviceTimes, NodeChanges, NodeCurves, PastAttempts, TimeRange
from ....service.schemas.queue import Queue, RunningJobs
from .. import cluster_requests
from ..transport import Call

T = TypeVar("T")


class AsyncClusterEndpoints(ABC):
    """Methods of one request each. `span`: `hour`, `day` or `week`, back from now. The client implements how a request is sent."""

    @abstractmethod
    async def _send(self, call: Call[T]) -> T: ...

    async def cluster_use(self, span: TimeRange | str = TimeRange.HOUR) -> ClusterUse:
        """Devices in use, free and cordoned, and devices by user and team, over time."""
        return await self._send(cluster_requests.use(span))

    async def device_times(self, span: TimeRange | str = TimeRange.HOUR) -> DeviceTimes:
        """Device-seconds by user and kind of device."""
        return await self._send(cluster_requests.device_times(span))

    async def past_attempts(
        self,
        span: TimeRange | str = TimeRange.HOUR,
        *,
        node: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> PastAttempts:
        """Attempts that ended in the range, on a machine (id, prefix of an id, or host) or on all, the last first."""
        return await self._send(cluster_requests.past_attempts(span, node, after, limit))

    async def node_changes(
        self,
        span: TimeRange | str = TimeRange.HOUR,
        *,
        node: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> NodeChanges:
        """Machines that joined, were lost or returned, and cordons, newest first."""
        return await self._send(cluster_requests.changes(span, node, after, limit))

    async def node_use(self, node: str, span: TimeRange | str = TimeRange.HOUR) -> NodeCurves:
        """What a machine (id, prefix of an id, or host) and its GPUs used over time."""
        return await self._send(cluster_requests.node_use(node, span))

    async def queue(self, *, after: str | None = None, limit: int = 100) -> Queue:
        """The jobs that wait for devices, in the order in which they are placed, with the reasons why they wait."""
        return await self._send(cluster_requests.queue(after, limit))

    async def running(self, *, after: str | None = None, limit: int = 100) -> RunningJobs:
        """The jobs that have devices, first submitted first."""
        return await self._send(cluster_requests.running(after, limit))
