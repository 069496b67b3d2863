"""The dispatcher over real databases and a cluster without Ray: it reads in one transaction and starts jobs in order."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any

import pytest
from harness.patience import PATIENCE_S
from sqlalchemy import event
from sqlalchemy.engine import RowMapping

from shardyard.service.dispatch.dispatcher import Dispatcher
from shardyard.service.dispatch.lost_nodes import KEPT
from shardyard.service.errors import ClusterError
from shardyard.service.ids import gang_name
from shardyard.service.jobs import submit as submitting
from shardyard.service.queries import cluster as cluster_queries
from shardyard.service.schemas.cluster import TimeRange
from shardyard.service.schemas.node import ClusterNode
from shardyard.service.settings import Settings
from shardyard.service.states import State
from shardyard.service.store import nodes
from shardyard.service.store.engine import Store
from shardyard.workers.messages.gang_spec import GangSpec

from ...inprocess_cluster import Gang, InProcessCluster, run_until_stopped, train
from .dispatching import dispatching, ended, reached, submit, until


def transactions(store: Store) -> list[float]:
    """Gets an entry for each transaction that this store begins from now on."""
    begun: list[float] = []
    engines = [store._engines.reading.sync_engine, store._engines.writing.sync_engine]
    # On PostgreSQL they share their connections, and a listener of the second one gets those of both.
    for engine in {engine.pool: engine for engine in engines}.values():
        event.listen(engine, "begin", lambda _: begun.append(time.monotonic()))
    return begun


async def test_a_look_at_the_database_is_one_transaction(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    """Twice a second beside gangs that train: whatever is asked of the dispatcher, it reads at once."""

    async def silent(gang: Gang) -> None:
        await gang.state("starting")
        await gang.state("running")
        await gang.stopped.wait()

    cluster.script = silent
    dispatcher = Dispatcher(store, settings.model_copy(update={"fault_injection": True}), cluster)
    job = await submit(store, settings, steps=1000)
    await dispatcher._watch_nodes()
    await dispatcher._schedule()
    await until(store, job, reached(State.RUNNING))
    begun = transactions(store)
    await dispatcher._schedule()
    assert len(begun) == 1
    await dispatcher._leave()


def two_of_a_cluster(store: Store, settings: Settings, cluster: InProcessCluster) -> tuple[Dispatcher, Dispatcher]:
    """Two dispatchers of one cluster, as while a new version takes over."""
    both = Dispatcher(store, settings, cluster), Dispatcher(store, settings, cluster)
    both[1].owner = f"{both[0].owner} other"
    return both


async def test_two_dispatchers_that_look_at_once_record_each_node_once(
    store: Store, settings: Settings, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = nodes.all_nodes

    async def slowly(*given: Any) -> Sequence[RowMapping]:
        found = await read(*given)
        await asyncio.sleep(0.1)
        return found

    monkeypatch.setattr(nodes, "all_nodes", slowly)
    await asyncio.gather(*(each._watch_nodes() for each in two_of_a_cluster(store, settings, cluster)))
    assert [one.kind for one in (await cluster_queries.changes(store, TimeRange.HOUR)).items] == ["joined"]


async def test_a_list_of_nodes_that_another_dispatcher_has_replaced_meanwhile_is_not_stored(
    store: Store, settings: Settings, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, slow = two_of_a_cluster(store, settings, cluster)
    await slow._watch_nodes()
    outdated = await cluster.nodes()
    cluster.machines.append(cluster.machines[0].model_copy(update={"id": "node-2"}))

    async def late() -> list[ClusterNode]:
        monkeypatch.undo()
        await quick._watch_nodes()
        return outdated

    monkeypatch.setattr(cluster, "nodes", late)
    await slow._watch_nodes()
    async with store.read() as tx:
        assert [row["id"] for row in await nodes.all_nodes(tx)] == ["node-1", "node-2"]
    cluster.machines.pop()
    await slow._watch_nodes()
    async with store.read() as tx:
        assert [row["id"] for row in await nodes.all_nodes(tx)] == ["node-1"]


async def test_nodes_that_are_lost_are_written_once_and_the_newest_kept(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    """Ray lists a thousand of them, each second while a job waits."""
    dispatcher, (living,) = Dispatcher(store, settings, cluster), cluster.machines
    names = [[f"lost-{number}" for number in range(1000)], ["node-2"]]
    many, one = ([living.model_copy(update={"id": name}) for name in some] for some in names)
    dead_many, dead_one = ([node.model_copy(update={"alive": False}) for node in some] for some in (many, one))
    for machines in ([living, *many, *one], [living, *dead_many, *one], [living, *dead_many, *dead_one]):
        cluster.machines = machines
        await dispatcher._watch_nodes()
    cluster.machines.reverse()
    dispatcher._wake.clear()
    written: list[int] = []

    def count(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if statement.startswith("INSERT INTO nodes"):
            written.append(len(parameters) if many else 1)

    event.listen(store._engines.writing.sync_engine, "before_cursor_execute", count)
    await dispatcher._watch_nodes()
    assert written == [1] and not dispatcher._wake.is_set()
    async with store.read() as tx:
        kept = {row["id"] for row in await nodes.all_nodes(tx)}
    assert len(kept) == KEPT + 1 and kept >= {"node-1", "node-2"}
    (change, *_) = (await cluster_queries.changes(store, TimeRange.HOUR)).items
    assert (change.node, change.kind, change.message) == (
        "node-2",
        "lost",
        "Ray reports that it is dead; no gang was on it.",
    )


async def test_jobs_wait_in_order_and_get_a_reason(store: Store, settings: Settings, cluster: InProcessCluster) -> None:
    cluster.script = run_until_stopped
    first = await submit(store, settings, data=2)
    large = await submit(store, settings, data=4)
    small = await submit(store, settings, data=1)
    async with dispatching(store, settings, cluster):
        large = await until(store, large, lambda now: now.reason == "waiting_for_devices")
        assert large.message == "Needs 4 ranks, 2 of 4 CPU ranks are free; waiting for 2 more."
        small = await until(store, small, lambda now: now.reason == "waiting_for_turn")
        await until(store, first, reached(State.RUNNING))
        assert {spec.name for spec in cluster.specs} == {f"shardyard-{first.id}-1"}
        cluster.script = train
        await submitting.cancel(store, first.id, "tester")
        assert (await ended(store, large)).state == State.SUCCEEDED
        assert (await ended(store, small)).state == State.SUCCEEDED


async def test_a_submit_wakes_the_dispatcher(store: Store, settings: Settings, cluster: InProcessCluster) -> None:
    patient = settings.model_copy(update={"poll_s": 60.0})
    wake = asyncio.Event()
    task = asyncio.create_task(Dispatcher(store, patient, cluster, wake).run())
    try:
        for _ in range(2):  # the second finds a dispatcher that had nothing to do
            job = await submit(store, settings, steps=3)
            wake.set()
            assert (await ended(store, job)).state == State.SUCCEEDED
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("request_", ["pull", "nodes"])
@pytest.mark.parametrize("answers", [True, False], ids=["an answer", "an error"])
async def test_it_ends_though_a_request_loses_its_cancellation(
    store: Store,
    settings: Settings,
    cluster: InProcessCluster,
    monkeypatch: pytest.MonkeyPatch,
    request_: str,
    answers: bool,
) -> None:
    """As a library may that is cancelled when its answer has just come, or that breaks its connection."""
    works, asked, cluster.script = getattr(cluster, request_), asyncio.Event(), run_until_stopped

    async def loses(*arguments: Any) -> Any:
        found = await works(*arguments)
        if running.is_set():
            asked.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
            if not answers:
                raise ClusterError("the connection is closed")
        return found

    running = asyncio.Event()
    monkeypatch.setattr(cluster, request_, loses)
    task = asyncio.create_task(Dispatcher(store, settings, cluster).run())
    await until(store, await submit(store, settings), reached(State.RUNNING))
    running.set()
    await asyncio.wait_for(asked.wait(), PATIENCE_S)
    task.cancel()
    assert await asyncio.wait({task}, timeout=PATIENCE_S) == ({task}, set())


async def test_a_gang_that_cannot_be_removed_keeps_no_other_one(
    store: Store, settings: Settings, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.script, close = run_until_stopped, cluster.close_gang
    stays, goes = [gang_name((await submit(store, settings)).id, 1) for _ in range(2)]  # their jobs are queued
    for name in (stays, goes):
        await cluster.start_gang(GangSpec(name, {}, 1))

    async def refuses(gang: str) -> None:
        if gang == stays:
            raise ClusterError(f"{gang} does not answer")
        await close(gang)

    monkeypatch.setattr(cluster, "close_gang", refuses)
    dispatcher = Dispatcher(store, settings, cluster)
    await dispatcher._watch_nodes()
    await dispatcher._remove_strays()
    assert await cluster.gangs() == [stays]
    await dispatcher._leave()
