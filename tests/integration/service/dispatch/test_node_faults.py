"""A node that breaks attempts again and again is cordoned in the transaction that stores the last fault."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.examinations import recorded
from harness.patience import PATIENCE_S

from shardyard.service import nodes
from shardyard.service.dispatch.admission import admit
from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.dispatch.node_faults import avoided
from shardyard.service.errors import AmbiguousNode, NodeNotFound
from shardyard.service.jobs import submit as submitting
from shardyard.service.policies.cordon import Limits
from shardyard.service.policies.limits import Rules
from shardyard.service.policies.retry import Backoff
from shardyard.service.queries import jobs, live_tail
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.job import Job
from shardyard.service.schemas.node import Node
from shardyard.service.settings import Settings
from shardyard.service.states import State
from shardyard.service.store import cordons, leases, sweeps
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import nodes as node_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.supervisor.event_merger import EventMerger
from shardyard.workers.supervisor.policies.diagnosis import diagnose
from shardyard.workers.supervisor.policies.failures import Failure
from shardyard.workers.supervisor.policies.hang import evidence

from ...inprocess_cluster import Gang, InProcessCluster, train
from ..conftest import Submit
from ..gang_events import NODE, event_batch, state
from . import dispatching as dispatched

Faulty = Callable[..., Awaitable[list[dict[str, Any]]]]

RULES = Rules(Backoff(1e-9, 1e-9), Limits(faults=3, first_s=600.0))


@pytest.fixture(autouse=True)
async def _two_nodes(store: Store) -> None:
    await machines(store, "node-1", "node-2")


async def machines(store: Store, *ids: str, **has: float) -> None:
    seen = {"memory_bytes": 1, "seen_at": time.time()}
    rows = [{**NODE, "id": id_, "host": f"host-{id_[-1]}", **seen, **has} for id_ in ids]
    async with store.write() as tx:
        await node_rows.replace(tx, rows)


async def placed(store: Store, settings: Settings, submit: Submit, count: int = 1) -> list[Lease]:
    made = {(await submit()).id for _ in range(count)}
    return [lease for lease in (await admit(store, settings, "a", None)).leases if lease.job_id in made]


async def injected(
    store: Store, lease: Lease, node: str | None, cause: str = "rank_lost", rules: Rules = RULES
) -> list[dict[str, Any]]:
    """The leased job has three such incidents in its attempt, and succeeds; returns the cordon events of its history."""
    incident = {"cause": cause, "node": node, "rank": 0, "message": "gone"}
    recorded = [{"seq": n, "ts": 1000.0 + n, "kind": "incident", "data": incident} for n in (1, 2, 3)]
    recorded.append({"seq": 4, "ts": 1004.0, "kind": "state", "data": {"state": "succeeded"}})
    for batch in (recorded[:2], recorded[:2], recorded):  # reported again, each counts once
        await ingest(store, lease, 1, batch, rules)
    async with store.write() as tx:
        await leases.release(tx, [lease.token])
    tail = await live_tail.tail(store, lease.job_id, Cursor())
    return [item.data for item in tail.items if item.kind == "cordon"]


@pytest.fixture
def faulty(store: Store, settings: Settings, submit: Submit) -> Faulty:
    """A job of its own that breaks on a node."""

    async def one(node: str | None, cause: str = "rank_lost", rules: Rules = RULES) -> list[dict[str, Any]]:
        (lease,) = await placed(store, settings, submit)
        return await injected(store, lease, node, cause, rules)

    return one


async def seen(store: Store, settings: Settings) -> dict[str, Node]:
    return {node.id: node for node in await nodes.all_nodes(store, settings)}


async def test_faults_of_three_attempts_cordon_their_node(store: Store, settings: Settings, faulty: Faulty) -> None:
    assert await faulty("node-1") == []
    assert await faulty("node-2") == []
    assert await faulty(None) == []
    assert await faulty("node-1", cause="exception") == []
    assert await faulty("node-1", cause="hang") == []
    assert (await seen(store, settings))["node-1"].faults == 2
    (event,) = await faulty("node-1")
    assert event["node"] == "node-1"
    assert event["message"] == "3 faults of machines within 60 min (hang, rank_lost)"
    found = await seen(store, settings)
    cordon = found["node-1"].cordon
    assert cordon is not None and cordon.until is not None and not found["node-1"].in_use
    assert (cordon.until - cordon.since).total_seconds() == pytest.approx(600)
    assert cordon.until.timestamp() == pytest.approx(event["until"])
    assert (cordon.actor, cordon.by_hand, cordon.message) == ("faults", False, event["message"])
    assert found["node-2"].cordon is None and found["node-2"].in_use


async def broken(store: Store, settings: Settings, job: Job, on: str) -> list[str]:
    """The attempts of the job break on these nodes. Returns those that were cordoned."""
    for number, node in enumerate(on, start=1):
        (lease,) = (await admit(store, settings, "a", None)).leases
        incident = {"cause": "rank_lost", "node": f"node-{node}", "rank": 0, "message": "killed by SIGSEGV"}
        lost = event_batch(("incident", incident), state("failed", "rank_lost"))
        await ingest(store, lease, number, lost, RULES)
        async with store.write() as tx:
            await leases.release(tx, [lease.token])
    tail = await live_tail.tail(store, job.id, Cursor())
    return [item.data["node"] for item in tail.items if item.kind == "cordon"]


async def trials_of_a_sweep(store: Store, submit: Submit) -> AsyncIterator[Job]:
    row = {"id": "sweep-1", "name": "tune", "state": "running", "spec": {}, "sweep": {}, "trials": 2, "actor": "a"}
    trials = [{"number": number, "standing": "active", "parameters": {}} for number in (0, 1)]
    async with store.write() as tx:
        assert await sweeps.create(tx, {**row, "created_at": 0.0}, trials)
    for number in (0, 1):
        job = await submit()
        async with store.write() as tx:
            await sweeps.change(tx, "sweep-1", number, {"job_id": job.id})
        yield job


async def test_the_trials_of_a_sweep_that_fail_on_several_nodes_cordon_none_by_themselves(
    store: Store, settings: Settings, submit: Submit, faulty: Faulty
) -> None:
    """Nor does one job. With one of another job they do."""
    async for job in trials_of_a_sweep(store, submit):
        assert await broken(store, settings, job, "1212") == []
    found = (await seen(store, settings))["node-1"]
    assert (found.faults, found.in_use) == (4, True)
    (event,) = await faulty("node-1")
    assert event["message"] == "5 faults of machines within 60 min (rank_lost)"


async def test_the_trials_of_a_sweep_cordon_the_one_node_that_fails_them(
    store: Store, settings: Settings, submit: Submit
) -> None:
    """Each freed slot is on it: it would fail all trials. One fault elsewhere says nothing. Of their own code no second follows.

    Nor if an operator lifts the cordon, which resets the count.
    """
    await machines(store, "node-1", "node-2", "node-3")
    failed_on, found = iter(("1211", "2222")), []
    async for job in trials_of_a_sweep(store, submit):
        found.append(await broken(store, settings, job, next(failed_on)))
        one = (await seen(store, settings))["node-1"]
        if not one.in_use:
            assert one.faults == 3
            assert (await nodes.uncordon(store, settings, "node-1", "ben")).faults == 0
            assert (await nodes.uncordon(store, settings, "node-1", "ben")).faults == 0
    assert found == [["node-1"], []]
    after = await seen(store, settings)
    assert [(node.faults, node.in_use) for node in after.values()] == [(0, True), (5, True), (0, True)]


@pytest.mark.parametrize(("ranks", "avoids"), [(2, ("node-1",)), (12, ())])
@POSTGRESQL_IN_FULL
async def test_a_job_avoids_the_node_that_broke_it_repeatedly_if_it_has_room_elsewhere(
    store: Store, settings: Settings, cluster: InProcessCluster, ranks: int, avoids: tuple[str, ...]
) -> None:
    (machine,) = cluster.machines
    cluster.machines = [
        machine.model_copy(update={"id": f"node-{at}", "host": f"host-{at}", "cpu": 2}) for at in (1, 2)
    ]

    async def crash(gang: Gang) -> None:
        if len(cluster.specs) == 4:
            await train(gang)
            return
        node = "node-2" if len(cluster.specs) == 1 else "node-1"
        await gang.emit("incident", cause="rank_lost", node=node, rank=0, message="killed by SIGSEGV")
        await gang.state("failed", "rank_lost")

    cluster.script = crash
    settings = settings.model_copy(update={"cordon_faults": 2})
    job = await dispatched.submit(store, settings, data=ranks, max_restarts=3)
    async with dispatched.dispatching(store, settings, cluster):
        assert (await dispatched.ended(store, job)).state == State.SUCCEEDED
    assert [spec.avoided for spec in cluster.specs] == [(), (), (), avoids]
    assert (await seen(store, settings))["node-1"].cordon is None


async def avoided_by(store: Store, settings: Settings, job: Job) -> tuple[str, ...]:
    async with store.read() as tx:
        row = await job_rows.by_id(tx, job.id)
        assert row is not None and row["state"] == "placing"
        return await avoided(tx, settings, row)


@pytest.mark.parametrize(("cores", "others", "avoids"), [(4, 0, ("node-1",)), (2, 5, ())])
@POSTGRESQL_IN_FULL
async def test_of_the_cores_beside_gpus_only_those_of_other_gangs_are_taken(
    store: Store, settings: Settings, submit: Submit, cores: int, others: int, avoids: tuple[str, ...]
) -> None:
    """Each node has 8. The nodes show those of no gang yet."""
    await machines(store, "node-1", "node-2", cpu=8.0, gpu=4.0)
    job = await submit(ranks=2, device="cuda", resources={"cpus_per_gpu": cores})
    if others:
        await submit(device="cuda", resources={"cpus_per_gpu": others})
    await admit(store, settings, "a", None)
    async with store.write() as tx:
        await cordons.note(tx, {"node": "node-1", "job_id": job.id, "attempt": 1, "cause": "rank_lost"}, 3600.0)
    assert await avoided_by(store, settings.model_copy(update={"cordon_faults": 1}), job) == avoids


@POSTGRESQL_IN_FULL
async def test_a_gang_on_cpus_avoids_cores_for_which_a_job_on_gpus_waits(
    store: Store, settings: Settings, submit: Submit
) -> None:
    """Of the model that it names, and of not too many nodes: each bundle's selector has them."""
    gpus = {"cpu": 16.0, "cpu_used": 14.0, "gpu": 8.0, "gpu_used": 2.0, "gpu_model": "H100"}
    await machines(store, "node-1", "node-2", "node-3")
    async with store.write() as tx:
        first, second, third = await node_rows.all_nodes(tx)
        rows = [{**first, **gpus}, dict(second), {**third, **gpus, "gpu_model": "A100"}]
        await node_rows.replace(tx, rows)
    waits = await submit(device="cuda", resources={"cpus_per_gpu": 4, "gpu": "H100"})
    job = await submit(ranks=8, device="cpu")
    await admit(store, settings, "a", None)
    assert await avoided_by(store, settings, job) == ("node-1",)
    async with store.write() as tx:
        await node_rows.replace(tx, [*rows, *({**rows[0], "id": f"node-{number}"} for number in range(100, 200))])
    assert len(await avoided_by(store, settings, job)) == 64
    await submitting.cancel(store, waits.id, "ann")
    assert await avoided_by(store, settings, job) == ()


