import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.errors import GangLost, OtherVersion
from shardyard.service.settings import Settings
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor.ranks.placement_group import remove_actors_and_group, reserve

from .following import Event, actors_of, closed, follow, gang_spec, gone, is_final, is_step, pids, states

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_gang_reports_its_story_once_and_in_order(cluster: Cluster, tmp_path: Path) -> None:
    gang = gang_spec("story", steps=20, folder=str(tmp_path))
    await cluster.start_gang(gang)
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name)

    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert states(events) == ["starting", "running", "succeeded"]
    assert is_final(events[-1])
    steps = [event["data"] for event in events if event["kind"] == "step"]
    assert [step["step"] for step in steps] == list(range(1, 21))
    assert all(step["loss"] == 0 + 1 + 2 + 3 for step in steps)
    assert all(step["step_s_min"] <= step["step_s_median"] <= step["step_s_max"] for step in steps)
    assert {step["slowest_rank"] for step in steps} <= {0, 1, 2, 3}
    kinds = [event["kind"] for event in events if event["kind"] not in ("log", "rank_metrics")]
    assert kinds[-2:] == ["summary", "state"] and kinds.index("plan") < kinds.index("step")
    logs = [event["data"] for event in events if event["kind"] == "log"]
    assert {log["rank"] for log in logs} == {0, 1, 2, 3}
    assert {line for log in logs for line in log["lines"]} == {f"rank {rank} starts" for rank in range(4)}
    await closed(cluster, gang.name, pids(tmp_path))


async def test_a_pull_can_be_repeated_and_acknowledges_only_what_it_names(cluster: Cluster) -> None:
    gang = gang_spec("replay", ranks=2, steps=5)
    await cluster.start_gang(gang)
    events: list[Event] = []
    while not events or not is_final(events[-1]):
        await asyncio.sleep(0.1)
        before, events = events, (await cluster.pull(gang.name, 0, 5.0)).events
        assert events[: len(before)] == before
    assert (await cluster.pull(gang.name, events[-4]["seq"], 0.0)).events == events[-3:]
    assert (await cluster.pull(gang.name, events[-4]["seq"], 0.0)).events == events[-3:]
    assert (await cluster.pull(gang.name, events[-1]["seq"], 0.0)).events == []
    await closed(cluster, gang.name, [])
    with pytest.raises(GangLost):
        await cluster.pull(gang.name, 0, 0.0)


async def test_an_exception_ends_the_gang_with_rank_and_traceback(cluster: Cluster, tmp_path: Path) -> None:
    misbehave = {"rank": 1, "step": 3, "how": "raise"}
    gang = gang_spec("raises", ranks=2, steps=1000, pause=0.01, folder=str(tmp_path), misbehave=misbehave)
    await cluster.start_gang(gang)
    *_, incident, final = await follow(cluster, gang.name)

    assert incident["kind"] == "incident"
    assert incident["data"]["cause"] == "exception" and incident["data"]["rank"] == 1
    assert "in _raise" in incident["data"]["traceback"]
    assert final["data"]["state"] == "failed" and final["data"]["reason"] == "exception"
    assert "rank 1: ValueError: no such luck" in final["data"]["message"]
    assert "Traceback (most recent call last)" in final["data"]["message"]
    await closed(cluster, gang.name, pids(tmp_path, 2))


@dataclass(frozen=True)
class LaterGangSpec(GangSpec):
    """Of a control plane with one more field than its nodes know."""

    colour: str = ""


async def test_a_spec_that_its_node_cannot_read_is_of_another_version(cluster: Cluster) -> None:
    gang = LaterGangSpec("shardyard-later-1", {}, 2, colour="blue")
    with pytest.raises(OtherVersion, match=r"could not be made: .*this node has Shardyard .*colour"):
        await cluster.start_gang(gang)
    await closed(cluster, gang.name, [])


async def test_a_killed_trainer_is_noticed_and_named(cluster: Cluster, tmp_path: Path) -> None:
    gang = gang_spec("killed", ranks=2, steps=100_000, pause=0.01, folder=str(tmp_path))
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_step(3))
    os.kill(pids(tmp_path, 2)[1], signal.SIGKILL)
    *_, incident, final = await follow(cluster, gang.name, after=events[-1]["seq"])

    assert incident["data"]["cause"] == "rank_lost" and incident["data"]["rank"] == 1
    assert "SIGKILL" in incident["data"]["message"]
    assert (final["data"]["state"], final["data"]["reason"]) == ("failed", "rank_lost")
    await closed(cluster, gang.name, pids(tmp_path, 2))


async def test_a_killed_actor_takes_its_trainer_along(cluster: Cluster, settings: Settings, tmp_path: Path) -> None:
    gang = gang_spec("actor", ranks=2, steps=100_000, pause=0.01, folder=str(tmp_path))
    before = actors_of(settings)  # of a gang that was closed, which may still be ending
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_step(3))
    actors = [process for process in actors_of(settings) if process not in before]
    assert len(actors) >= 2
    actors[0].kill()
    *_, final = await follow(cluster, gang.name, after=events[-1]["seq"])
    assert (final["data"]["state"], final["data"]["reason"]) == ("failed", "rank_lost")
    await closed(cluster, gang.name, pids(tmp_path, 2))


