"""A bit that flips in one replica's memory is noticed, its rank named, and what comes out is what would have come out without it."""

from pathlib import Path
from typing import Any

import pytest

from shardyard.service.cluster.ray_cluster import Cluster

from .following import closed, follow, is_step, pids, states
from .test_repair import gate, parameters, train_gang, unbroken

pytestmark = pytest.mark.asyncio(loop_scope="module")

STEPS = 20
FLIPPED = 2
TRAIN: dict[str, Any] = {
    "steps": STEPS,
    "replica_check": {"every": 4},
    "checkpoint": {"every": 6, "keep": 2},
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def entry() -> str:
    """The real training loop."""
    return "entries:train"


@pytest.mark.timeout(900)
@pytest.mark.full
async def test_a_flipped_bit_names_its_rank_and_leaves_no_trace_in_the_parameters(
    cluster: Cluster, tmp_path: Path
) -> None:
    await unbroken(cluster, "alike", tmp_path / "whole", {"data": 4}, **TRAIN)
    folder = tmp_path / "flipped"
    gang = train_gang("flipped", folder, {"data": 4}, **TRAIN)
    held = gate(folder, 8)
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_step(8))
    (folder / f"{FLIPPED}.flip").touch()
    held.unlink()
    events += await follow(cluster, gang.name, after=len(events))

    assert states(events) == ["starting", "running", "recovering", "running", "succeeded"], events[-1]
    (incident,) = (event["data"] for event in events if event["kind"] == "incident")
    assert (incident["cause"], incident["rank"], incident["ranks"]) == ("replica_mismatch", FLIPPED, [FLIPPED])
    assert incident["node"] and incident["agreed"] < incident["raised_in"], incident
    (repair,) = (event["data"] for event in events if event["kind"] == "repair")
    assert (repair["cause"], repair["generation"], repair["restored"]) == ("replica_mismatch", 2, None)
    assert repair["step"] <= incident["agreed"] + 1 and (repair["step"] - 1) % 6 == 0
    assert [e["data"]["step"] for e in events if e["kind"] == "step"] == list(range(1, STEPS + 1))
    assert parameters(folder) == parameters(tmp_path / "whole")
    await closed(cluster, gang.name, pids(folder))
