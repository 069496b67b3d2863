"""What a migration makes of rows that were stored before it, on both databases."""

import json
import struct
from functools import partial
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from harness.databases import POSTGRESQL_IN_FULL
from harness.events import logged
from sqlalchemy import JSON, Connection, Engine, column, event, insert, select, table, text, update

from shardyard.service.dispatch import retention
from shardyard.service.dispatch.admission import admit
from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.jobs.submit import cancel
from shardyard.service.queries import jobs, live_tail
from shardyard.service.queries.checkpoints import checkpoints
from shardyard.service.queries.logs import page
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.store import (
    capacities,
    events,
    leases,
    log_sizes,
    logs,
    nodes,
    orders,
    rank_samples,
    schema,
    tables,
    traces,
)
from shardyard.service.store import checkpoints as rows
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.program_tables import metric_chunks, metric_series
from shardyard.service.store.revision import MIGRATIONS
from shardyard.service.store.schema import upgrade
from shardyard.service.store.sweep_tables import sweeps

from ..conftest import Submit
from ..gang_events import event_batch, state
from .test_revision import unchecked

NODE = {"id": "n1", "host": "h1", "alive": True, "cpu": 1.0, "gpu": 0.0, "cpu_used": 0.0, "gpu_used": 0.0}


@pytest.fixture(autouse=True)
def _used_by_none_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "SETTLE_S", 0.0)


