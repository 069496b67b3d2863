"""The claim of the next jobs looks at no more than it needs, however long the queue is."""

from sqlalchemy import Select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service import jobs
from shardyard.service.identity import new_job_id
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.tables import jobs as table

from .conftest import Submit

MANY = 10_000


async def _queue(tx: AsyncConnection, like: str) -> None:
    row = await job_rows.by_id(tx, like)
    assert row is not None
    rows = [{**row, "id": new_job_id(1.0 + i), "idempotency_key": None, "retry_at": 9e9} for i in range(MANY)]
    await tx.execute(table.insert(), rows)
    await tx.execute(text("ANALYZE"))


async def _plan(tx: AsyncConnection, statement: Select[*tuple[object, ...]]) -> str:
    here = tx.dialect.name == "postgresql"
    dialect = postgresql.dialect() if here else sqlite.dialect()  # type: ignore[no-untyped-call]
    compiled = statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
    explained = await tx.execute(text(f"EXPLAIN {'(ANALYZE, BUFFERS)' if here else 'QUERY PLAN'} {compiled}"))
    return "\n".join(" ".join(map(str, row)) for row in explained)


async def test_a_long_queue_is_read_by_its_index(store: Store, submit: Submit) -> None:
    """Ten thousand jobs wait for their next try before one that is ready."""
    ready = await submit()
    async with store.write() as tx:
        await _queue(tx, ready.id)
    async with store.read() as tx:
        plan = await _plan(tx, job_rows.front(tx, 200))
        assert [row["id"] for row in await job_rows.queued(tx, 200)] == [ready.id]
    print(plan)
    assert "ix_jobs_state_id_retry_at" in plan
    assert not any(word in plan.lower() for word in ("seq scan", "scan jobs", "sort", "temp b-tree"))
    assert (await jobs.get_job(store, ready.id)).retry_at is None


async def test_elastic_jobs_are_found_among_all_that_run(store: Store, submit: Submit) -> None:
    """Ten thousand jobs run, of which one may grow."""
    one = await submit(ranks=2, layout={"data": {"min": 1, "max": 2}})
    other = await submit()
    async with store.write() as tx:
        await _queue(tx, other.id)
        await tx.execute(table.update().values(state="running"))
        await tx.execute(table.update().where(table.c.id == one.id).values(elastic_at=1.0))
        await tx.execute(text("ANALYZE"))
    async with store.read() as tx:
        plan = await _plan(tx, job_rows.growing(tx))
        assert [row["id"] for row in await job_rows.may_grow(tx)] == [one.id]
    print(plan)
    assert "ix_jobs_elastic" in plan