@pytest.mark.full
async def test_a_trainer_that_leaves_without_a_word_is_lost(cluster: Cluster) -> None:
    gang = gang_spec("exits", ranks=2, misbehave={"rank": 1, "step": 2, "how": "exit"})
    await cluster.start_gang(gang)
    *_, final = await follow(cluster, gang.name)
    assert final["data"]["reason"] == "rank_lost" and "status 3" in final["data"]["message"]
    await closed(cluster, gang.name, [])


async def test_a_trainer_that_nccls_watchdog_aborts_is_a_hang_of_no_rank(cluster: Cluster) -> None:
    """The other rank loses its connection, which is an echo, too."""
    gang = gang_spec("aborts", ranks=2, misbehave={"rank": 1, "step": 2, "how": "abort"})
    await cluster.start_gang(gang)
    *_, incident, final = await follow(cluster, gang.name)
    assert (incident["data"]["cause"], incident["data"].get("rank"), incident["data"].get("node")) == (
        "hang",
        None,
        None,
    )
    assert "WorkNCCL(SeqNum=58, OpType=ALLREDUCE" in incident["data"]["message"]
    assert (final["data"]["state"], final["data"]["reason"]) == ("failed", "hang")
    await closed(cluster, gang.name, [])


@pytest.mark.full
async def test_a_frozen_trainer_can_be_stopped(cluster: Cluster, tmp_path: Path) -> None:
    gang = gang_spec("frozen", ranks=2, steps=100_000, pause=0.01, folder=str(tmp_path))
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_step(2))
    os.kill(pids(tmp_path, 2)[1], signal.SIGSTOP)
    await cluster.stop(gang.name, "cancel")
    *_, final = await follow(cluster, gang.name, after=events[-1]["seq"])
    assert (final["data"]["state"], final["data"]["reason"]) == ("cancelled", "cancel")
    assert await gone(pids(tmp_path, 2))
    await closed(cluster, gang.name, pids(tmp_path, 2))


async def test_a_gang_can_be_stopped_while_it_waits_for_room(cluster: Cluster) -> None:
    first, second = gang_spec("first", ranks=2, steps=100_000, pause=0.01), gang_spec("second", ranks=8)
    await cluster.start_gang(first)
    await follow(cluster, first.name, until=is_step(1))
    await cluster.start_gang(second)
    assert (await cluster.pull(second.name, 0, 0.5)).events == []
    await cluster.stop(second.name, "preempt")
    events = await follow(cluster, second.name)
    assert [(event["data"]["state"], event["data"]["reason"]) for event in events] == [("cancelled", "preempt")]
    await asyncio.gather(cluster.close_gang(first.name), cluster.close_gang(second.name))
    await closed(cluster, first.name, [])


async def test_a_gang_keeps_away_from_the_nodes_that_its_order_names(cluster: Cluster) -> None:
    (node,) = await cluster.nodes()
    other = "f" * 56
    assert await _scheduled("nowhere", node.id) == "INFEASIBLE"
    assert await _scheduled("nowhere-either", other, node.id) == "INFEASIBLE"
    assert await _scheduled("here", other, "e" * 56) == "FINISHED"


async def _scheduled(name: str, *avoided: str) -> str:
    """What Ray says of the placement of such a gang, once it knows."""
    from ray.util.placement_group import placement_group_table

    known = ("INFEASIBLE", "FINISHED")
    group = reserve(GangSpec(f"shardyard-{name}-1", {}, 2, avoided=avoided))
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (said := placement_group_table(group)["stats"]["scheduling_state"]) not in known:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return str(said)
    finally:
        remove_actors_and_group(f"shardyard-{name}-1", [])


@pytest.mark.full
async def test_too_many_log_lines_are_dropped_and_counted_but_no_step_is(cluster: Cluster) -> None:
    gang = gang_spec("shouts", ranks=2, steps=30, misbehave={"rank": 0, "step": 1, "how": "shout"})
    await cluster.start_gang(gang)
    await asyncio.sleep(3.0)  # no dispatcher listens meanwhile
    events = await follow(cluster, gang.name)
    assert [event["data"]["step"] for event in events if event["kind"] == "step"] == list(range(1, 31))
    numbers, kept, dropped = 1, 0, 0
    for log in (event["data"] for event in events if event["kind"] == "log" and event["data"]["rank"] == 0):
        assert log["first"] == numbers
        numbers += len(log["lines"])
        kept += sum(line.startswith("line ") for line in log["lines"])
        dropped += sum(int(line.split()[1]) for line in log["lines"] if "lines dropped" in line)
    assert kept + dropped >= 100_000
    await closed(cluster, gang.name, [])


async def test_what_a_trainer_started_ends_with_it(cluster: Cluster, tmp_path: Path) -> None:
    gang = gang_spec("breeds", ranks=2, folder=str(tmp_path), misbehave={"rank": 1, "step": 1, "how": "breed"})
    await cluster.start_gang(gang)
    assert states(await follow(cluster, gang.name))[-1] == "succeeded"
    assert await gone([int((tmp_path / "child.pid").read_text())])
    await closed(cluster, gang.name, pids(tmp_path, 2))
