"""Elastic jobs over real databases and a scriptable cluster: fewer replicas when devices are gone, more when they are back."""

import asyncio
from collections.abc import Callable, Sequence, Set
from typing import Any

import pytest

from shardyard.service import nodes
from shardyard.service.dispatch import elastic_growth
from shardyard.service.dispatch.admission import admit
from shardyard.service.dispatch.elastic_growth import Growth, _grow, _Takes, _wanted, _without
from shardyard.service.ids import gang_name, new_job_id
from shardyard.service.jobs import elastic
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.reshard import reshard
from shardyard.service.queries import jobs
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.spec import CommandSpec, JobSpec
from shardyard.service.states import State
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import leases as lease_rows
from shardyard.service.store import nodes as node_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from ...inprocess_cluster import Gang, InProcessCluster, Script, run_until_stopped, train
from .dispatching import dispatching, ended, job_history, reached, states, until

#: Of those that take seconds; what they ask of the store is tried on both kinds elsewhere.
ONE_DATABASE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
#: The scriptable cluster frees devices at once.
FREED_S = 0.5


@pytest.fixture(autouse=True)
def _freed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic, "FREED_S", FREED_S)


def spec(least: int = 1, most: int = 4, grace_s: float = 0.0, **policy: Any) -> JobSpec:
    training = {"steps": 20, "global_batch": 16, "layout": {"data": {"min": least, "max": most}}}
    return JobSpec.model_validate({"name": "try", "train": training, "policy": policy | {"elastic_grace_s": grace_s}})


async def submit(store: Store, settings: Settings, **numbers: Any) -> Job:
    job, _ = await submitting.submit(store, settings, spec(**numbers), None, "", "tester")
    return job


async def reshards(store: Store, job: Job) -> list[dict[str, Any]]:
    return [item.data for item in await job_history(store, job) if item.kind == "reshard"]


def has_room_for(cluster: InProcessCluster, ranks: int) -> None:
    """Another user takes all of its devices but this number."""
    node = cluster.machines[0]
    cluster.machines = [node.model_copy(update={"cpu_used": node.cpu - ranks / 4})]


def then_full(cluster: InProcessCluster, script: Script) -> Script:
    """A gang that takes all the room there is, so that nothing is left to grow into."""

    async def run(gang: Gang) -> None:
        has_room_for(cluster, 0)
        await script(gang)

    return run


def sizes(cluster: InProcessCluster) -> Sequence[tuple[int, int]]:
    return [(spec.world_size, spec.run["train"]["layout"]["data"]) for spec in cluster.specs]


async def test_a_job_that_waited_long_enough_starts_with_the_replicas_for_which_there_is_room(
    store: Store,
    settings: Settings,
    cluster: InProcessCluster,
) -> None:
    has_room_for(cluster, 3)
    cluster.script = then_full(cluster, train)
    job = await submit(store, settings)
    assert (job.world_size, job.layout) == (4, "data 4")
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.attempt, job.world_size, job.layout) == (State.SUCCEEDED, 1, 2, "data 2")
    assert job.batch == "global batch 16 = 2 data × 1 micro-batches × 8 sequences"
    assert job.spec["train"]["layout"]["elastic"] == {"min": 1, "max": 4}
    assert sizes(cluster) == [(2, 2)]
    assert await reshards(store, job) == [{"before": "data 4", "after": "data 2", "reason": "no_room"}]


async def test_a_job_takes_all_its_replicas_where_there_is_room_and_waits_for_them_before(
    store: Store,
    settings: Settings,
    cluster: InProcessCluster,
) -> None:
    has_room_for(cluster, 2)
    job = await submit(store, settings, grace_s=3600.0)
    async with dispatching(store, settings, cluster):
        job = await until(store, job, lambda now: now.reason == "waiting_for_devices")
        assert job.message == "Needs 4 ranks, 2 of 4 CPU ranks are free; waiting for 2 more."
        has_room_for(cluster, 4)
        job = await ended(store, job)
    assert (job.state, job.world_size) == (State.SUCCEEDED, 4)
    assert await reshards(store, job) == []


@ONE_DATABASE
async def test_a_gang_that_lost_devices_goes_on_smaller_at_once_and_costs_no_restart(
    store: Store,
    settings: Settings,
    cluster: InProcessCluster,
) -> None:
    async def loses_devices(gang: Gang) -> None:
        await gang.state("starting", "placed")
        await gang.state("running", "first_step")
        await gang.step(1)
        cluster.script = train
        has_room_for(cluster, 2)
        while (await nodes.all_nodes(store, settings))[0].cpu_used == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await gang.state("failed", "devices_lost", "2 of 4 devices did not come back")

    cluster.script = loses_devices
    job = await submit(store, settings, grace_s=3600.0, max_restarts=0)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.attempt, job.restarts, job.world_size) == (State.SUCCEEDED, 2, 0, 2), job.message
    assert sizes(cluster) == [(4, 4), (2, 2)]
    assert await reshards(store, job) == [{"before": "data 4", "after": "data 2", "reason": "no_room"}]


@ONE_DATABASE
async def test_a_small_job_grows_when_devices_stay_free_and_no_job_waits_for_them(
    store: Store,
    settings: Settings,
    cluster: InProcessCluster,
) -> None:
    has_room_for(cluster, 3)
    cluster.script = then_full(cluster, run_until_stopped)
    job = await submit(store, settings, grace_s=0.1)
    async with dispatching(store, settings, cluster):
        job = await until(store, job, reached(State.RUNNING))
        assert job.world_size == 2
        large = await submit(store, settings, least=4, grace_s=3600.0)
        large = await until(store, large, lambda now: now.reason == "waiting_for_devices")
        has_room_for(cluster, 4)  # as two of them are its own, not enough for the other
        await asyncio.sleep(FREED_S + 1.0)  # longer than the time after which it would grow
        assert (await jobs.get_job(store, job.id)).state == State.RUNNING, "who waits in the queue comes first"
        await submitting.cancel(store, large.id, "tester")
        job = await until(store, job, lambda now: now.world_size == 4 and now.state == State.RUNNING)
        await submitting.cancel(store, job.id, "tester")
        job = await ended(store, job)
    assert (job.attempt, job.restarts) == (2, 0)
    assert sizes(cluster) == [(2, 2), (4, 4)]
    assert [one["reason"] for one in await reshards(store, job)] == ["no_room", "devices_free"]
    assert "resharding" in await states(store, job)


@ONE_DATABASE
async def test_a_command_grows_once_it_has_saved_a_checkpoint_to_start_again_from(
    store: Store,
    settings: Settings,
    cluster: InProcessCluster,
) -> None:
    saves = asyncio.Event()

    async def runs(gang: Gang) -> None:
        await gang.state("starting", "placed")
        await gang.state("running", "first_step")
        has_room_for(cluster, 4)
        await saves.wait()
        await gang.emit("checkpoint", step=7, path="/c/7", bytes=1, seconds=0.1, held_s=0.1)
        await gang.stopped.wait()

    has_room_for(cluster, 2)
    cluster.script = runs
    wanted = {"ranks": {"min": 1, "max": 4}, "policy": {"elastic_grace_s": 0.1}}
    spec = CommandSpec.model_validate({"name": "mine", "command": ["a"], **wanted})
    job, _ = await submitting.submit(store, settings, spec, None, "", "tester")
    assert (job.world_size, job.layout) == (4, "4 ranks")
    async with dispatching(store, settings, cluster):
        job = await until(store, job, reached(State.RUNNING))
        assert (job.world_size, job.spec["ranks"]) == (2, 2)
        await asyncio.sleep(FREED_S + 1.0)  # longer than the time after which a gang that trains grows
        assert (await jobs.get_job(store, job.id)).state == State.RUNNING, "it would begin again"
        saves.set()
        job = await until(store, job, lambda now: now.world_size == 4 and now.state == State.RUNNING)
        await submitting.cancel(store, job.id, "tester")
        job = await ended(store, job)
    assert (job.attempt, job.restarts, job.spec["ranks"]) == (2, 0, 4)
    assert [one.world_size for one in cluster.specs] == [2, 4]
    assert [one.elastic_grace_s for one in cluster.specs] == [0.1, 0.1]
    assert await reshards(store, job) == [
        {"before": "4 ranks", "after": "2 ranks", "reason": "no_room"},
        {"before": "2 ranks", "after": "4 ranks", "reason": "devices_free"},
    ]


async def test_a_range_asked_for_again_changes_nothing_and_a_number_ends_it(
    store: Store,
    settings: Settings,
    cluster: InProcessCluster,
) -> None:
    cluster.script = run_until_stopped
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        job = await until(store, job, reached(State.RUNNING))
        assert (await reshard(store, settings, job.id, spec(), "tester")).state == State.RUNNING
        fixed = JobSpec.model_validate(job.spec | {"train": job.spec["train"] | {"layout": {"data": 1}}})
        asked = await reshard(store, settings, job.id, fixed, "tester")
        assert (asked.state, asked.world_size) == (State.RESHARDING, 1)
        assert asked.spec["train"]["layout"]["elastic"] is None
        await submitting.cancel(store, job.id, "tester")
        await ended(store, job)