def downgraded(revision: str, connection: Connection) -> None:
    """Take the database back to that version."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes |= {"connection": connection, "metadata": tables.METADATA}
    command.downgrade(config, revision)


async def back_and_forth(url: str, revision: str) -> None:
    """The database of that version, as this one finds it."""
    async with unchecked(url) as tx:
        await tx.run_sync(partial(downgraded, revision))
    await upgrade(url)


async def test_checkpoints_that_were_reported_of_have_a_state(database_url: str, store: Store, submit: Submit) -> None:
    job = await submit()
    same = {"attempt": 1, "kind": "checkpoint", "ts": 1.0, "actor": "test"}
    async with store.write() as tx:
        await events.append(tx, job.id, [{**same, "data": {"step": step, "path": "/x"}} for step in (10, 20, 10)])
    await back_and_forth(database_url, "0011")
    async with store.write() as tx:
        await rows.remove_all_but(tx, job.id, [20])
    found = (await checkpoints(store, job.id)).items
    assert [(one.step, one.state) for one in found] == [(10, "deleted"), (20, "present"), (10, "deleted")]


@POSTGRESQL_IN_FULL
async def test_a_job_that_was_reported_as_preempted_changes_its_layout(
    database_url: str, store: Store, submit: Submit
) -> None:
    job = await submit()
    said = [("preempting", "relayout"), ("queued", "preempted"), ("running", None)]
    same = {"attempt": 1, "kind": "state", "ts": 1.0, "actor": "test"}
    async with store.write() as tx:
        stored = [{**same, "data": {"state": state, "reason": reason, "attempt": 1}} for state, reason in said]
        await events.append(tx, job.id, stored)
        await tx.execute(update(tables.jobs).values(state="preempting", reason="preempted"))
    await back_and_forth(database_url, "0014")
    reported = [item.data for item in (await live_tail.tail(store, job.id, Cursor())).items][1:]
    assert [(one["state"], one["reason"]) for one in reported] == [
        ("resharding", "reshard"),
        ("queued", "reshard"),
        ("running", None),
    ]
    now = await jobs.get_job(store, job.id)
    assert (now.state, now.reason) == ("resharding", "reshard")


@POSTGRESQL_IN_FULL
async def test_faults_specs_and_states_get_the_last_words(database_url: str, store: Store, submit: Submit) -> None:
    job = await submit()
    fault = {"id": "fault-1", "fault": "slow-rank", "rank": 0, "delay_ms": 5.0, "duration_s": 2.0, "done": True}
    same = {"attempt": 1, "ts": 1.0, "actor": "test"}
    row = {"job_id": job.id, "id": "fault-1", "kind": "slow-rank", "rank": 0, "attempt": 1, "actor": "test"}
    spec = job.spec | {"train": job.spec["train"] | {"replica_check": {"every": 3}}, "policy": {"hang_timeout_s": 9.0}}
    async with store.write() as tx:
        await tx.execute(insert(tables.faults).values(**row, delay_ms=5.0, duration_s=2.0, asked_at=1.0))
        await events.append(tx, job.id, [{**same, "kind": "fault", "data": fault}])
        await tx.execute(update(tables.jobs).values(state="resharding", reason="reshard", spec=spec))
    connection = unchecked(database_url)
    async with connection as tx:
        await tx.run_sync(partial(downgraded, "0020"))
        old = (await tx.execute(text("SELECT by_ms, for_s FROM faults"))).one()
        state = (await tx.execute(text("SELECT state, reason FROM jobs"))).one()
        data = (await tx.execute(select(tables.events.c.data).where(tables.events.c.kind == "fault"))).scalar_one()
        before = (await tx.execute(select(tables.jobs.c.spec))).scalar_one()
    assert (tuple(old), tuple(state)) == ((5.0, 2.0), ("relayouting", "relayout"))
    assert (data["by_ms"], data["for_s"]) == (5.0, 2.0)
    assert (before["train"]["replicas"], before["policy"]) == ({"every": 3}, {"hang_s": 9.0})
    await upgrade(database_url)
    async with store.read() as tx:
        kept = (await tx.execute(select(tables.faults))).mappings().one()
        moved = (await tx.execute(select(tables.jobs))).mappings().one()
        reported = (await tx.execute(select(tables.events.c.data).where(tables.events.c.kind == "fault"))).scalar_one()
    assert (kept["delay_ms"], kept["duration_s"], kept["job_id"]) == (5.0, 2.0, job.id)
    assert (moved["state"], moved["reason"], moved["spec"], reported) == ("resharding", "reshard", spec, fault)


@POSTGRESQL_IN_FULL
async def test_jobs_of_an_earlier_version_are_placed_and_taken_over(
    store: Store, database_url: str, settings: Settings, submit: Submit
) -> None:
    """Queued ones stand in their queue, those that run belong to the one cluster that there was."""

    async def seen() -> None:
        async with store.write() as tx:
            await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])

    await seen()
    runs = await submit(ranks=2)
    (lease,) = (await admit(store, settings, "a", None)).leases
    waits = [await submit(ranks=2, spares=1), await submit(ranks=2, layout={"data": {"min": 1, "max": 2}})]
    await back_and_forth(database_url, "0012")
    await seen()
    async with store.write() as tx:
        await leases.release(tx, [lease.token])
        assert await leases.abandoned(tx, 5, "default") == [runs.id] and not await leases.abandoned(tx, 5, "other")
        shapes = [(await job_rows.by_id(tx, job.id) or {})["shape"] for job in waits]
    assert shapes == ["auto 2 1 1", "auto 1 1 0"]
    await admit(store, settings, "a", None)
    assert (await jobs.get_job(store, waits[0].id)).reason == "waiting_for_devices"


@POSTGRESQL_IN_FULL
async def test_events_of_an_earlier_version_get_the_final_words(
    database_url: str, store: Store, submit: Submit
) -> None:
    """Stored in today's words, taken back to the earlier ones, and brought forward again."""
    job = await submit()
    same = {"attempt": 1, "ts": 1.0, "actor": "test"}
    said = [
        ("trace_finished", {"id": "t", "done": True}),
        ("reshard", {"before": "a", "after": "b"}),
        ("probe", {"step": 1, "busy_s": [0.1], "wait_s": [0.2]}),
        ("incident", {"cause": "replica_mismatch", "busy_s": 0.5, "message": "own_s"}),
        ("incident", {"cause": "rank_lost", "message": "replicas_differ"}),
        ("state", {"state": "recovering", "reason": "replica_mismatch"}),
    ]
    lists = {"step_s": [0.3], "busy_s": [0.1], "wait_s": [0.2], "memory": [1]}
    many = {"attempt": 1, "step": 1, "ts": 1.0, "world_size": 1, "packed": rank_samples.pack({**lists, "steps": 1})}
    async with store.write() as tx:
        await events.append(tx, job.id, [{**same, "kind": kind, "data": data} for kind, data in said])
        await rank_samples.append(tx, job.id, [many] * 3)
        await tx.execute(update(tables.jobs).values(reason="replica_mismatch"))
    async with unchecked(database_url) as tx:
        await tx.run_sync(partial(downgraded, "0018"))
        stored = (await tx.execute(text("SELECT kind, data FROM events ORDER BY position"))).all()[1:]
        packed = (await tx.execute(text("SELECT packed FROM rank_samples"))).scalars().all()
    earlier = [(kind, data if isinstance(data, dict) else json.loads(data)) for kind, data in stored]
    assert earlier[:3] == [
        ("traced", {"id": "t", "done": True}),
        ("relayout", {"before": "a", "after": "b"}),
        ("probe", {"step": 1, "own_s": [0.1], "waited_s": [0.2]}),
    ]
    assert earlier[3][1] == {"cause": "replicas_differ", "own_s": 0.5, "message": "own_s"}
    assert [sorted(rank_samples.unpack(one)) for one in packed] == [
        ["memory", "own_s", "step_s", "steps", "waited_s"]
    ] * 3
    await upgrade(database_url)
    found = (await live_tail.tail(store, job.id, Cursor())).items[1:]
    assert [(item.kind, item.data) for item in found] == said
    async with store.read() as tx:
        kept = await rank_samples.before(tx, job.id, None, 10)
    assert [rank_samples.unpack(row["packed"]) for row in kept] == [{**lists, "steps": 1}] * 3
    assert (await jobs.get_job(store, job.id)).reason == "replica_mismatch"


