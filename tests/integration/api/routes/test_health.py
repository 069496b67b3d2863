"""Liveness and readiness."""

import re
import time
from contextlib import AsyncExitStack

import httpx2
import pytest
from harness.databases import migrated_sqlite

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
    """Also where the cluster has been away for so long that its machines are shown as lost."""
    node = {"id": "n1", "host": "here", "alive": True, "cpu": 8.0, "gpu": 0.0, "cpu_used": 0.0, "gpu_used": 0.0}

    async def write() -> None:
        async with plane.store.write() as tx:
            await nodes.replace(tx, [{**node, "memory_bytes": 1, "seen_at": time.time() - 3600 * hours}])

    plane.do(write())
    found = client.readiness().checks["cluster"]
    assert found.ok is (hours == 0) and re.fullmatch(message, found.message or "")