async def test_only_jobs_that_could_use_a_jobs_devices_keep_it_from_growing(
    store: Store, settings: Settings, spec: Callable[..., JobSpec]
) -> None:
    cores, gpus, both = _Takes("cpu", True), _Takes("cuda", False), _Takes("cuda", True)

    async def queued(device: str, cpus: float = 0.0) -> Job:
        made = spec(device=device, resources={"cpus_per_gpu": cpus})
        return (await submitting.submit(store, settings, made, None, "", "tester"))[0]

    async def wanted() -> Set[_Takes]:
        async with store.read() as tx:
            assert await _wanted(tx, settings, set()) == set()
            return await _wanted(tx, settings, {cores, gpus, both})

    node = {"id": "n", "host": "h", "alive": True, "cpu": 8.0, "gpu": 4.0, "cpu_used": 0.0, "gpu_used": 2.0}
    async with store.write() as tx:
        await node_rows.replace(tx, [{**node, "memory_bytes": 1, "seen_at": 0.0}])
    assert await wanted() == set()
    job = await queued("cpu")
    assert await wanted() == {cores, both}, "a gang on GPUs that takes cores, too, leaves them to it"
    await submitting.cancel(store, job.id, "tester")
    job = await queued("cuda")
    assert await wanted() == {gpus, both}
    await submitting.cancel(store, job.id, "tester")
    await queued("cuda", cpus=2.0)
    assert await wanted() == {cores, gpus, both}, "it waits for cores as well"


async def two_small_jobs(store: Store, settings: Settings) -> list[Lease]:
    """Two jobs that run with two ranks each and may have four. Two ranks are free, and two are another user's."""
    node = {"id": "n", "host": "h", "alive": True, "cpu": 2.0, "gpu": 0.0, "cpu_used": 1.5, "gpu_used": 0.0}
    node |= {"memory_bytes": 1, "seen_at": 0.0}
    async with store.write() as tx:
        await node_rows.replace(tx, [{**node, "gangs": shares("a", "b", cpu=0.5)}])
    placed = [await running_at_once(store, settings, await submit(store, settings, least=2)) for _ in range(2)]
    async with store.write() as tx:
        await node_rows.replace(tx, [{**node, "gangs": shares(*(one.job_id for one in placed), cpu=0.5)}])
    return placed


def shares(*holders: str, cpu: float = 0.0, gpu: float = 0.0) -> list[dict[str, Any]]:
    return [{"gang": gang_name(job, 1), "cpu": cpu, "gpu": gpu} for job in holders]


async def running_at_once(store: Store, settings: Settings, job: Job) -> Lease:
    """The lease of the job, which starts now, and may grow."""
    (lease,) = (await admit(store, settings, "a", None)).leases
    async with store.write() as tx:
        await job_rows.set_columns(tx, job.id, {"state": "running", "elastic_at": 0.0})
    return lease


async def running(store: Store, leases: Sequence[Lease]) -> list[tuple[State, int]]:
    return [(job.state, job.world_size) for job in [await jobs.get_job(store, one.job_id) for one in leases]]


async def test_devices_that_a_job_saves_to_take_are_given_to_no_other(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elastic, "FREED_S", 0.0)
    leases, growth = await two_small_jobs(store, settings), Growth()
    for _ in range(2):
        await growth.grow(store, settings, [one.token for one in leases], "a")
        assert await running(store, leases) == [(State.RESHARDING, 4), (State.RUNNING, 2)]
    new = JobSpec.model_validate({"name": "new", "train": {"steps": 20, "global_batch": 16, "layout": {"data": 2}}})
    job, _ = await submitting.submit(store, settings, new, None, "", "tester")
    assert (await admit(store, settings, "a", None)).leases == []
    job = await jobs.get_job(store, job.id)
    assert job.message == "Needs 2 ranks, 0 of 8 CPU ranks are free; waiting for 2 more."
    async with store.write() as tx:  # it has saved: its devices are free, and its gang is still being removed
        await job_rows.set_columns(tx, leases[0].job_id, {"state": "queued", "retry_at": 0.0})
        await node_rows.replace(tx, [{**(await node_rows.all_nodes(tx))[0], "cpu_used": 1.0, "gangs": []}])
    assert (await admit(store, settings, "a", None)).leases == []
    async with store.write() as tx:
        await lease_rows.release(tx, [leases[0].token])
    assert [one.job_id for one in (await admit(store, settings, "a", None)).leases] == [leases[0].job_id]


@ONE_DATABASE
async def test_where_too_few_devices_are_free_for_any_job_no_decision_reads_all_machines(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elastic, "FREED_S", 0.0)
    leases, growth = await two_small_jobs(store, settings), Growth()
    async with store.write() as tx:
        (node,) = await node_rows.all_nodes(tx)
        await node_rows.replace(tx, [{**node, "cpu_used": 1.75}])  # one rank is free, and each lacks two
    monkeypatch.delattr(elastic_growth, "decide")
    await growth.grow(store, settings, [one.token for one in leases], "a")
    assert await running(store, leases) == [(State.RUNNING, 2)] * 2


