"""What tests of commands share: the address of the served API, a spec on a disk, a command on a terminal."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from harness.terminal import Terminal

from shardyard.service.settings import Settings

from ..conftest import SPEC, Plane, served

CLI = [sys.executable, "-m", "shardyard.api.cli"]


@pytest.fixture
def asks_the_plane(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this process ask the served API."""
    monkeypatch.setenv("SHARDYARD_URL", plane.url)


@pytest.fixture
def allowed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plane]:
    """An API that allows commands and streams beside ranks; commands of this process ask it."""
    with served(settings.model_copy(update={"exec": True})) as plane:
        monkeypatch.setenv("SHARDYARD_URL", plane.url)
        yield plane


@pytest.fixture
def a_week_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are printed as if a week had passed since."""
    now = SimpleNamespace(time=lambda: time.time() + 7 * 86_400, strftime=time.strftime, localtime=time.localtime)
    monkeypatch.setattr("shardyard.api.cli.terminal.screen.time", now)


class Restart:
    """A control plane that is stopped while a command first pauses, and comes back while its client pauses, when `then` is called."""

    def __init__(self, command: ModuleType, plane: Plane, then: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
        self._plane, self._then, self._state = plane, then, "runs"
        patch.setattr(command, "time", SimpleNamespace(sleep=self._polls, monotonic=time.monotonic))
        patch.setattr("shardyard.api.client._sync.client.sleep", self._retries)

    @property
    def is_over(self) -> bool:
        return self._state == "restarted"

    def _polls(self, seconds: float) -> None:
        if self._state == "runs":
            self._plane.stop()
            self._state = "stopped"
        time.sleep(seconds)

    def _retries(self, seconds: float) -> None:
        del seconds
        if self._state == "stopped":
            self._plane.start()
            self._state = "restarted"
            self._then()


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    return str(path)


@pytest.fixture
def shown(plane: Plane) -> Any:
    """Starts a command of the CLI on a terminal."""

    def start(*arguments: str, **more: str) -> Terminal:
        given = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        return Terminal([*CLI, *arguments], {**given, "SHARDYARD_URL": plane.url, **more})

    return start
