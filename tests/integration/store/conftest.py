"""Jobs to try the store with."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from shardyard.service import jobs
from shardyard.service.records import Job
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.store.engine import Store

Submit = Callable[..., Awaitable[Job]]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


@pytest.fixture
def spec() -> Callable[..., JobSpec]:
    def make(name: str = "try", steps: int = 100, ranks: int = 1, **train: Any) -> JobSpec:
        labels = train.pop("labels", {})
        resources = {"device": train.pop("device", "auto")}
        policy = {"spares": train.pop("spares", 0)}
        train = {"steps": steps, "global_batch": 4 * ranks, "layout": {"data": ranks}, **train}
        body = {"name": name, "train": train, "labels": labels, "resources": resources, "policy": policy}
        return JobSpec.model_validate(body)

    return make


@pytest.fixture
def submit(store: Store, settings: Settings, spec: Callable[..., JobSpec]) -> Submit:
    async def stored(**fields: Any) -> Job:
        job, created = await jobs.submit(store, settings, spec(**fields), None, "", "tester")
        assert created
        return job

    return stored