async def test_two_dispatchers_at_once_do_not_grow_onto_the_same_devices(store: Store, settings: Settings) -> None:
    leases = await two_small_jobs(store, settings)
    async with store.read() as tx:
        rows = await job_rows.may_grow(tx)
    await asyncio.gather(*(_grow(store, settings, row, 4, "a") for row in rows))
    assert sorted(await running(store, leases)) == [(State.RESHARDING, 4), (State.RUNNING, 2)]


def test_what_others_have_of_a_machine_stays_theirs_where_a_job_would_leave_it(settings: Settings) -> None:
    job = new_job_id(1.0)
    node = {"id": "n", "cpu": 8.0, "cpu_used": 0.0, "gpu": 12.0, "gpu_used": 8.0, "zone": "", "domain": "", "image": ""}
    gangs = [{"gang": gang_name(job, 1), "cpu": 0.0, "gpu": 4.0}]
    found = _without({**node, "gpu_model": "H100", "gangs": gangs}, job, settings, ())  # type: ignore[arg-type]
    assert (found.free["cuda"], found.others["cuda"]) == (8, 4)


GPUS = {"host": "h", "alive": True, "cpu": 8.0, "cpu_used": 0.0, "gpu": 4.0, "memory_bytes": 1, "seen_at": 0.0}


def on_gpus(sizes: tuple[int, int], command: bool = False) -> JobSpec | CommandSpec:
    least, most = sizes
    common = {"name": "try", "policy": {"elastic_grace_s": 0.0}, "resources": {"device": "cuda"}}
    if command:
        return CommandSpec.model_validate({**common, "command": ["a"], "ranks": {"min": least, "max": most}})
    layout = {"data": {"min": least, "max": most}}
    return JobSpec.model_validate({**common, "train": {"steps": 20, "global_batch": 48, "layout": layout}})


async def on_nodes(store: Store, *nodes: dict[str, Any]) -> None:
    async with store.write() as tx:
        await node_rows.replace(tx, [{**GPUS, "gpu_used": 0.0, "gpu_model": "", "gangs": [], **node} for node in nodes])


async def begun(store: Store, settings: Settings, spec: JobSpec | CommandSpec) -> Lease:
    job, _ = await submitting.submit(store, settings, spec, None, "", "tester")
    return await running_at_once(store, settings, job)


async def grown(store: Store, settings: Settings, leases: Sequence[Lease]) -> list[tuple[State, int]]:
    """What becomes of running jobs in a pass of their dispatcher."""
    await Growth().grow(store, settings, [one.token for one in leases], "a")
    return await running(store, leases)


async def test_a_job_on_a_cordoned_node_keeps_its_devices_until_there_is_room_for_all_of_it(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elastic, "FREED_S", 0.0)
    await on_nodes(store, {"id": "n", "gpu": 2.0}, {"id": "m", "gpu": 0.0})
    lease = await begun(store, settings, on_gpus((2, 4)))
    own = {"id": "n", "gpu_used": 2.0, "gangs": shares(lease.job_id, gpu=2.0)}
    await on_nodes(store, own, {"id": "m", "gpu_used": 2.0})
    await nodes.cordon(store, settings, "n", None, "a fan", "eve")
    assert await grown(store, settings, [lease]) == [(State.RUNNING, 2)], "it would continue with the two of the other"
    await on_nodes(store, own, {"id": "m"})
    assert await grown(store, settings, [lease]) == [(State.RESHARDING, 4)]


async def test_a_job_that_cannot_grow_keeps_no_devices_from_the_next(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command without a checkpoint, and a job that has no room on one GPU model."""
    monkeypatch.setattr(elastic, "FREED_S", 0.0)
    for own, other, command in (("H100", "H100", True), ("H100", "A100", False)):
        await on_nodes(
            store, {"id": "n", "gpu_model": own}, {"id": "m", "gpu": 2.0, "gpu_model": other, "gpu_used": 2.0}
        )
        first = await begun(store, settings, on_gpus((4, 6), command))
        busy = {"id": "n", "gpu_model": own, "gpu_used": 4.0, "gangs": shares(first.job_id, gpu=4.0)}
        await on_nodes(store, busy, {"id": "m", "gpu_model": other, "gpu_used": 2.0})
        second = await begun(store, settings, on_gpus((2, 4)))
        theirs = shares(second.job_id, gpu=2.0)
        await on_nodes(store, busy, {"id": "m", "gpu_model": other, "gpu_used": 2.0, "gangs": theirs})
        assert await grown(store, settings, [first, second]) == [(State.RUNNING, 4), (State.RESHARDING, 4)]
        for lease in (first, second):
            await submitting.cancel(store, lease.job_id, "tester")
            async with store.write() as tx:
                await job_rows.set_columns(tx, lease.job_id, {"state": "cancelled"})
