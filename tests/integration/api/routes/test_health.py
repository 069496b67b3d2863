"""Liveness and readiness."""

import re
import time
from contextlib import AsyncExitStack

import httpx2
import pytest
from harness.databases import migrated_sqlite
from sqlalchemy import event

from shardyard.api.app import create_app
from shardyard.api.client import Client
from shardyard.api.routes import health
from shardyard.service.settings import Settings
from shardyard.service.store import nodes
from shardyard.service.store.engine import READERS, Store

from ..conftest import SIGNED, Plane


async def test_health(api: httpx2.AsyncClient) -> None:
    assert (await api.get("/healthz")).json() == {"status": "ok"}
    ready = await api.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "degraded")  # no dispatcher has seen a cluster
    assert (await api.get("/v1/nodes")).json() == {"items": []}


async def test_a_database_that_gives_no_answer_in_time_is_not_ready(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health, "_DATABASE_S", 0.01)
    migrated_sqlite(settings.database)
    store = Store(settings.database)
    transport = httpx2.ASGITransport(create_app(settings, store), raise_app_exceptions=False)
    async with (
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=SIGNED) as api,
        AsyncExitStack() as held,
    ):
        for _ in range(READERS):
            await held.enter_async_context(store.read())
        for _ in range(10):
            ready = await api.get("/readyz")
            assert ready.status_code == 503
            assert ready.json()["checks"]["database"]["code"] == "database_unreachable"
    await store.close()
    assert [record.levelname for record in caplog.records].count("ERROR") == 1


@pytest.mark.parametrize(
    ("hours", "message"),
    [
        (0, "1 machine."),
        (1, r"No dispatcher has seen the cluster for 3[67]\d\d s\."),
        (25, r"No dispatcher .* for 90\d\d\d s\."),
    ],
)
def test_readiness_says_for_how_long_no_dispatcher_has_seen_the_cluster(
    plane: Plane, client: Client, hours: int, message: str
) -> None:
    """Also after a day, when its machines count as lost."""
    node = {"id": "n1", "host": "here", "alive": True, "cpu": 8.0, "gpu": 0.0, "cpu_used": 0.0, "gpu_used": 0.0}

    async def write() -> None:
        async with plane.store.write() as tx:
            await nodes.replace(tx, [{**node, "memory_bytes": 1, "seen_at": time.time() - 3600 * hours}])

    plane.do(write())
    found = client.readiness().checks["cluster"]
    assert found.ok is (hours == 0) and re.fullmatch(message, found.message or "")


async def test_readiness_counts_machines_and_reads_no_record_of_one(settings: Settings) -> None:
    store = Store(migrated_sqlite(settings.database))
    read: list[str] = []
    event.listen(
        store._engines.reading.sync_engine, "before_cursor_execute", lambda *given: read.append(given[2].lower())
    )

    async def seen(cluster: str, alive: int, lost: int, ago_s: float) -> None:
        same = dict.fromkeys(("cpu", "gpu", "cpu_used", "gpu_used"), 1.0) | {"memory_bytes": 1, "host": "h"}
        rows = [
            {"id": f"n{one}", "alive": one < alive, "seen_at": time.time() - ago_s, **same}
            for one in range(alive + lost)
        ]
        async with store.write() as tx:
            await nodes.replace(tx, rows, cluster)

    transport = httpx2.ASGITransport(create_app(settings, store), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as api:

        async def cluster() -> tuple[bool, str]:
            read.clear()
            check = (await api.get("/readyz")).json()["checks"]["cluster"]
            of_nodes = [statement for statement in read if "nodes" in statement]
            assert any("count(*)" in statement for statement in of_nodes) and "gangs" not in " ".join(of_nodes)
            return check["ok"], check["message"]

        await seen("a", 0, 3, 0.0)
        assert await cluster() == (False, "No dispatcher has seen a machine of the cluster yet.")
        await seen("a", 1, 3, 3600.0)
        ok, message = await cluster()
        assert not ok and re.fullmatch(r"No dispatcher has seen the cluster for 36\d\d s\.", message)
        await seen("b", 1, 0, 0.0)
        assert await cluster() == (True, "2 machines.")
        await seen("a", 0, 4, 0.0)
        assert await cluster() == (True, "1 machine.")
    await store.close()
