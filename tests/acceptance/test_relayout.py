"""A running job takes another layout: it saves, makes room, and goes on from its next step on the same curve."""

import pytest
from harness.plane import Plane, spec, until

from shardyard.api.client import ApiError

STEPS = 120


def test_a_running_job_goes_on_with_another_layout(plane: Plane) -> None:
    same = {"precision": "fp64", "checkpoint": {"final": False}, "steps": STEPS}
    with plane.client() as client:
        whole = client.submit(spec("whole-layout", layout={"data": 2, "zero": 1}, **same))
        assert client.wait(whole.id, timeout_s=240).state == "succeeded"
        job = client.submit(spec("new-layout", layout={"data": 2, "zero": 1}, **same))
        until(lambda: (found := client.job(job.id).progress) is not None and found.step >= 3, 120, "three steps")
        with pytest.raises(ApiError) as refused:
            client.relayout(job.id, {"tensor": 3})
        assert refused.value.errors[0].field == "train.layout.tensor"
        asked = client.relayout(job.id, {"tensor": 2})
        assert (asked.state, asked.layout) == ("preempting", "tensor 2")
        done = client.wait(job.id, timeout_s=240)
        assert (done.state, done.attempt, done.restarts, done.world_size) == ("succeeded", 2, 0, 2), done.message
        points = client.metrics(job.id, max_points=10_000).points
        assert [point.step for point in points] == list(range(1, STEPS + 1))
        curve = [point.loss for point in client.metrics(whole.id, max_points=10_000).points]
        assert [point.loss for point in points] == pytest.approx(curve, rel=1e-9)
        events = list(client.events(job.id))
        (saved,) = [event.data["step"] for event in events if event.kind == "checkpoint"]
        last = max(point.step for point in points if point.attempt == 1)
        assert saved == last  # it went on from its very last step
        (told,) = [event.data for event in events if event.kind == "relayout"]
        assert told == {"before": "data 2 (ZeRO-1)", "after": "tensor 2"}
        with pytest.raises(ApiError) as late:
            client.relayout(job.id, {"data": 2})
        assert late.value.code == "job_ended"
