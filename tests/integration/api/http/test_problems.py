"""Errors as problem documents."""

import httpx2
import pytest

from shardyard.api.app import create_app
from shardyard.service.settings import Settings
from shardyard.service.store.engine import Store

from ..conftest import SIGNED, problem


async def test_a_wrong_method_says_the_right_one(api: httpx2.AsyncClient) -> None:
    answer = await api.put("/v1/nodes")
    [error] = problem(answer, 405, "method_not_allowed")["errors"]
    assert answer.headers["allow"] == "GET"
    assert "GET" in error["remedy"]
    both = await api.delete("/v1/jobs")
    assert both.headers["allow"] == "GET, POST"
    assert (await api.patch("/v1/jobs/some/cancel")).headers["allow"] == "POST"


async def test_an_internal_error_gives_a_reference_and_nothing_else(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(settings.database)  # its file was never made
    app = create_app(settings, store)

    async def broken() -> None:
        raise RuntimeError("a secret in sqlite")

    app.add_api_route("/broken", broken)
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=SIGNED) as api:
        answer = await api.get("/broken")
        away = await api.get("/v1/jobs")
        ready = await api.get("/readyz")
    await store.close()
    [error] = problem(answer, 500, "internal_error")["errors"]
    assert "sqlite" not in answer.text.lower() and "Traceback" not in answer.text
    reference = error["message"].split()[-1].strip(".")
    assert reference in caplog.text
    problem(away, 503, "database_missing")
    assert "jobs" not in away.json()["detail"]
    assert (ready.status_code, ready.json()["status"]) == (503, "unready")
    assert ready.json()["checks"]["database"]["ok"] is False