@POSTGRESQL_IN_FULL
async def test_a_server_elsewhere_is_no_fault_of_the_node(store: Store, settings: Settings, faulty: Faulty) -> None:
    """One that a job names and that does not exist, or an outage, such as of the storage, would cordon node after node."""
    rules = Rules(RULES.backoff, Limits(faults=1))
    for cause in ("storage_unreachable", "files_unreachable", "package_index_unreachable", "not_prepared"):
        assert await faulty("node-1", cause=cause, rules=rules) == []
    found = (await seen(store, settings))["node-1"]
    assert found.in_use and found.faults == 0


async def test_the_next_cordon_lasts_twice_as_long_and_needs_new_faults(
    store: Store, settings: Settings, faulty: Faulty
) -> None:
    rules = Rules(RULES.backoff, Limits(faults=1, first_s=0.2, max_s=0.5))
    lasted = []
    for _ in range(3):
        (event,) = await faulty("node-1", rules=rules)
        lasted.append(event["until"])
        async with asyncio.timeout(PATIENCE_S):
            while (await seen(store, settings))["node-1"].cordon is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    reported = [(one.until - one.since).total_seconds() for one in await nodes.history(store) if one.until is not None]
    assert reported[::-1] == pytest.approx([0.2, 0.4, 0.5], abs=0.01)
    assert sorted(lasted) == lasted


