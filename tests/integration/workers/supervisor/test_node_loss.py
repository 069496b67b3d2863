"""A gang that loses a node goes on in place on another one, from copies of its snapshots, and the numbers do not show it."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.control_plane import until
from harness.nodes import Node, Nodes, running_nodes
from harness.patience import PATIENCE_S
from harness.process_ownership import actor_of

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.settings import Settings
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor.actor import Supervisor
from shardyard.workers.supervisor.ranks.placement_group import NAMESPACE, bundle_nodes, existing, reserve

from .following import Event, closed, follow, is_step, pids, standing_by, states
from .test_repair import assert_no_step_was_lost, curve, facts, gate, parameters, train_gang, unbroken

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAYOUT = {"data": 2, "tensor": 2}


@pytest.fixture(scope="module")
def entry() -> str:
    """The real training loop."""
    return "entries:train"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Three nodes with room for two ranks each: one more than the gang needs."""
    with running_nodes([1, 1, 1]) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def settings(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    data = tmp_path_factory.mktemp("data")
    return Settings(data_dir=data, ray_address=nodes.address, ray_auth_token_path=nodes.token, cpu_ranks_per_core=2)


async def places(gang: str) -> tuple[int, list[str]]:
    """The supervisor's process, and each rank's node."""
    import ray

    status: dict[str, Any] = await ray.get_actor(gang).status.remote()
    return status["pid"], [rank["node"] for rank in status["ranks"]]


@pytest.mark.full
async def test_a_killed_node_costs_no_step_and_no_bit(cluster: Cluster, nodes: Nodes, tmp_path: Path) -> None:
    whole = await unbroken(cluster, "whole", tmp_path / "whole", LAYOUT)
    broken = train_gang("broken", tmp_path / "broken", LAYOUT)
    held = gate(tmp_path / "broken", 5)
    await cluster.start_gang(broken)
    events = await follow(cluster, broken.name, until=is_step(5))
    _, before = await places(broken.name)
    lost = next(node for node in nodes.nodes[1:] if node.id in before)
    nodes.kill_node(lost)
    held.unlink()
    events += await follow(cluster, broken.name, after=len(events))
    reads_as_unbroken(events, whole, tmp_path)
    names_the_lost_node(events, lost, [rank for rank, node in enumerate(before) if node == lost.id])
    await closed(cluster, broken.name, pids(tmp_path / "broken"))


@pytest.mark.full
async def test_a_supervisor_may_die_with_its_node_and_ranks(cluster: Cluster, nodes: Nodes, tmp_path: Path) -> None:
    import ray
    from ray.util.placement_group import placement_group_table
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    while sum(node.lives for node in nodes.nodes) < 3:
        nodes.add_node(1)
    whole = await unbroken(cluster, "again", tmp_path / "whole", LAYOUT)
    broken = train_gang("headless", tmp_path / "broken", LAYOUT)
    held = gate(tmp_path / "broken", 5)
    run = GangSpec(
        broken.name,
        broken.run,
        4,
        2,
        "cpu",
        cpus_per_rank=0.5,
        entry="entries:train",
        max_repairs=5,
    )
    group = reserve(run)
    assert group.wait(PATIENCE_S)
    places_of = set(placement_group_table(group)["bundles_to_node_id"].values())
    lost = next(node for node in nodes.nodes[1:] if node.id in places_of)
    there = NodeAffinitySchedulingStrategy(lost.id, soft=True)
    supervisor = ray.remote(Supervisor).options(
        name=broken.name,
        namespace=NAMESPACE,
        lifetime="detached",
        num_cpus=0,
        memory=1,  # an actor that needs nothing goes anywhere: Ray does not look at its strategy
        max_restarts=-1,
        scheduling_strategy=there,
    )
    supervisor.remote(run.to_json())
    await cluster.start_gang(broken)
    events = await follow(cluster, broken.name, until=is_step(5))
    pid, before = await places(broken.name)
    assert nodes.of_process(pid) is lost and lost.id in before
    nodes.kill_node(lost)
    held.unlink()
    events += await follow(cluster, broken.name, after=len(events))
    reads_as_unbroken(events, whole, tmp_path)
    names_the_lost_node(events, lost, [rank for rank, node in enumerate(before) if node == lost.id])
    await closed(cluster, broken.name, pids(tmp_path / "broken"))


@pytest.mark.full
async def test_a_rank_gets_a_new_actor_though_the_spare_has_no_node(
    cluster: Cluster, nodes: Nodes, tmp_path: Path
) -> None:
    """The last node has room for the spare and not for a tensor group. When it dies, the others have no room for the spare."""
    from ray.util.placement_group import placement_group, remove_placement_group

    while sum(node.lives for node in nodes.nodes) < 3:
        nodes.add_node(1)
    last = [node for node in nodes.nodes if node.lives][-1]
    taken = placement_group([{"CPU": 0.5}], bundle_label_selector=[{"ray.io/node-id": last.id}])
    assert taken.wait(PATIENCE_S)
    gang = replace(train_gang("spared", tmp_path / "run", LAYOUT), spares=1)
    held = gate(tmp_path / "run", 5)
    await cluster.start_gang(gang)
    events = await follow(cluster, gang.name, until=is_step(5))
    await standing_by(gang.name)
    remove_placement_group(taken)
    nodes.kill_node(last)
    await asyncio.to_thread(
        until, lambda: not bundle_nodes(existing(gang))[2], PATIENCE_S, "the loss of the spare's bundle"
    )
    assert not existing(gang).wait(1), "there is room for the spare"
    actor_of(pids(tmp_path / "run")[1]).kill()
    held.unlink()
    events += await follow(cluster, gang.name, after=len(events))
    why = [event["data"] for event in events if event["kind"] == "incident"]
    assert states(events) == ["starting", "running", "recovering", "running", "succeeded"], why
    assert_no_step_was_lost(events)
    await closed(cluster, gang.name, pids(tmp_path / "run"))


def reads_as_unbroken(events: list[Event], whole: list[Event], folder: Path) -> None:
    why = [event["data"] for event in events if event["kind"] == "incident"]
    assert states(events) == ["starting", "running", "recovering", "running", "succeeded"], why
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert curve(events) == curve(whole)
    assert facts(events, "eval") == facts(whole, "eval")
    assert parameters(folder / "broken") == parameters(folder / "whole")


def names_the_lost_node(events: list[Event], lost: Node, ranks: list[int]) -> None:
    """Once, with its ranks; and the repair went on from memory."""
    incidents = [event["data"] for event in events if event["kind"] == "incident"]
    assert {incident["cause"] for incident in incidents} <= {"node_lost", "supervisor_lost"}
    (incident,) = [incident for incident in incidents if incident["cause"] == "node_lost"]
    assert (incident["node"], incident["ranks"]) == (lost.id, ranks)
    (repair,) = [event["data"] for event in events if event["kind"] == "repair"]
    assert (repair["cause"], repair["generation"]) == ("node_lost", 2)
    assert_no_step_was_lost([event for event in events if event["data"].get("cause") != "supervisor_lost"])