async def test_operations_of_an_earlier_version_are_pending(database_url: str, store: Store, submit: Submit) -> None:
    job = await submit()
    same = {"job_id": job.id, "kind": "verify", "path": "/x", "actor": "me", "asked_at": 1.0}
    states = ["pending", "running", "done", "failed"]
    async with store.write() as tx:
        for n, state in enumerate(states):
            await orders.insert(
                tx, tables.operations, {**same, "id": f"op-{n}", "position": n, "step": n, "state": state}
            )
    async with unchecked(database_url) as tx:
        await tx.run_sync(partial(downgraded, "0019"))
    assert await operation_states(database_url) == ["waiting", *states[1:]]
    await upgrade(database_url)
    assert await operation_states(database_url) == states


async def test_nodes_of_a_capacity_of_an_earlier_version_have_the_clusters_own_image(
    database_url: str, store: Store
) -> None:
    async with store.write() as tx:
        await capacities.put(tx, "default", "cuda", {"": [8, 4], "nemo": [6]}, True)
        await capacities.put(tx, "default", "cpu", {}, False)
    await back_and_forth(database_url, "0045")
    async with store.read() as tx:
        stored = {row["device"]: (row["nodes"], row["configured"]) for row in await capacities.of(tx, "default")}
    assert stored == {"cuda": ({"": [8, 6, 4]}, True), "cpu": ({}, False)}


async def test_a_capacity_of_an_earlier_version_is_forgotten_where_nodes_have_an_image(
    database_url: str, store: Store
) -> None:
    """Else those nodes would count as nodes of the cluster's own image for good, and jobs would wait for them."""
    async with store.write() as tx:
        for cluster, image in (("mixed", "nemo"), ("plain", "")):
            await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0, "image": image}], cluster)
            await capacities.put(tx, cluster, "cuda", {"": [8], "nemo": [6]}, False)
            await capacities.put(tx, cluster, "cpu", {"": [4]}, True)
    await back_and_forth(database_url, "0045")
    async with store.read() as tx:
        found = {name: {row["device"] for row in await capacities.of(tx, name)} for name in ("mixed", "plain")}
    assert found == {"mixed": {"cpu"}, "plain": {"cpu", "cuda"}}


async def test_checkpoints_of_an_earlier_version_get_the_standard_verdicts(
    database_url: str, store: Store, submit: Submit
) -> None:
    jobs_made = [await submit() for _ in range(3)]
    result = {"verdict": "corrupt", "message": "x", "corrupt": ["a"], "corrupt_files": 1, "files": 2, "bytes": 3}
    done = {"kind": "verify", "path": "/x", "actor": "me", "asked_at": 1.0, "state": "done"}
    outcomes = [
        {"result": result},
        {"result": {"verdict": "valid", "corrupt": [], "corrupt_files": 0}},
        {"result": {"out": "/y", "dtype": "fp32"}},
        {"error": {"code": "checkpoint_deleted", "message": "gone", "remedy": "another"}},
    ]
    incident = {"cause": "checkpoint_corrupt", "message": "damaged", "step": 20}
    said = [
        ("incident", incident),
        ("incident", {"cause": "hang", "rank": 1}),
        ("plan", {"cause": "checkpoint_corrupt"}),
    ]
    async with store.write() as tx:
        for job in jobs_made:
            for step, state in ((10, "deleted"), (20, "corrupt"), (30, "present")):
                await rows.put(tx, job.id, step, state)
            for n, outcome in enumerate(outcomes):
                mine = {"job_id": job.id, "id": f"op-{n}", "position": 5_000_000_000 + n, "step": n}
                await orders.insert(tx, tables.operations, {**done, **mine, **outcome})
            same = {"attempt": 1, "ts": 1.0, "actor": "test"}
            await events.append(
                tx, job.id, [{**same, "kind": kind, "data": data} for kind, data in said * 200]
            )  # batches
    before = await verdicts(store)
    async with unchecked(database_url) as tx:
        await tx.run_sync(partial(downgraded, "0021"))
        states = (await tx.execute(text("SELECT state FROM checkpoints ORDER BY job_id, step"))).scalars().all()
        numbers = (await tx.execute(text("SELECT n FROM operations ORDER BY job_id, id"))).scalars().all()
        columns = (column("result", JSON), column("error", JSON))
        old = (await tx.execute(select(*columns).select_from(table("operations")).order_by(text("job_id, id")))).all()[
            :4
        ]
        kinds = select(tables.events.c.data).where(tables.events.c.kind.in_(["incident", "plan"]))
        data = (await tx.execute(kinds.order_by(tables.events.c.job_id, tables.events.c.position))).scalars().all()[:3]
    assert states == ["removed", "damaged", "present"] * 3
    assert numbers == [5_000_000_000 + n for n in range(4)] * 3
    assert (old[0].result["verdict"], old[0].result["damaged"], old[0].result["damaged_files"]) == ("damaged", ["a"], 1)
    assert (old[1].result["verdict"], old[2].result, old[3].result) == ("whole", outcomes[2]["result"], None)
    assert (old[2].error, old[3].error["code"]) == (None, "checkpoint_removed")
    assert data == [incident | {"cause": "checkpoint_damaged"}, said[1][1], said[2][1]]
    await upgrade(database_url)
    assert await verdicts(store) == before


