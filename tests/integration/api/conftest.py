"""The real app over a real SQLite store; a gang's news are stored the way a dispatcher stores them, without Ray."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from harness.databases import migrated_sqlite
from harness.events import whole_event
from harness.patience import PATIENCE_S

from shardyard.api import pidfile
from shardyard.api.access_token import TokenFile
from shardyard.api.app import create_app
from shardyard.api.client import Client
from shardyard.api.daemon.uvicorn_server import listen, serving, url_of
from shardyard.api.routes import health
from shardyard.service import spec_files
from shardyard.service.dispatch.admission import admit
from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.queries import logs
from shardyard.service.settings import Settings
from shardyard.service.store import nodes
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

SPEC: dict[str, Any] = {
    "name": "tiny",
    "train": {"steps": 20, "global_batch": 8, "layout": {"data": 2}, "data": {"seq_len": 64}},
    "labels": {"team": "search"},
}


#: The access token of the tests' control planes, and how a request carries it.
TOKEN = "a-token-of-the-tests-" + "0123456789" * 3
SIGNED = {"Authorization": f"Bearer {TOKEN}"}


def ask(method: str, url: str, **given: Any) -> httpx2.Response:
    """One request of the token's holder."""
    return anonymously(method, url, **{**given, "headers": SIGNED | given.get("headers", {})})


def anonymously(method: str, url: str, **given: Any) -> httpx2.Response:
    """One request without the token. It waits as long as the tests do, not 5 s, and reads no certificates (40 ms)."""
    return httpx2.request(method, url, **{"timeout": PATIENCE_S, "verify": False, **given})


@pytest.fixture(autouse=True)
def _slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service's own limits for an answer are tried elsewhere."""
    monkeypatch.setattr(health, "_DATABASE_S", PATIENCE_S)
    monkeypatch.setattr(logs, "LIMIT_S", PATIENCE_S)
    monkeypatch.setattr(logs, "STRETCH_S", PATIENCE_S)
    monkeypatch.setattr(spec_files, "WALK_S", PATIENCE_S)
    monkeypatch.setattr(spec_files.SpecFiles.__init__, "__defaults__", (PATIENCE_S, PATIENCE_S))


@pytest.fixture(autouse=True)
def _quick_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn looks every 0.1 s whether it is to end, and then sleeps for 0.1 s. Hundreds of tests have a server of their own."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))

    monkeypatch.setattr("uvicorn.server.asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": sleep}))


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings whose data folder is the test's own; other SHARDYARD_ variables are not seen."""
    monkeypatch.delenv("SHARDYARD_URL", raising=False)
    monkeypatch.delenv("SHARDYARD_DATABASE_URL", raising=False)
    monkeypatch.setenv("SHARDYARD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("SHARDYARD_TOKEN", TOKEN)
    return Settings(local_files=True)


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the app in this process, which has the token."""
    store = Store(migrated_sqlite(settings.database))
    transport = httpx2.ASGITransport(create_app(settings, store), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=SIGNED) as client:
        yield client
    await store.close()


@dataclass
class Plane:
    """A served API in a thread of its own, which can be stopped and started again on the same port, until its `end`."""

    settings: Settings
    url: str = ""
    store: Store = field(init=False)
    loop: asyncio.AbstractEventLoop = field(init=False)
    app: Any = field(init=False)
    _stop: asyncio.Event = field(init=False)
    _thread: threading.Thread | None = None
    _held: socket.socket = field(default_factory=socket.socket)
    _serves: threading.Lock = field(
        default_factory=threading.Lock
    )  # held while something is done, and while it is stopped

    def __post_init__(self) -> None:
        """Bound and never listening: while the API is stopped, no other process is given its port."""
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))

    def end(self) -> None:
        self.stop()
        self._held.close()

    def start(self) -> None:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(PATIENCE_S)
        if self._serves.locked():
            self._serves.release()

    def stop(self) -> None:
        """Once nothing is being done in its loop. What other threads want to do there waits until it is started again."""
        if self._thread is None:
            return
        assert self._serves.acquire(timeout=PATIENCE_S)
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        self._thread = None

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the server's loop."""
        assert self._serves.acquire(timeout=PATIENCE_S)
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)
        finally:
            self._serves.release()

    async def _serve(self, ready: threading.Event) -> None:
        self.store = Store(migrated_sqlite(self.settings.database))
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.app = create_app(self.settings, self.store)
        listener = listen("127.0.0.1", self._held.getsockname()[1], exactly=True)
        self.url = url_of(listener)
        async with serving(self.app, listener):
            ready.set()
            await self._stop.wait()
        await self.store.close()


