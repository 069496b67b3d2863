"""Two dispatchers on two clusters with one database: each sees to its own nodes, attempts and leases."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.patience import PATIENCE_S
from sqlalchemy import select, update

from shardyard.service.dispatch import cluster_history
from shardyard.service.dispatch.dispatcher import Dispatcher
from shardyard.service.errors import TooManyRanks
from shardyard.service.jobs import submit as submitting
from shardyard.service.nodes import all_nodes, cordon, find_past
from shardyard.service.queries import jobs as job_queries
from shardyard.service.queries import live_tail
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.states import State
from shardyard.service.store import capacities, clusters, nodes
from shardyard.service.store.cluster_tables import nodes as node_table
from shardyard.service.store.engine import Store
from shardyard.service.store.tables import attempts
from shardyard.service.store.tables import jobs as table

from ...inprocess_cluster import InProcessCluster, run_until_stopped


def named(folder: Path, cluster: str) -> Settings:
    fast = {"poll_s": 0.05, "pull_s": 0.3, "nodes_s": 0.1, "stray_gangs_s": 0.1, "lease_s": 600.0}
    return Settings(data_dir=folder, cluster=cluster, ray_address=f"{cluster}:6379", **fast)


def a_cluster(name: str, cpus: int = 1) -> InProcessCluster:
    """Four ranks per CPU, on a node of its own."""
    made = InProcessCluster(cpus, run_until_stopped)
    made.machines = [made.machines[0].model_copy(update={"id": f"node-{name}", "host": f"host-{name}"})]
    return made


class Dispatching:
    """Dispatchers that run until they are ended, in order or not."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.running: list[tuple[Dispatcher, asyncio.Task[None]]] = []

    def start(self, settings: Settings, cluster: InProcessCluster) -> Dispatcher:
        dispatcher = Dispatcher(self.store, settings, cluster)
        self.running.append((dispatcher, asyncio.create_task(dispatcher.run())))
        return dispatcher

    async def end(self, ending: Dispatcher) -> None:
        for dispatcher, task in self.running:
            if dispatcher is ending:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def end_all(self) -> None:
        for dispatcher, _ in self.running:
            await self.end(dispatcher)


@pytest.fixture
async def dispatching(store: Store) -> AsyncIterator[Dispatching]:
    made = Dispatching(store)
    yield made
    await made.end_all()


async def submit(store: Store, settings: Settings, ranks: int = 4) -> Job:
    train = {"steps": 1000, "global_batch": ranks, "layout": {"data": ranks}}
    job, _ = await submitting.submit(
        store, settings, JobSpec.model_validate({"name": "try", "train": train}), None, "", "me"
    )
    return job


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def running(store: Store, job: Job) -> None:
    async def holds() -> bool:
        return (await job_queries.get_job(store, job.id)).state == State.RUNNING

    await until(holds)


async def known(store: Store) -> set[tuple[str, str]]:
    async with store.read() as tx:
        return {(row["cluster"], row["id"]) for row in await nodes.all_nodes(tx)}


async def looked(store: Store, *clusters: InProcessCluster) -> None:
    """Each of these is looked at twice more."""
    for cluster in clusters:
        before = cluster.looks

        async def holds(cluster: InProcessCluster = cluster, before: int = before) -> bool:
            return cluster.looks >= before + 2

        await until(holds)


async def owners(store: Store) -> dict[str, str | None]:
    async with store.read() as tx:
        return {row.id: row.lease_owner for row in await tx.execute(select(table.c.id, table.c.lease_owner))}


BOTH = {("a", "node-a"), ("b", "node-b")}


@POSTGRESQL_IN_FULL
async def test_two_clusters_work_side_by_side(
    store: Store, database_url: str, tmp_path: Path, dispatching: Dispatching
) -> None:
    """Jobs that fill a cluster each run at once; and where one dispatcher dies, the other leaves its job alone."""
    first, second = a_cluster("a"), a_cluster("b")
    mine, other = named(tmp_path, "a"), named(tmp_path, "b")
    dispatching.start(mine, first)
    died = dispatching.start(other, second)
    await looked(store, first, second)
    assert await known(store) == BOTH
    assert {(node.cluster, node.host) for node in await all_nodes(store, mine)} == {("a", "host-a"), ("b", "host-b")}
    made = [await submit(store, mine), await submit(store, mine)]
    for job in made:
        await running(store, job)
    assert [len(first.living), len(second.living)] == [1, 1]
    async with store.read() as tx:
        placed = {row.gang: row.cluster for row in await tx.execute(select(attempts))}
    assert placed == {**dict.fromkeys(first.living, "a"), **dict.fromkeys(second.living, "b")}
    third = await submit(store, mine)
    await dispatching.end(died)  # in order: its job's lease is free at once
    await looked(store, first)
    free = [job for job, owner in (await owners(store)).items() if owner is None]
    theirs = next(job.id for job in made if job.id in next(iter(second.living)))
    assert sorted(free) == sorted([theirs, third.id])
    assert await known(store) == BOTH and [len(first.living), len(second.living)] == [1, 1]
    again = dispatching.start(other, second)
    await until(lambda: _has(store, theirs, again.owner))
    assert (await job_queries.get_job(store, theirs)).attempt == 1


