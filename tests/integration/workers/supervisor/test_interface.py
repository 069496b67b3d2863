"""One suite for both implementations of `service/cluster/interface.py`: Ray's, and the in-process one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from harness.patience import PATIENCE_S
from harness.stored_checkpoints import checkpoint_path, save_checkpoint

from shardyard.service.cluster.interface import Cluster
from shardyard.service.errors import GangLost
from shardyard.service.schemas.node import ClusterNode
from shardyard.workers.messages.fault_request import Fault
from shardyard.workers.messages.trace_request import Trace
from shardyard.workers.tasks.checkpoint_task import Operation

from ...inprocess_cluster import Gang, InProcessCluster
from .following import follow, gang_spec, is_final, is_step, states

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENDLESS = {"steps": 100_000, "pause": 0.01}


async def work(gang: Gang) -> None:
    """What the trainers of `entries.py` report."""
    await gang.state("starting", "placed")
    for step in range(1, gang.spec.run["steps"] + 1):
        if step == 1:
            await gang.state("running", "first_step")
        await gang.step(step)
        await asyncio.sleep(gang.spec.run.get("pause", 0.0))
    await gang.emit("summary", steps=step)
    await gang.state("succeeded", "completed")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def in_process() -> AsyncIterator[InProcessCluster]:
    cluster = InProcessCluster(script=work)
    await cluster.connect()
    yield cluster
    await cluster.end()


#: On a real Ray the core sees a gang's life; the other promises take it as long again each.
RAY = pytest.param("cluster", id="ray")
RAY_IN_FULL = pytest.param("cluster", id="ray", marks=pytest.mark.full)
IN_PROCESS = pytest.param("in_process", id="in-process")


@pytest.fixture(params=[RAY_IN_FULL, IN_PROCESS])
def either(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


async def lost(either: Cluster, gang: str, checkpoints: Path) -> None:
    """There is no such gang, whatever is asked of it."""
    for asking in (
        either.pull(gang, 0, 0.0),
        either.stop(gang, "cancel"),
        either.deliver(gang, Fault("fault-none", "corrupt-checkpoint")),
        either.deliver(gang, Trace("trace-none", 1)),
    ):
        with pytest.raises(GangLost):
            await asking
    assert gang not in await either.gangs()


@pytest.mark.parametrize("either", [RAY, IN_PROCESS], indirect=True)
async def test_a_gang_from_its_start_to_its_close(either: Cluster, tmp_path: Path) -> None:
    gang = gang_spec("whole", ranks=1, steps=3)
    before = await either.gangs()
    for _ in range(2):
        await either.start_gang(gang)
    assert await either.gangs() == sorted([*before, gang.name])

    first = await either.pull(gang.name, 0, PATIENCE_S)  # waits for what is not reported yet
    assert first.events and first.events[0]["seq"] == 1 and first.last >= first.events[-1]["seq"]
    assert first.behind_s > 0 or isinstance(either, InProcessCluster), "a supervisor reports its node's time"
    again = await either.pull(gang.name, 0, 0.0)
    assert again.events[: len(first.events)] == first.events, "what is not acknowledged comes again"
    events = first.events[:1] + await follow(either, gang.name, after=1)  # type: ignore[arg-type]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert states(events) == ["starting", "running", "succeeded"]

    last = events[-1]["seq"]
    kept = await either.pull(gang.name, last - 1, 0.0)
    assert (kept.events, kept.last) == ([events[-1]], last)
    assert (await either.pull(gang.name, 0, 0.0)).events == [events[-1]], "what was acknowledged does not come again"
    nothing = await either.pull(gang.name, last, 0.05)
    assert (nothing.events, nothing.last) == ([], last)

    await either.stop(gang.name, "cancel")  # too late
    assert (await either.pull(gang.name, last, 0.0)).last == last
    assert await either.gangs() == sorted([*before, gang.name]), "an ended gang is there until it is closed"
    for _ in range(2):
        await either.close_gang(gang.name)
    await lost(either, gang.name, tmp_path)


async def test_orders_are_carried_out_once_and_a_stop_ends_as_cancelled(either: Cluster, tmp_path: Path) -> None:
    gang = gang_spec("ordered", ranks=1, checkpoints=str(tmp_path), **ENDLESS)
    await either.start_gang(gang)
    events = await follow(either, gang.name, until=is_step(1))  # type: ignore[arg-type]
    fault, trace = Fault("fault-1", "corrupt-checkpoint"), Trace("trace-1", 1)
    for _ in range(2):
        await either.deliver(gang.name, fault)
        await either.deliver(gang.name, trace)
    events += await follow(either, gang.name, after=events[-1]["seq"], until=lambda event: event["kind"] == "fault")  # type: ignore[arg-type]
    for _ in range(2):
        await either.deliver(gang.name, fault)
        await either.stop(gang.name, "cancel")
    events += await follow(either, gang.name, after=events[-1]["seq"])  # type: ignore[arg-type]

    last = await either.pull(gang.name, events[-1]["seq"], 0.0)
    assert (last.events, last.last) == ([], events[-1]["seq"]), "nothing is reported after the end"
    assert states(events) == ["starting", "running", "cancelled"]
    assert is_final(events[-1]) and events[-1]["data"]["reason"] == "cancel"
    assert [event["data"]["id"] for event in events if event["kind"] == "fault"] == [fault.id]
    assert [event["data"]["id"] for event in events if event["kind"] == "trace_finished"] == [trace.id]

    waiting = asyncio.create_task(either.pull(gang.name, events[-1]["seq"], PATIENCE_S))
    await asyncio.sleep(0)  # it asks
    await either.close_gang(gang.name)
    with pytest.raises(GangLost):
        await asyncio.wait_for(waiting, PATIENCE_S)


async def test_of_an_unknown_gang_nothing_is_known_and_nothing_is_left_to_close(
    either: Cluster, tmp_path: Path
) -> None:
    await lost(either, "shardyard-unknown-1", tmp_path)
    await either.close_gang("shardyard-unknown-1")


async def test_nodes_report_what_they_have_and_what_is_taken(either: Cluster) -> None:
    nodes, gangs = await either.nodes(), await either.gangs()
    assert nodes and len({node.id for node in nodes}) == len(nodes)
    for node in nodes:
        assert isinstance(node, ClusterNode) and node.id and node.host and node.alive is True
        assert node.cpu >= 1 and node.cpu >= node.cpu_used >= 0 and node.gpu >= node.gpu_used >= 0
        assert isinstance(node.memory_bytes, int) and node.memory_bytes > 0
        assert {share.gang for share in node.gangs} <= set(gangs)


async def test_an_operation_says_what_it_found(either: Cluster, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1)
    (node, *_) = await either.nodes()
    asked = [Operation(f"op-{step}", "verify", str(checkpoint_path(tmp_path, step))) for step in (1, 2)]
    whole, absent = await asyncio.gather(*(either.perform(operation, node.id) for operation in asked))
    assert [outcome.result and outcome.result["verdict"] for outcome in (whole, absent)] == ["valid", "deleted"]