@contextmanager
def served(settings: Settings) -> Iterator[Plane]:
    plane = Plane(settings)
    plane.start()
    try:
        yield plane
    finally:
        plane.end()


@pytest.fixture
def plane(settings: Settings) -> Iterator[Plane]:
    """A served API; its url is where `Client()` looks."""
    with served(settings) as opened:
        yield opened


@pytest.fixture
def client(plane: Plane) -> Iterator[Client]:
    with Client(plane.url, patience_s=PATIENCE_S) as opened:
        yield opened


def until(true: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not become true in time"
        time.sleep(0.02)


class Gang:
    """Reports a job's events into the store as its dispatcher would, without a cluster."""

    def __init__(self, plane: Plane, job: str) -> None:
        self._plane = plane
        self._number = 0
        self._lease = plane.do(self._place(job))

    async def _place(self, job: str) -> Lease:
        node = {"id": "n1", "host": "here", "alive": True, "cpu": 8.0, "gpu": 0.0, "cpu_used": 0.0, "gpu_used": 0.0}
        async with self._plane.store.write() as tx:
            await nodes.replace(tx, [{**node, "memory_bytes": 1 << 30, "seen_at": time.time()}])
        admission = await admit(self._plane.store, self._plane.settings, "test", None)
        return next(lease for lease in admission.leases if lease.job_id == job)

    def emit(self, *reported: tuple[str, dict[str, Any]]) -> None:
        """Store a batch of (kind, data)."""
        events = []
        for kind, data in reported:
            self._number += 1
            events.append({"seq": self._number, "ts": time.time(), "kind": kind, "data": whole_event(kind, data)})
        self._plane.do(ingest(self._plane.store, self._lease, 1, events))

    def state(self, state: str, reason: str | None = None, message: str | None = None) -> None:
        self.emit(("state", {"state": state, "reason": reason, "message": message}))

    def succeed(self) -> None:
        self.emit(("summary", SUMMARY), ("state", {"state": "succeeded", "reason": None, "message": None}))

    def steps(self, first: int, last: int) -> None:
        self.emit(*(("step", step(number)) for number in range(first, last + 1)))

    def log(self, rank: int, first: int, *lines: str) -> None:
        self.emit(("log", {"rank": rank, "stream": "stdout", "first": first, "lines": list(lines)}))


def running_job(plane: Plane, client: Client) -> tuple[str, Gang]:
    """A job that runs, by its id, and its gang."""
    job = client.submit(SPEC).id
    gang = Gang(plane, job)
    gang.state("starting")
    gang.state("running")
    return job, gang


def step(number: int) -> dict[str, Any]:
    """A step's record whose loss falls."""
    times = {"step_s": 0.1, "step_s_min": 0.1, "step_s_median": 0.1, "step_s_max": 0.1, "slowest_rank": 1}
    numbers = {"loss": 5.0 / number, "lr": 1e-3, "grad_norm": 1.0, "loss_scale": None, "skipped": False}
    return {"step": number, "tokens": 512, "tokens_per_s": 5120.0, **numbers, **times}


SUMMARY: dict[str, Any] = {
    "first_loss": 5.0,
    "last_loss": 0.25,
    "last_steps": 2,
    "validation_loss": 0.5,
    "unigram_loss": 3.0,
    "tokens": 10240,
    "tokens_per_s": 5120.0,
    "time_to_first_step_s": 1.5,
    "checkpoint": "/somewhere/step-00000020",
    "export": "/somewhere/export-00000020",
    "steps": 20,
}


@pytest.fixture
async def anonymous(api: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """A client of the same app without a token."""
    return httpx2.AsyncClient(transport=api._transport, base_url="http://127.0.0.1")


@pytest.fixture
def own(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> TokenFile:
    """The plane's data folder has written down where it runs, and its token lies in the folder."""
    plane.stop()
    monkeypatch.delenv("SHARDYARD_TOKEN")
    plane.settings = plane.settings.model_copy(update={"token": None})
    plane.start()
    file = TokenFile(plane.settings.data_dir / "token", own=True)
    file.make()
    pidfile.write(plane.settings.data_dir, pidfile.Control.of_this_process(plane.url, str(file.path)))
    return file


def problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """The checked problem body of a refusal."""
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code), body
    assert body["title"] and body["detail"]
    assert body["type"] == f"urn:shardyard:problem:{code}"
    return body