@POSTGRESQL_IN_FULL
async def test_the_last_node_stays_in_use(store: Store, settings: Settings, submit: Submit, faulty: Faulty) -> None:
    rules = Rules(RULES.backoff, Limits(faults=1))
    assert (await faulty("node-1", rules=rules))[0]["until"] is not None
    (event,) = await faulty("node-2", rules=rules)
    assert event["until"] is None and event["message"].endswith("it stays in use, because it is the last of its kind")
    assert (await seen(store, settings))["node-2"].cordon is None
    await machines(store, "node-1")  # the other one is gone
    alone = (await seen(store, settings))["node-1"]
    assert alone.cordon is not None and alone.in_use
    job = await submit(ranks=2)
    assert [lease.job_id for lease in (await admit(store, settings, "a", None)).leases] == [job.id]


@POSTGRESQL_IN_FULL
async def test_jobs_wait_for_what_is_not_cordoned(store: Store, settings: Settings, submit: Submit) -> None:
    await nodes.cordon(store, settings, "node-1", 3600.0, "a fan is broken", "ann")
    large, small = await submit(ranks=12), await submit(ranks=8)
    assert [lease.job_id for lease in (await admit(store, settings, "a", None)).leases] == [small.id]
    waits = await jobs.get_job(store, large.id)
    assert waits.reason == "waiting_for_nodes" and "cordoned" in (waits.message or "")
    await nodes.uncordon(store, settings, "node-1", "ben")
    assert not (await admit(store, settings, "a", None)).leases
    assert (await jobs.get_job(store, large.id)).reason == "waiting_for_devices"