async def verdicts(store: Store) -> list[Any]:
    """All rows of the tables whose words a migration changes."""
    found: list[Any] = []
    async with store.read() as tx:
        for each in (tables.checkpoints, tables.operations, tables.events):
            stored = (await tx.execute(select(each).order_by(*each.primary_key.columns))).mappings().all()
            found += [dict(row) for row in stored]
    return found


async def operation_states(url: str) -> list[str]:
    async with unchecked(url) as tx:
        return [row.state for row in await tx.execute(text("SELECT state FROM operations ORDER BY id"))]


@POSTGRESQL_IN_FULL
async def test_jobs_that_resumed_from_a_checkpoint_have_a_parent(
    database_url: str, store: Store, submit: Submit
) -> None:
    source, child, other = [await submit() for _ in range(3)]
    async with store.write() as tx:
        await job_rows.set_columns(tx, child.id, {"resume": f"/x/{source.id}/step-00000010"})
        await job_rows.set_columns(tx, other.id, {"resume": "s3://models/step-00000010"})
    await back_and_forth(database_url, "0028")
    found = [await jobs.get_job(store, job.id) for job in (source, child, other)]
    assert [job.parent for job in found] == [None, source.id, None]
    assert not any(job.pinned or job.deleted_at for job in found)


@POSTGRESQL_IN_FULL
async def test_open_sweeps_of_an_earlier_version_keep_the_job_whose_checkpoint_their_spec_names(
    database_url: str, store: Store, submit: Submit
) -> None:
    job = (await submit()).id
    path = f"/x/{job}/step-00000010"
    named = [{"train": {"resume_from": path}}, {"train": {"resume_from": job}}, {"command": [], "resume_from": path}]
    specs: list[dict[str, Any]] = [*named, {"train": {"resume_from": "base@1"}}, {"train": {}}, {"command": []}]
    same = {"name": "tune", "state": "running", "sweep": {}, "trials": 1, "actor": "me", "created_at": 1.0}
    ended = {"id": "sweep-30", "spec": specs[0], "finished_at": 2.0}
    async with store.write() as tx:
        for n in range(24):
            await tx.execute(insert(sweeps).values(**same, id=f"sweep-{n:02}", spec=specs[n % len(specs)]))
        await tx.execute(insert(sweeps).values(**same, **ended))
    await back_and_forth(database_url, "0046")
    async with store.read() as tx:
        found = (await tx.execute(select(sweeps.c.parent).order_by(sweeps.c.id))).scalars().all()
    assert found == [job, job, job, None, None, None] * 4 + [None]


