"""What tests of commands share: the address of the served API, a spec on a disk, a command on a terminal."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
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