@POSTGRESQL_IN_FULL
async def test_cordons_by_hand(store: Store, settings: Settings, faulty: Faulty) -> None:
    node = await nodes.cordon(store, settings, "host-1", None, "a fan is broken", "ann")
    assert (node.id, node.in_use) == ("node-1", False)
    assert node.cordon is not None and (node.cordon.until, node.cordon.by_hand) == (None, True)
    assert await faulty("node-1", rules=Rules(RULES.backoff, Limits(faults=1))) == []
    assert (await nodes.uncordon(store, settings, "node-1", "ben")).faults == 0
    assert (await nodes.uncordon(store, settings, "node-1", "ben")).in_use
    (one,) = await nodes.history(store)
    assert (one.actor, one.ended_by, one.message) == ("ann", "ben", "a fan is broken")
    assert one.ended_at is not None
    with pytest.raises(NodeNotFound):
        await nodes.cordon(store, settings, "node-7", None, "", "ann")
    await machines(store, "node-abc1", "node-abc2")
    assert (await nodes.cordon(store, settings, "node-abc1", None, "", "ann")).id == "node-abc1"
    with pytest.raises(AmbiguousNode, match="2 nodes"):
        await nodes.cordon(store, settings, "node-abc", None, "", "ann")


@POSTGRESQL_IN_FULL
async def test_of_nodes_of_a_name_the_living_one_is_cordoned_or_the_one_that_was_seen_last(
    store: Store, settings: Settings
) -> None:
    """A restart of Ray gives a machine another id, and the one before stays listed."""
    same = {**NODE, "host": "gpu-17", "memory_bytes": 1}
    now = time.time()
    lost = [{**same, "id": f"node-abc{age}", "alive": False, "seen_at": now - age} for age in (30, 10, 20)]
    living = {**same, "id": "node-abc9", "seen_at": now}
    other = {**living, "id": "node-abc8"}
    for rows, found in (([*lost, living], "node-abc9"), (lost, "node-abc10")):
        async with store.write() as tx:
            await node_rows.replace(tx, rows)
        for wanted in ("gpu-17", "node-abc"):
            assert (await nodes.cordon(store, settings, wanted, None, "", "ann")).id == found
    async with store.write() as tx:
        await node_rows.replace(tx, [*lost, living, other])
    for wanted in ("gpu-17", "node-abc"):
        with pytest.raises(AmbiguousNode) as refusal:
            await nodes.cordon(store, settings, wanted, None, "", "ann")
        assert refusal.value.remedy == "Give an id: node-abc8, node-abc9."
    assert (await nodes.cordon(store, settings, "node-abc30", None, "", "ann")).id == "node-abc30"
    async with store.write() as tx:  # the other one is of a cluster that is gone, as after a new name
        await node_rows.replace(tx, [living])
        await node_rows.replace(tx, [{**other, "seen_at": now - 2 * 86_400}], "before")
    assert (await nodes.cordon(store, settings, "gpu-17", None, "", "ann")).id == "node-abc9"


async def test_both_of_the_last_two_are_never_cordoned_at_once(
    store: Store, database_url: str, settings: Settings, submit: Submit
) -> None:
    rules = Rules(RULES.backoff, Limits(faults=1))
    first, second = await placed(store, settings, submit, 2)
    other = Store(database_url)
    try:
        injections = injected(store, first, "node-1", rules=rules), injected(other, second, "node-2", rules=rules)
        both = await asyncio.gather(*injections)
    finally:
        await other.close()
    assert sorted(reported[0]["until"] is None for reported in both) == [False, True]
    assert sorted(node.in_use for node in (await seen(store, settings)).values()) == [False, True]


@pytest.mark.parametrize(("dumps", "cordoned"), [("never_enqueued", True), ("network", False), ("in_tolist", False)])
@POSTGRESQL_IN_FULL
async def test_a_hang_cordons_a_node_only_if_a_rank_is_named(
    store: Store, settings: Settings, submit: Submit, dumps: str, cordoned: bool
) -> None:
    """From a recorded hang on NCCL over the supervisor's incident to the node."""
    verdict = diagnose(recorded(dumps))
    node = None if verdict.rank is None else "node-1"
    spool = Spool(1 << 20)
    hang = Failure("hang", verdict.rank, verdict.message, node, evidence=evidence(recorded(dumps), verdict))
    EventMerger(spool, 4).emit_incident(hang, 1, [])
    (lease,) = await placed(store, settings, submit)
    await ingest(store, lease, 1, spool.take(0), Rules(RULES.backoff, Limits(faults=1)))
    found = await seen(store, settings)
    assert [found[name].cordon is not None for name in ("node-1", "node-2")] == [cordoned, False]
