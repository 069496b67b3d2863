"""Debian's Chromium at the dashboard of the control plane that all files share; it is gone when the tests are."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.chromium import chromium
from harness.control_plane import ControlPlane
from harness.live_server import LiveServer
from harness.patience import PATIENCE_MS
from playwright.sync_api import Browser, expect

from shardyard.api import pidfile

#: Playwright waits 5 s for what it expects; a page on a machine that does other things too may take longer.
expect.set_options(timeout=PATIENCE_MS)

DIST = Path(pidfile.__file__).parent / "dashboard" / "dist"


@pytest.fixture(scope="module")
def url(plane: ControlPlane) -> str:
    """Where the dashboard is."""
    assert (DIST / "index.html").is_file(), "the dashboard is not built: run `make dashboard`"
    found = pidfile.read(plane.data)
    assert found is not None
    return found.url


@pytest.fixture(scope="module")
def token(plane: ControlPlane) -> str:
    """What signs a browser in there."""
    return plane.token


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A control plane without a cluster: a test reports what jobs do."""
    served = LiveServer(tmp_path_factory.mktemp("stage"))
    yield served
    served.stop()
