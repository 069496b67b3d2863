"""One real control plane for all files, in a folder of its own, and Debian's Chromium; both are gone when the tests are."""

import contextlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from harness.chromium import chromium
from harness.plane import Plane, until
from playwright.sync_api import Browser, expect

from shardyard import Client
from shardyard.api import control
from shardyard.api.client import FINAL, ApiError

#: Playwright waits 5 s for what it expects; a page on a machine that does other things too may take longer.
expect.set_options(timeout=240_000)

DIST = Path(control.__file__).parent / "dashboard" / "dist"


@pytest.fixture(scope="package")
def shared() -> Iterator[Plane]:
    """`shardyard up`, with a Ray of its own, ready to take jobs and to strike them; one for all files that a process runs."""
    if not (DIST / "index.html").is_file():
        pytest.fail("the dashboard is not built: run `make dashboard`")
    plane = Plane()
    plane.given |= {"SHARDYARD_PORT": str(_own_port()), "SHARDYARD_FAULT_INJECTION": "true"}
    try:
        plane.up()
        with plane.client() as client:
            until(lambda: _ready(client), 240, "a ready control plane")
        yield plane
    finally:
        plane.end()


@pytest.fixture(scope="module")
def plane(shared: Plane) -> Iterator[Plane]:
    """The control plane; no job outlives the file that submitted it, so that the next one has the devices to itself."""
    yield shared
    with shared.client() as client:
        until(lambda: _ended(client), 240, "an end of all jobs")


def _ended(client: Client) -> bool:
    """Whether no job is left; those that are, are cancelled."""
    left = [job for job in client.jobs(limit=200).items if job.state not in FINAL]
    for job in left:
        with contextlib.suppress(ApiError):  # it may have ended by itself
            client.cancel(job.id)
    return not left


def _ready(client: Client) -> bool:
    """A server may close a connection just when a slow machine asks through it again: that is no answer."""
    with contextlib.suppress(httpx2.TransportError):
        return client.readiness().status == "ready"
    return False


def _own_port() -> int:
    """Where an open page finds its control plane again after a restart.

    Other tests' control planes come and go meanwhile, and look for theirs from 8400 on, Ray's workers between 10002 and 19999;
    outgoing connections take those above 32768.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.bind(("127.0.0.1", port))
            return port


@pytest.fixture(scope="module")
def url(plane: Plane) -> str:
    """Where the dashboard is."""
    found = control.read(plane.data)
    assert found is not None
    return found.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened
