"""A disk that fails under a rank's training state is an incident with its code, and costs no step and no bit."""

from pathlib import Path
from typing import Any

import pytest

from shardyard.service.cluster.ray_cluster import Cluster

from .following import closed, follow, is_step, pids, states
from .test_repair import gate, parameters, train_gang, unbroken

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.full]

STEPS = 12
BROKEN = 1
#: What is on the disk → the layout and the offload.
ON_DISK: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "optimizer": ({"data": 4, "zero": 1}, {"optimizer": 1, "to": "disk"}),
    "parameters": ({"data": 4, "zero": 3}, {"parameters": True, "to": "disk"}),
}


@pytest.fixture(scope="module")
def entry() -> str:
    """The real training loop."""
    return "entries:train"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("what", ON_DISK)
async def test_a_failing_disk_is_repaired_from_snapshots(what: str, cluster: Cluster, tmp_path: Path) -> None:
    layout, offload = ON_DISK[what]
    await unbroken(cluster, f"{what}-in-memory", tmp_path / "whole", layout, steps=STEPS)
    folder = tmp_path / "failing"
    gang = train_gang(f"{what}-failing", folder, layout, steps=STEPS, offload=offload)
    held = gate(folder, 5)
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_step(5))
    (folder / f"{BROKEN}.full").touch()
    held.unlink()
    events += await follow(cluster, gang.name, after=len(events))

    assert states(events) == ["starting", "running", "recovering", "running", "succeeded"], events[-1]
    (incident,) = (event["data"] for event in events if event["kind"] == "incident")
    assert (incident["cause"], incident["rank"]) == ("state_disk_failed", BROKEN)
    assert "scratch failed: file too large" in incident["message"]
    (repair,) = (event["data"] for event in events if event["kind"] == "repair")
    assert (repair["cause"], repair["generation"]) == ("state_disk_failed", 2) and repair["restored"] is not None
    assert [e["data"]["step"] for e in events if e["kind"] == "step"] == list(range(1, STEPS + 1))
    assert parameters(folder) == parameters(tmp_path / "whole")
    await closed(cluster, gang.name, pids(folder))
