"""A running job takes another layout: it saves, makes room, and goes on from its next step on the same curve."""

from typing import Any

import pytest
from harness.control_plane import ControlPlane, endless, trained
from harness.patience import PATIENCE_S

from shardyard.api.client import ApiError

SAME: dict[str, Any] = {"precision": "fp64"}


@pytest.mark.full
def test_a_running_job_goes_on_with_another_layout(plane: ControlPlane) -> None:
    with plane.client() as client:
        job = client.submit(endless("new-layout", layout={"data": 2, "zero": 1}, **SAME))
        trained(client, job.id, 3)
        with pytest.raises(ApiError) as refused:
            client.reshard(job.id, {"tensor": 3})
        assert refused.value.errors[0].field == "train.layout.tensor"
        asked = client.reshard(job.id, {"tensor": 2})
        assert (asked.state, asked.layout) == ("resharding", "tensor 2")
        trained(client, job.id, 3, attempt=2)
        client.cancel(job.id)
        done = client.wait(job.id, timeout_s=PATIENCE_S)
        assert (done.state, done.attempt, done.restarts, done.world_size) == ("cancelled", 2, 0, 2), done.message
        points = client.metrics(job.id, max_points=10_000).points
        assert [point.step for point in points] == list(range(1, len(points) + 1))
        whole = client.submit(endless("whole-layout", layout={"data": 2, "zero": 1}, steps=len(points), **SAME))
        assert client.wait(whole.id, timeout_s=PATIENCE_S).state == "succeeded"
        curve = [point.loss for point in client.metrics(whole.id, max_points=10_000).points]
        assert [point.loss for point in points] == pytest.approx(curve, rel=1e-9)
        events = list(client.events(job.id))
        (saved,) = [event.data["step"] for event in events if event.kind == "checkpoint"]
        last = max(point.step for point in points if point.attempt == 1)
        assert saved == last  # it went on from its very last step
        (reported,) = [event.data for event in events if event.kind == "reshard"]
        assert reported == {"before": "data 2 (ZeRO-1)", "after": "tensor 2"}
        with pytest.raises(ApiError) as late:
            client.reshard(job.id, {"data": 2})
        assert late.value.code == "job_ended"
