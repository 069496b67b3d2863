"""The blocking client is generated from the asynchronous one."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def sync_client() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sync_client", ROOT / "deploy" / "codegen" / "sync_client.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_is_generated_or_has_a_counterpart(sync_client: ModuleType) -> None:
    by_hand = {"__init__.py", "runtime.py"}
    for side in ("_async", "_sync"):
        names = {path.name for path in (sync_client.CLIENT / side).glob("*.py")}
        assert names == by_hand | set(sync_client.FILES)


@pytest.mark.parametrize("name", ["client.py", "job.py", "endpoints.py"])
def test_the_committed_file_is_what_the_script_writes(sync_client: ModuleType, name: str) -> None:
    committed = (sync_client.CLIENT / "_sync" / name).read_text(encoding="utf-8")
    assert sync_client.generated(name) == committed, "run `make sync-client`"


def test_only_code_loses_its_async_and_await(sync_client: ModuleType) -> None:
    source = (
        'async def wait(self) -> AsyncJobHandle:\n    """Of `AsyncClient`: an async await."""\n'
        "    async with closing(self.events()) as stream:\n        return await anext(stream)  # await\n"
    )
    assert sync_client.rewritten(source) == (
        'def wait(self) -> JobHandle:\n    """Of `Client`: an async await."""\n'
        "    with closing(self.events()) as stream:\n        return next(stream)  # await\n"
    )
