"""How long a client waits for a control plane that does not answer, where it finds it then, and how often it asks for an end."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.http_server import http_server

from shardyard.api import pidfile
from shardyard.api.client import AsyncClient
from shardyard.api.client.transport import ApiError, Unreachable, WaitTimeout

_FILE = b"the file"
_ANSWERS = {
    "/healthz": b'{"status": "ok"}',
    "/readyz": b'{"status": "ready", "checks": {}}',
    "/v1/nodes": b'{"items": [], "next": null}',
    "/v1/jobs/j/artifacts/out": _FILE,
}


class Plane(BaseHTTPRequestHandler):
    """What a control plane answers."""

    def do_GET(self) -> None:
        content = _ANSWERS[self.path.partition("?")[0]]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def restarted_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A control plane's address, which the data folder does not name yet: it names one at which nothing listens."""
    monkeypatch.setenv("SHARDYARD_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("SHARDYARD_URL", raising=False)
    pidfile.write(tmp_path, pidfile.Control.of_this_process("http://127.0.0.1:1"))
    with http_server(Plane) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    "call", [AsyncClient.nodes, lambda client: client.download_artifact("j", "out", "file")], ids=["call", "download"]
)
async def test_a_call_goes_to_the_address_after_a_restart(
    call: Callable[[AsyncClient], Awaitable[object]], restarted_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with AsyncClient() as client, AsyncClient("http://127.0.0.1:1") as named:
        pidfile.write(tmp_path, pidfile.Control.of_this_process(restarted_at))
        await call(client)
        assert client.url == restarted_at
        with pytest.raises(Unreachable):
            await call(named)


async def test_a_control_plane_that_did_not_answer_is_looked_for_again(restarted_at: str, tmp_path: Path) -> None:
    async with AsyncClient() as client, AsyncClient() as other:
        pidfile.write(tmp_path, pidfile.Control.of_this_process(restarted_at))
        assert [await client.alive(), await client.alive()] == [False, True]
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1\b"):
            await other.readiness()
        assert (await other.readiness()).status == "ready"


@pytest.mark.usefixtures("restarted_at")
async def test_a_request_goes_nowhere_else_while_no_control_plane_is_named(tmp_path: Path) -> None:
    """Another user's may have the default address."""
    async with AsyncClient() as client:
        lost = client.url
        (tmp_path / "control.json").unlink()
        with pytest.raises(Unreachable, match=re.escape(lost)):
            await client.jobs()
        assert client.url == lost != pidfile.DEFAULT_URL


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (Unreachable("http://x", "refused"), True),
        (ApiError("database_unreachable", "The database does not answer.", 503), True),
        (ApiError("not_shardyard", "An answer of a proxy.", 502), True),
        (ApiError("checkpoint_storage_failed", "The checkpoint cannot be read here.", 503), False),
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
            assert await client.retry_unreachable(request) == "the answer"
        else:
            with pytest.raises(ApiError) as raised:
                await client.retry_unreachable(request)
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


class Outage:
    """A clock that only sleeps move, and a control plane that answers once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: ApiError) -> None:
        self.now, self._error, self._answered = 0.0, error, False
        for module in ("client", "sweep_endpoints"):
            monkeypatch.setattr(f"shardyard.api.client._async.{module}.sleep", self._sleep)
            monkeypatch.setattr(
                f"shardyard.api.client._async.{module}.time", SimpleNamespace(monotonic=lambda: self.now)
            )
        for asks in ("job", "sweep"):
            monkeypatch.setattr(AsyncClient, asks, self._answer)

    async def _sleep(self, pause_s: float) -> None:
        self.now += pause_s

    async def _answer(self, *_: object) -> SimpleNamespace:
        if self._answered:
            raise self._error
        self._answered = True
        return SimpleNamespace(id="x-1", name="x", state="running", finished_at=None)


_OUTAGES = [Unreachable("http://x", "refused"), ApiError("database_unreachable", "It does not answer.", 503)]


@pytest.mark.parametrize("error", _OUTAGES, ids=lambda error: error.code)
@pytest.mark.parametrize(("wait", "raises"), [("wait", WaitTimeout), ("wait_for_sweep", TimeoutError)])
async def test_a_wait_ends_at_its_timeout_during_an_outage_too(
    wait: str, raises: type[Exception], error: ApiError, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(monkeypatch, error)
    async with AsyncClient("http://127.0.0.1:9") as client:
        with pytest.raises(raises, match=r"x-1 was running .* 10\.3 s") as raised:
            await getattr(client, wait)("x-1", timeout_s=10.3)
    assert outage.now == pytest.approx(10.3) and raised.value.__cause__ is error


@pytest.mark.parametrize("timeout_s", [None, 1000.0])
@pytest.mark.parametrize("wait", ["wait", "wait_for_sweep"])
async def test_a_wait_without_a_timeout_ends_with_the_clients_patience(
    wait: str, timeout_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = Unreachable("http://x", "refused")
    outage = Outage(monkeypatch, error)
    async with AsyncClient("http://127.0.0.1:9", patience_s=300.0) as client:
        with pytest.raises(Unreachable) as raised:
            await getattr(client, wait)("x-1", timeout_s=timeout_s)
    assert outage.now == pytest.approx(300.25) and raised.value is error


async def test_what_no_wait_changes_ends_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    Outage(monkeypatch, ApiError("job_deleted", "The job was deleted.", 410))
    async with AsyncClient("http://127.0.0.1:9") as client:
        with pytest.raises(ApiError, match="deleted"):
            await client.wait("x-1", timeout_s=0.2)
