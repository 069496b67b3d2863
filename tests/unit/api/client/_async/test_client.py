"""How long a client waits for a control plane that does not answer, and how often it asks whether something has ended."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from shardyard.api.client import AsyncClient
from shardyard.api.client.transport import ApiError, Unreachable, WaitTimeout


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (Unreachable("http://x", "refused"), True),
        (ApiError("database_unreachable", "The database does not answer.", 503), True),
        (ApiError("not_shardyard", "An answer of a proxy.", 502), True),
        (ApiError("internal_error", "An error of the control plane.", 500), False),
        (ApiError("job_not_found", "There is no such job.", 404), False),
        (ApiError("not_shardyard", "The download has no SHA-256 as its ETag."), False),
    ],
)
async def test_an_outage_is_waited_out_though_a_proxy_answers(
    monkeypatch: pytest.MonkeyPatch, error: ApiError, passes: bool
) -> None:
    async def at_once(_: float) -> None: ...

    monkeypatch.setattr("shardyard.api.client._async.client.sleep", at_once)
    answers: list[object] = [error, error, "the answer"]

    async def request() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with AsyncClient("http://127.0.0.1:9", patience_s=60.0) as client:
        if passes:
            assert await client._retry_unreachable(request) == "the answer"
        else:
            with pytest.raises(ApiError) as raised:
                await client._retry_unreachable(request)
            assert raised.value is error and len(answers) == 2


@pytest.mark.parametrize(
    ("module", "asks", "wait", "running"),
    [
        ("client", "job", "wait", {"state": "running"}),
        ("sweep_endpoints", "sweep", "wait_for_sweep", {"state": "running", "finished_at": None}),
    ],
)
async def test_the_longer_a_client_waits_the_more_rarely_it_asks(
    module: str, asks: str, wait: str, running: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times in each of the first seconds, and once in five seconds of a job of hours. At the timeout it asks once more."""
    now, asked = 0.0, list[float]()

    async def sleep(pause_s: float) -> None:
        nonlocal now
        now += pause_s

    async def answer(*_: object) -> SimpleNamespace:
        asked.append(now)
        return SimpleNamespace(id="x-1", name="x", **running)

    monkeypatch.setattr(f"shardyard.api.client._async.{module}.sleep", sleep)
    monkeypatch.setattr(f"shardyard.api.client._async.{module}.time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(AsyncClient, asks, answer)
    async with AsyncClient("http://127.0.0.1:9") as client:
        with pytest.raises(TimeoutError if asks == "sweep" else WaitTimeout):
            await getattr(client, wait)("x-1", timeout_s=3600.5)
    assert asked[:4] == [0.0, 0.25, 0.5, 0.75] and asked[-1] == 3600.5
    assert len(asked) < 3600 / 5 + 100
    assert max(later - earlier for earlier, later in pairwise(asked)) == pytest.approx(5.0)
