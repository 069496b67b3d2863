"""Which attempts time their collectives first, over real databases and a scriptable cluster."""

import pytest

from shardyard.service.settings import Settings
from shardyard.service.states import State
from shardyard.service.store.engine import Store

from ...inprocess_cluster import Gang, InProcessCluster, train
from .dispatching import dispatching, ended, submit


def asked(cluster: InProcessCluster) -> list[bool]:
    return [spec.run["preflight"] for spec in cluster.specs]


@pytest.mark.parametrize(("cause", "wanted"), [("rank_lost", [False, False, True]), ("straggler_over", [False] * 3)])
async def test_two_incidents_on_one_node_call_for_it(
    cause: str, wanted: list[bool], store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    async def lost_twice(gang: Gang) -> None:
        if len(cluster.specs) == 3:
            return await train(gang)
        await gang.state("starting")
        await gang.emit("incident", cause=cause, rank=1, node="node-a", message="")
        return await gang.state("failed", "rank_lost", "rank 1 was lost")

    cluster.script = lost_twice
    job = await submit(store, settings, data=2)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert job.state == State.SUCCEEDED
    assert asked(cluster) == wanted


@pytest.mark.parametrize(("policy", "wanted"), [("auto", False), (False, False), (True, True)])
async def test_the_policy_decides_of_a_first_attempt(
    policy: bool | str, wanted: bool, store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    job = await submit(store, settings, data=2, preflight=policy)
    async with dispatching(store, settings, cluster):
        await ended(store, job)
    assert asked(cluster) == [wanted]
