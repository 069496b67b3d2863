"""What the machines were used for over time, what waits for them, and what happened to them."""

from typing import Annotated

from fastapi import APIRouter, Query

from ...service.queries import cluster, queue
from ...service.schemas.cluster import ClusterUse, DeviceTimes, NodeChanges, NodeCurves, PastAttempts, TimeRange
from ...service.schemas.queue import Queue, RunningJobs
from ..http.dependencies import In
from ..http.problems import describe

router = APIRouter(tags=["cluster"])

_OF_A_NODE = describe("node_not_found", "ambiguous_node", "invalid_request", "invalid_cursor")
_OF_A_PAGE = describe("invalid_request", "invalid_cursor")

Span = Annotated[TimeRange, Query(alias="range", description="How far back from now.")]
OnNode = Annotated[
    str | None, Query(max_length=255, description="Only this machine: id, prefix of an id, or host. Default: all.")
]
After = Annotated[str | None, Query(max_length=200, description="`next` of the previous page.")]
Limit = Annotated[int, Query(ge=1, le=500)]


@router.get("/cluster/use", operation_id="getClusterUse", summary="Read what is in use over time")
async def use(context: In, span: Span = TimeRange.HOUR) -> ClusterUse:
    """Devices in use, free and cordoned, and the devices of users and teams, in at most 337 buckets of time."""
    return await cluster.use(context.store, context.settings, span)


@router.get("/cluster/time", operation_id="getDeviceTimes", summary="Read how much device time users took")
async def device_times(context: In, span: Span = TimeRange.HOUR) -> DeviceTimes:
    """Device-seconds by user and kind of device, of all attempts that ran in the range."""
    return await cluster.device_times(context.store, span)


@router.get(
    "/cluster/attempts", operation_id="listPastAttempts", summary="List what ran on the machines", responses=_OF_A_NODE
)
async def past_attempts(
    context: In, span: Span = TimeRange.HOUR, node: OnNode = None, after: After = None, limit: Limit = 100
) -> PastAttempts:
    """Attempts of jobs that ended in the range, the last to end first."""
    return await cluster.past_attempts(context.store, context.settings, span, node=node, after=after, limit=limit)


@router.get(
    "/cluster/changes",
    operation_id="listNodeChanges",
    summary="List what happened to the machines",
    responses=_OF_A_NODE,
)
async def changes(
    context: In, span: Span = TimeRange.HOUR, node: OnNode = None, after: After = None, limit: Limit = 100
) -> NodeChanges:
    """Machines that joined, were lost or returned, and cordons, with reasons, newest first."""
    return await cluster.changes(context.store, span, node=node, after=after, limit=limit)


@router.get(
    "/nodes/{node}/use",
    operation_id="getNodeUse",
    summary="Read what a machine used over time",
    responses=describe("node_not_found", "ambiguous_node", "invalid_request"),
)
async def node_use(node: str, context: In, span: Span = TimeRange.HOUR) -> NodeCurves:
    """All metrics of a machine (id, prefix of an id, or host) and its GPUs, in at most 337 buckets of time."""
    return await cluster.node_use(context.store, node, span)


@router.get("/queue", operation_id="getQueue", summary="List the jobs that wait for devices", responses=_OF_A_PAGE)
async def waiting(context: In, after: After = None, limit: Limit = 100) -> Queue:
    """Waiting jobs in the order in which they are placed, each with the reason why it waits."""
    return await queue.waiting(context.store, after=after, limit=limit)


@router.get(
    "/queue/running", operation_id="listRunning", summary="List the jobs that have devices", responses=_OF_A_PAGE
)
async def running(context: In, after: After = None, limit: Limit = 100) -> RunningJobs:
    """Jobs whose gangs have devices, first submitted first, with how many and since when."""
    return await queue.running(context.store, after=after, limit=limit)
