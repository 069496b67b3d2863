"""A served API over a real store, without a cluster: what jobs report is stored the way a dispatcher stores it."""

import asyncio
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from sqlalchemy import text

from shardyard.api.access_token import token_file
from shardyard.api.app import create_app
from shardyard.api.daemon.uvicorn_server import listen, serving, url_of
from shardyard.service.dispatch.admission import admit
from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.jobs import submit as submitting
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.spec import AnySpec, kind_of
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import nodes, rollups
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from .databases import migrated_sqlite
from .events import whole_event
from .patience import PATIENCE_S

MILLION = 1_000_000
#: The step of the million whose loss is `HIGH`.
SPIKE = 765_432
HIGH = 1e6

_NODE = {"id": "n1", "host": "here", "alive": True, "cpu": 512.0, "gpu": 0.0, "cpu_used": 0.0, "gpu_used": 0.0}
_STORED = """
INSERT INTO steps (job_id, step, position, attempt, ts, loss, lr, grad_norm, loss_scale, skipped, tokens, tokens_per_s,
                   step_s, step_s_min, step_s_median, step_s_max, slowest_rank, mfu)
SELECT '{job}', n, n, 1, 1000.0 + n, CASE WHEN n = {spike} THEN {high} ELSE 2.0 + 3000.0 / (n + 1000) END, 0.00123456 * n,
       0.87654321 + 0.1 * (n % 17), 65536.0, {false}, n, 123456.789 + n % 1013, 0.123456, 0.1, 0.1, 0.234567, 3, 0.4567891
FROM {numbers}
"""
_NUMBERS = {
    "sqlite": f"(WITH RECURSIVE k(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM k WHERE n < {MILLION}) SELECT n FROM k)",
    "postgresql": f"generate_series(1, {MILLION}) AS n",
}


async def store_million(store: Store, job_id: str) -> None:
    """A million steps, of which one is a spike, as the ingest would have left them."""
    async with store.write() as tx:
        kind = tx.dialect.name
        false = "0" if kind == "sqlite" else "false"
        await tx.execute(text(_STORED.format(job=job_id, spike=SPIKE, high=HIGH, numbers=_NUMBERS[kind], false=false)))
        await rollups.extend(tx, job_id, 1, MILLION)
        done = {"step_pos": MILLION, "step": MILLION, "loss": 2.003, "tokens_per_s": 123_456.0, "tokens": MILLION}
        await job_rows.set_columns(tx, job_id, done)


class LiveServer:
    """The API in a thread of its own. `do` runs a coroutine in its loop."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(data_dir=folder, local_files=True)
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(PATIENCE_S)

    async def _serve(self, ready: threading.Event) -> None:
        self.store = Store(migrated_sqlite(self.settings.database))
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        listener = listen("127.0.0.1", 0, exactly=True)
        self.url = url_of(listener)
        async with serving(create_app(self.settings, self.store), listener):
            ready.set()
            await self._stop.wait()
        await self.store.close()

    @property
    def token(self) -> str:
        """The access token, which the server makes when it is first asked for."""
        file = token_file(self.settings)
        file.make()
        return file.read()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)

    def do(self, work: Coroutine[Any, Any, Any], patience_s: float = PATIENCE_S) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(patience_s)

    def placed(self, spec: dict[str, Any]) -> "LiveJob":
        """A new job of this spec, on which its dispatcher has just put its hand."""
        return self.do(self._placed(kind_of(spec).model_validate(spec)))  # type: ignore[no-any-return]

    async def _placed(self, spec: AnySpec) -> "LiveJob":
        async with self.store.write() as tx:
            await nodes.replace(tx, [{**_NODE, "memory_bytes": 1 << 40, "seen_at": time.time()}])
        job, _ = await submitting.submit(self.store, self.settings, spec, None, "", "tester")
        leases = (await admit(self.store, self.settings, "test", None)).leases
        return LiveJob(self, job, next(lease for lease in leases if lease.job_id == job.id))


class LiveJob:
    """A job that reports what a test says."""

    def __init__(self, served: LiveServer, job: Job, lease: Lease) -> None:
        self._served, self.id, self._lease = served, job.id, lease
        self._number = 0

    def emit(self, *reported: tuple[str, dict[str, Any]], since: float | None = None) -> None:
        """Store (kind, data) in one batch; `since`: unix seconds of the first, one second before the next."""
        events = []
        for at, (kind, data) in enumerate(reported):
            self._number += 1
            ts = time.time() if since is None else since + at
            events.append({"seq": self._number, "ts": ts, "kind": kind, "data": whole_event(kind, data)})
        self._served.do(ingest(self._served.store, self._lease, 1, events))

    def state(self, state: str, reason: str | None = None) -> None:
        self.emit(("state", {"state": state, "reason": reason, "message": None}))
