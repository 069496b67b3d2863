"""A gang that trains reports every few seconds what each of its ranks does, and at its end of the steps that are left."""

from pathlib import Path

import pytest

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.workers.supervisor.rank_samples import SAMPLE_S

from .following import Event, closed, follow, pids
from .test_repair import train_gang

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def entry() -> str:
    """The real training loop."""
    return "entries:train"


@pytest.mark.full
async def test_samples_come_while_it_trains_and_at_its_end(cluster: Cluster, tmp_path: Path) -> None:
    quiet = {"eval": {}, "checkpoint": {"final": False}, "snapshot": {"every": 0}}
    gang = train_gang("sampled", tmp_path, {"data": 2, "tensor": 2}, steps=100_000, **quiet)
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_sample)
    events += await follow(cluster, gang.name, after=len(events), until=is_sample)
    await cluster.stop(gang.name, "cancel")
    events += await follow(cluster, gang.name, after=len(events))

    samples = [event["data"] for event in events if is_sample(event)]
    assert len(samples) >= 2
    reported = [event for event in events if is_sample(event)]
    assert reported[1]["ts"] - reported[0]["ts"] >= SAMPLE_S - 1
    for sample in samples:
        assert all(len(sample[name]) == 4 for name in ("step_s", "busy_s", "wait_s", "memory", "node_of"))
        assert all(0 < own <= step for own, step in zip(sample["busy_s"], sample["step_s"], strict=True))
        assert all(waited >= 0 for waited in sample["wait_s"])
        assert len(sample["nodes"]) == 1 and sample["node_of"] == [0] * 4
    assert samples[1]["memory_of"] == "resident"
    assert all(50 << 20 < memory < 20 << 30 for memory in samples[1]["memory"]), samples[1]["memory"]
    steps = [event["data"] for event in events if event["kind"] == "step"]
    assert sum(sample["steps"] for sample in samples) == len(steps), "each step is in one sample"
    assert samples[-1]["step"] == steps[-1]["step"]
    assert "resident" not in steps[-1]
    await closed(cluster, gang.name, pids(tmp_path))


def is_sample(event: Event) -> bool:
    return bool(event["kind"] == "rank_metrics")