async def _has(store: Store, job: str, owner: str) -> bool:
    return (await owners(store))[job] == owner


async def test_a_second_cluster_of_the_same_name_is_refused(
    store: Store, tmp_path: Path, dispatching: Dispatching, caplog: pytest.LogCaptureFixture
) -> None:
    """It writes nothing, takes nothing and says so, until the first has gone."""
    first, second = a_cluster("a"), a_cluster("b", cpus=2)
    # The job of the first cluster is not tried again on the second one meanwhile.
    later = {"retry_backoff_s": 600.0, "retry_backoff_max_s": 600.0}
    settings = named(tmp_path, "default").model_copy(update=later)
    one = dispatching.start(settings, first)
    await looked(store, first)
    with caplog.at_level(logging.ERROR):
        dispatching.start(settings, second)
        await looked(store, first, second)
    assert len([line for line in caplog.messages if "SHARDYARD_CLUSTER" in line and one.owner in line]) == 1
    assert await known(store) == {("default", "node-a")}
    with pytest.raises(TooManyRanks):
        await submit(store, settings, 8)
    await running(store, await submit(store, settings))
    waits = await submit(store, settings)
    await looked(store, second)
    assert not second.living
    await dispatching.end(one)
    await running(store, waits)
    assert await known(store) == {("default", "node-b")} and len(second.living) == 1


@POSTGRESQL_IN_FULL
async def test_of_two_clusters_one_reports_why_a_job_waits(
    store: Store, tmp_path: Path, dispatching: Dispatching
) -> None:
    """The one on which it can run, and of two of those the first by name; and no word of the other's."""
    first, second = a_cluster("a"), a_cluster("b", cpus=2)
    mine, other = named(tmp_path, "a"), named(tmp_path, "b")
    dispatching.start(other, second)
    await looked(store, second)
    await running(store, await submit(store, other, 8))
    dispatching.start(mine, first)
    await looked(store, first)
    await running(store, await submit(store, mine, 4))
    large, small = await submit(store, mine, 8), await submit(store, mine, 4)

    async def recorded() -> bool:
        return all([(await job_queries.get_job(store, job.id)).reason for job in (large, small)])

    await until(recorded)
    await looked(store, first, second, first, second)
    pages = [await live_tail.tail(store, job.id, Cursor(), limit=100) for job in (large, small)]
    assert [[item.data["message"] for item in one.items] for one in pages] == [
        [None, "Needs 8 ranks, 0 of 8 CPU ranks are free; waiting for 8 more."],
        [None, "Needs 4 ranks, 0 of 4 CPU ranks are free; waiting for 4 more."],
    ]


async def test_a_node_of_a_renamed_cluster_is_one_node(store: Store, tmp_path: Path, dispatching: Dispatching) -> None:
    """Until the old name is forgotten, its id is stored under both."""
    before, after = named(tmp_path, "before"), named(tmp_path, "after")
    for settings in (before, after):
        cluster = a_cluster("a")
        dispatcher = dispatching.start(settings, cluster)
        await looked(store, cluster)
        await dispatching.end(dispatcher)
    assert await known(store) == {("before", "node-a"), ("after", "node-a")}
    held = await cordon(store, after, "node-a", 600.0, "a fan", "eve")
    assert (held.cluster, held.cordon is not None, held.in_use) == ("after", True, False)
    assert (await cordon(store, after, "host-a", 600.0, "a fan", "eve")).cluster == "after"
    async with store.read() as tx:
        assert (await find_past(tx, "host-a")).cluster == "after"


@POSTGRESQL_IN_FULL
async def test_a_cluster_without_a_dispatcher_for_eight_days_is_forgotten(
    store: Store, tmp_path: Path, dispatching: Dispatching
) -> None:
    """Its nodes, capacity and entry, by the dispatcher of another one, which keeps those of clusters that went later."""
    for name in ("old", "recent", "new"):
        cluster = a_cluster(name)
        dispatcher = dispatching.start(named(tmp_path, name), cluster)
        await looked(store, cluster)
        await dispatching.end(dispatcher)
    days = 86_400.0
    async with store.write() as tx:
        await clusters.put(tx, "old", "one", -8.1 * days)
        await clusters.put(tx, "recent", "two", -7.9 * days)
        await tx.execute(update(node_table).values(seen_at=0.0))
    await cluster_history.record(store, named(tmp_path, "new"))
    assert await known(store) == {("recent", "node-recent"), ("new", "node-new")}
    async with store.read() as tx:
        assert await capacities.clusters(tx) == {"recent", "new"}
        assert (await clusters.ages(tx)).keys() == {"recent", "new"}


@POSTGRESQL_IN_FULL
async def test_a_cluster_without_nodes_has_an_age_when_its_dispatcher_has_ended(
    store: Store, tmp_path: Path, dispatching: Dispatching
) -> None:
    cluster = a_cluster("a")
    dispatcher = dispatching.start(named(tmp_path, "a"), cluster)
    await looked(store, cluster)
    cluster.machines = []
    await looked(store, cluster)
    async with store.read() as tx:
        assert (await clusters.fresh(tx)).keys() == {"a"}
    await dispatching.end(dispatcher)
    async with store.read() as tx:
        assert await clusters.fresh(tx) == {} and 0 <= (await clusters.ages(tx))["a"] < PATIENCE_S
