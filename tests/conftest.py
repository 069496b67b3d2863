"""What tests of several floors share, and which of them run one after the other in one process."""

import gc
import os
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from harness.bucket import Buckets, running_buckets
from harness.budgets import pytest_addoption as pytest_addoption  # noqa: PLC0414  (pytest reads its hooks here)
from harness.budgets import pytest_configure as pytest_configure  # noqa: PLC0414
from harness.budgets import read_budgets
from harness.control_plane import ControlPlane, all_ended, running_control_plane, until
from harness.patience import PATIENCE_S
from harness.postgres import Postgres, running_postgres
from harness.steady_environment import steady

#: Hypothesis: no example fails because the machine is slow, and each run draws the same ones. `--hypothesis-profile=drawn` draws others.
hypothesis.settings.register_profile(
    "drawn", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], database=None
)
hypothesis.settings.register_profile("same", parent=hypothesis.settings.get_profile("drawn"), derandomize=True)
hypothesis.settings.load_profile("same")

steady()

# torch asks for the name of each peer's address, only to log it, and waits for 5 s where the name server loses a question.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")

HERE = Path(__file__).parent
BUCKET = "checkpoints"

#: Folders whose tests share what is slow to start, and so one process: a Ray head for gangs, a control plane for what is seen from outside.
#: Every other file is a group of its own.
TOGETHER = {"integration/workers/supervisor": "gang", "acceptance": "plane", "browser": "plane"}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and thousands of tests live until the end. A garbage collector that goes through them needs a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, object, object]:
    """The text of a set differs from process to process, and xdist refuses processes that name their tests differently."""
    made = yield
    for test in made if isinstance(made, list) else ():
        params = getattr(test, "callspec", None)
        for name, value in params.params.items() if params else ():
            if isinstance(value, set | frozenset) and value and str(value) in test.name:
                raise pytest.Collector.CollectError(
                    f"{test.name}: its parameter {name} is a set. Give it ids, or make it a tuple."
                )
    return made


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The dearest groups first, so that no process is left with a long one at the end."""
    cost: dict[str, float] = {}
    for file, seconds in read_budgets(config.rootpath).items():
        cost[_group(file)] = cost.get(_group(file), 0.0) + seconds
    groups = {item: _group(item.nodeid) for item in items}
    items.sort(key=lambda item: (-cost.get(groups[item], 0.0), groups[item]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each group in one process, and the groups as processes become free. (Its marks for groups do nothing under pytest 9.2.)"""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return Groups(config, log)


def _group(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return TOGETHER.get(Path(file).parent.relative_to("tests").as_posix(), file)


@pytest.fixture(scope="session", autouse=True)
def _no_dry_runs() -> Iterator[None]:
    """A submission of a module of the user's own runs it here for some seconds, which the tests that look at it ask for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDYARD_DRY_RUN_S", "0")
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One real PostgreSQL server, started by the first who asks; it is stopped and deleted when the session ends."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def buckets() -> Iterator[Buckets]:
    """A server that speaks S3, with one bucket; who kills it starts it again."""
    with running_buckets(BUCKET) as server:
        yield server


@pytest.fixture
def prefix(buckets: Buckets, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a prefix of the bucket that is this test's own, which this process may use."""
    for name, value in buckets.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def shared_plane(buckets: Buckets) -> Iterator[ControlPlane]:
    """`shardyard up` with a Ray of its own, which lets faults be asked for and whose workers have the credentials of a bucket."""
    with running_control_plane(
        SHARDYARD_FAULT_INJECTION="true", SHARDYARD_EXEC="true", SHARDYARD_WARM_WORKERS="5", **buckets.environment
    ) as plane:
        yield plane


@pytest.fixture(scope="module")
def plane(shared_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane that all files share; no job outlives the file that submitted it, so that the next one has all devices."""
    yield shared_plane
    with shared_plane.client() as client:
        until(lambda: all_ended(client), PATIENCE_S, "an end of all jobs")
