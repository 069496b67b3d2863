"""Jobs, gangs and empty databases for tests of the service."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.postgres import Postgres

from shardyard.service.dispatch.admission import admit
from shardyard.service.jobs import submit as submitting
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.store import nodes
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from .gang_events import NODE, state
from .traced_gang import TracedGang

Submit = Callable[..., Awaitable[Job]]


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of each kind that was never migrated."""
    if request.param == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path}/shardyard.db"
        return
    server: Postgres = request.getfixturevalue("postgres")
    url = server.empty_database()
    yield url
    server.drop(url)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


@pytest.fixture
def spec() -> Callable[..., JobSpec]:
    def make(name: str = "try", steps: int = 100, ranks: int = 1, **train: Any) -> JobSpec:
        labels = train.pop("labels", {})
        resources = {"device": train.pop("device", "auto"), **train.pop("resources", {})}
        policy = {"spares": train.pop("spares", 0)}
        retention = train.pop("retention", {})
        train = {"steps": steps, "global_batch": 4 * ranks, "layout": {"data": ranks}, **train}
        body = {"name": name, "train": train, "labels": labels, "resources": resources, "policy": policy}
        body |= {"retention": retention}
        return JobSpec.model_validate(body)

    return make


@pytest.fixture
def submit(store: Store, settings: Settings, spec: Callable[..., JobSpec]) -> Submit:
    async def stored(**fields: Any) -> Job:
        job, created = await submitting.submit(store, settings, spec(**fields), None, "", "tester")
        assert created
        return job

    return stored


@pytest.fixture
async def placed(store: Store, settings: Settings, submit: Submit) -> tuple[Job, Lease]:
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    job = await submit()
    (lease,) = (await admit(store, settings, "a", None)).leases
    return job, lease


@pytest.fixture
async def gang(store: Store, settings: Settings, submit: Submit) -> TracedGang:
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    job = await submit(ranks=2)
    (lease,) = (await admit(store, settings, "a", None)).leases
    running = TracedGang(store, job, lease)
    await running.emit(state("starting"), state("running"))
    return running
