"""The calls about the cluster's use and queue, each with its request and the type of its response. Both clients use them."""

from ...service.schemas.cluster import ClusterUse, DeviceTimes, NodeChanges, NodeCurves, PastAttempts, TimeRange
from ...service.schemas.queue import Queue, RunningJobs
from .requests import _quoted
from .transport import Call


def use(span: TimeRange | str) -> Call[ClusterUse]:
    return Call("GET", "/v1/cluster/use", ClusterUse.model_validate, params={"range": span})


def device_times(span: TimeRange | str) -> Call[DeviceTimes]:
    return Call("GET", "/v1/cluster/time", DeviceTimes.model_validate, params={"range": span})


def past_attempts(span: TimeRange | str, node: str | None, after: str | None, limit: int) -> Call[PastAttempts]:
    params = {"range": span, "node": node, "after": after, "limit": limit}
    return Call("GET", "/v1/cluster/attempts", PastAttempts.model_validate, params=params)


def changes(span: TimeRange | str, node: str | None, after: str | None, limit: int) -> Call[NodeChanges]:
    params = {"range": span, "node": node, "after": after, "limit": limit}
    return Call("GET", "/v1/cluster/changes", NodeChanges.model_validate, params=params)


def node_use(node: str, span: TimeRange | str) -> Call[NodeCurves]:
    return Call("GET", f"/v1/nodes/{_quoted(node)}/use", NodeCurves.model_validate, params={"range": span})


def queue(after: str | None, limit: int) -> Call[Queue]:
    return Call("GET", "/v1/queue", Queue.model_validate, params={"after": after, "limit": limit})


def running(after: str | None, limit: int) -> Call[RunningJobs]:
    return Call("GET", "/v1/queue/running", RunningJobs.model_validate, params={"after": after, "limit": limit})