async def test_logs_and_traces_of_an_earlier_version_get_sizes(
    database_url: str, store: Store, settings: Settings, submit: Submit
) -> None:
    """Traces at once. Lines are counted when a bound needs them; those that follow are counted beside them."""
    ended, other, lives, silent = [await submit(retention={"logs_mib": own}) for own in (1, 0, 1, 1)]
    line = {"attempt": 1, "rank": 0, "stream": "stdout", "line": 0, "text": "é" * (1 << 18), "ts": 1.0}
    trace = {"attempt": 1, "steps": 1, "state": "done", "actor": "me", "asked_at": 1.0, "settled_at": 1.0}
    part = {"trace_id": "trace-1", "step": 1, "began": 1.0, "seconds": 1.0, "head": {}}
    async with store.write() as tx:
        for job in (ended, other, lives):
            await logs.append(tx, job.id, [line] * 3)
        await orders.insert(tx, tables.traces, {**trace, "job_id": ended.id, "id": "trace-1"})
        await orders.insert(tx, tables.traces, {**trace, "job_id": ended.id, "id": "trace-2"})
        for rank in range(3):
            await traces.keep(tx, {**part, "job_id": ended.id, "rank": rank, "body": b"\0" * 100})
    await cancel(store, ended.id, "tester")
    await back_and_forth(database_url, "0041")
    async with store.write() as tx:
        await logs.append(tx, lives.id, [line])
    size = (1 << 19) + log_sizes.LINE_BYTES
    assert await sizes(store) == {ended.id: (0, 3), other.id: (0, 3), lives.id: (size, 3)}
    await retention.sweep(store, settings)
    assert await sizes(store) == {ended.id: (size, 0), other.id: (0, 3), lives.id: (size, 3)}
    await retention.sweep(store, settings.model_copy(update={"keep_logs_gib": 1.0}))
    assert await sizes(store) == {ended.id: (size, 0), other.id: (3 * size, 0), lives.id: (4 * size, 0)}
    assert (await page(store, ended.id)).removed == 2 and (await page(store, silent.id)).removed == 0
    async with store.read() as tx:
        stored = (await tx.execute(select(tables.traces.c.id, tables.traces.c.bytes))).all()
    assert sorted(map(tuple, stored)) == [("trace-1", 300), ("trace-2", 0)]


async def sizes(store: Store) -> dict[str, tuple[int, int]]:
    """Job → the counted bytes of its log, and the position up to which lines are not counted."""
    async with store.read() as tx:
        found = (await tx.execute(select(tables.log_sizes))).all()
    return {row.job_id: (row.bytes, row.uncounted) for row in found}


async def test_what_jobs_are_sorted_by_is_found_in_what_was_stored(
    database_url: str, store: Store, placed: tuple[Job, Lease], submit: Submit
) -> None:
    """Durations, device times and extremes, which earlier versions had not stored."""
    job, lease = placed
    never = await submit()
    values = {"acc": [(step, float(step % 700)) for step in range(2000)], "lost": [(1, None)]}
    batch = event_batch(state("starting"), state("running"), logged(values), state("succeeded"))
    await ingest(store, lease, 1, batch)

    async def found() -> list[tuple[Any, ...]]:
        async with store.read() as tx:
            numbers = select(tables.jobs.c.id, tables.jobs.c.duration_s, tables.jobs.c.device_s)
            extremes = select(metric_series.c.name, metric_series.c.lowest, metric_series.c.highest)
            rows = [*await tx.execute(numbers.order_by("id")), *await tx.execute(extremes.order_by("name"))]
        return [tuple(row) for row in rows]

    before = await found()
    assert all(number is not None for number in before[0]) and before[1:] == [
        (never.id, None, None),
        ("acc", 0.0, 699.0),
        ("lost", None, None),
    ]
    await back_and_forth(database_url, "0041")
    after = await found()
    assert after[0] == (job.id, pytest.approx(before[0][1]), pytest.approx(before[0][2])) and after[1:] == before[1:]


async def test_extremes_of_many_metrics_are_stored_by_few_statements(
    database_url: str, store: Store, submit: Submit
) -> None:
    job = await submit()
    count = 2000
    series = [{"job_id": job.id, "number": n, "name": f"m{n:04}", "width": 1, "run": 1} for n in range(count)]
    chunks = [
        {"job_id": job.id, "number": n, "chunk": chunk, "packed": struct.pack("<HIddd", 0, 1, n - chunk, n + chunk, n)}
        for n in range(count)
        for chunk in range(1 + n % 2)
    ]
    async with store.write() as tx:
        await tx.execute(insert(metric_series), [{**row, "last_step": 1} for row in series])
        await tx.execute(insert(metric_chunks), chunks)
    updates: list[str] = []

    def executed(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith("UPDATE metric_series"):
            updates.append(statement)

    event.listen(Engine, "before_cursor_execute", executed)
    try:
        await back_and_forth(database_url, "0041")
    finally:
        event.remove(Engine, "before_cursor_execute", executed)
    assert len(updates) == 2
    async with store.read() as tx:
        columns = (metric_series.c.lowest, metric_series.c.highest)
        found = (await tx.execute(select(*columns).order_by(metric_series.c.number))).all()
    assert [tuple(row) for row in found] == [(n - n % 2, n + n % 2) for n in range(count)]
