"""Over HTTP a database that cannot serve is a 503 with its own code, never a 500; the log has one short line for any number of requests."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from harness.databases import migrated_sqlite
from harness.patience import PATIENCE_S

from shardyard.api.app import create_app
from shardyard.api.routes import health
from shardyard.service.settings import Settings
from shardyard.service.store import revision
from shardyard.service.store.engine import Store

from .conftest import SIGNED, SPEC, problem


@asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    store = Store(settings.database)
    transport = httpx2.ASGITransport(create_app(settings, store), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=SIGNED) as client:
        yield client
    await store.close()


def stamped(revision: str) -> Callable[[Path], None]:
    def stamp(file: Path) -> None:
        with sqlite3.connect(file) as database:
            database.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        database.close()

    return stamp


def dropped(file: Path) -> None:
    with sqlite3.connect(file) as database:
        database.execute("DROP TABLE nodes")
        database.execute("ALTER TABLE jobs RENAME TO work")
    database.close()


BROKEN: dict[str, tuple[Callable[[Path], object], bool]] = {  # code → how, and whether it may pass by itself
    "schema_too_new": (stamped("9999"), True),
    "schema_too_old": (stamped("0010"), True),
    "schema_unknown": (stamped("1975ea83b712"), False),
    "schema_missing": (lambda file: file.write_bytes(b""), True),
    "schema_damaged": (dropped, False),
    "database_missing": (lambda file: file.unlink(), False),
    "database_corrupt": (lambda file: file.write_bytes(b"no database" * 1000), False),
}


@pytest.mark.parametrize("code", BROKEN)
async def test_every_request_is_refused_with_what_is_wrong(
    settings: Settings, code: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health, "_DATABASE_S", PATIENCE_S)
    migrated_sqlite(settings.database)
    file = settings.data_dir / "shardyard.db"
    damage, passing = BROKEN[code]
    damage(file)
    async with served(settings) as api:
        for _ in range(20):
            listed, posted = await api.get("/v1/jobs"), await api.post("/v1/jobs", json=SPEC)
            ready = await api.get("/readyz")
            for answer in (listed, posted):
                [error] = problem(answer, 503, code)["errors"]
                assert error["message"] and error["remedy"] and "sqlite" not in answer.text
                assert ("retry-after" in answer.headers) is passing
        assert (ready.status_code, ready.json()["status"]) == (503, "unready")
        check = ready.json()["checks"]["database"]
        assert (check["ok"], check["code"]) == (False, code) and check["message"] and check["remedy"]
        assert (await api.get("/healthz")).status_code == 200
    [line] = [record for record in caplog.records if record.name.startswith("shardyard")]
    assert code in line.getMessage() and len(line.getMessage()) < 500 and line.exc_info is None


async def test_a_schema_that_changes_under_a_running_api_is_noticed_and_so_is_its_return(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(revision, "CHECK_S", 0.0)
    caplog.set_level("INFO")
    migrated_sqlite(settings.database)
    file = settings.data_dir / "shardyard.db"
    async with served(settings) as api:
        assert (await api.post("/v1/jobs", json=SPEC)).status_code == 201
        stamped("9999")(file)
        assert (await api.get("/readyz")).status_code == 503
        problem(await api.post("/v1/jobs", json=SPEC), 503, "schema_too_new")
        stamped(revision.known_revisions()[-1])(file)
        assert (await api.get("/readyz")).status_code == 200
        assert (await api.post("/v1/jobs", json=SPEC)).status_code == 201
        assert len((await api.get("/v1/jobs")).json()["items"]) == 2
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("shardyard")]
    assert ["schema_too_new" in message for message in ours] == [True, True]
    assert "works again" in ours[1]


async def test_an_api_whose_database_cannot_be_written_serves_what_is_stored(settings: Settings) -> None:
    migrated_sqlite(settings.database)
    store = Store(settings.database)
    transport = httpx2.ASGITransport(create_app(settings, store), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=SIGNED) as api:
        job = (await api.post("/v1/jobs", json=SPEC)).json()
        async with store.write() as tx:
            pages = (await tx.exec_driver_sql("PRAGMA page_count")).scalar_one()
            await tx.exec_driver_sql(f"PRAGMA max_page_count={pages}")
        while (answer := await api.post("/v1/jobs", json=SPEC)).status_code == 201:
            pass
        problem(answer, 503, "database_full")
        assert answer.headers["retry-after"]
        assert (await api.get(f"/v1/jobs/{job['id']}")).status_code == 200
        ready = await api.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        assert ready.json()["checks"]["database"]["code"] == "database_full"
        async with store.write() as tx:
            await tx.exec_driver_sql("PRAGMA max_page_count=1000000")
        assert (await api.post("/v1/jobs", json=SPEC)).status_code == 201
        assert (await api.get("/readyz")).json()["checks"]["database"]["ok"] is True
    await store.close()
