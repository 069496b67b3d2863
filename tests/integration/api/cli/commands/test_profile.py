"""`shardyard profile` against a served API and a gang that reports what was asked for."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.api.cli.commands import profile as command
from shardyard.api.cli.main import run
from shardyard.api.client import Client

from ...conftest import Gang, Plane, running_job, until
from ..conftest import Restart

pytestmark = pytest.mark.usefixtures("asks_the_plane")

CONTENT = b"Thread 1\n    inner [b.py:2]\n"


@pytest.fixture
def running(plane: Plane, client: Client) -> tuple[str, Gang]:
    job, gang = running_job(plane, client)
    folder = Path(plane.settings.artifacts(job))
    folder.mkdir(parents=True)
    (folder / hashlib.sha256(CONTENT).hexdigest()).write_bytes(CONTENT)
    return job, gang


@contextmanager
def answered(client: Client, running: tuple[str, Gang], **how: Any) -> Iterator[None]:
    """While the block runs, the next profile is reported like this."""
    job, gang = running

    def report() -> None:
        with Client(client.url) as mine:
            until(lambda: any(one.state == "open" for one in mine.profiles(job).items))
            gang.emit(("profile", {"id": mine.profiles(job).items[0].id, "rank": 1, "profile": "stacks", **how}))

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    yield
    thread.join(PATIENCE_S)


def file(name: str) -> dict[str, Any]:
    return {"name": name, "bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}


def test_stacks_are_printed_and_samples_are_a_file_here(
    running: tuple[str, Gang],
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with answered(client, running, done=True, message="so", file=file("profiles/one.txt")):
        assert run(["profile", "tiny", "--rank", "1"]) == 0
    assert capsys.readouterr().out.encode() == CONTENT and not list(here.iterdir())
    with answered(client, running, done=True, message="so", file=file("profiles/two.speedscope.json")):
        assert run(["profile", "tiny", "--rank", "1", "--kind", "cpu", "--seconds", "1"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "two.speedscope.json\n" and "speedscope.app" in printed.err
    assert Path("two.speedscope.json").read_bytes() == CONTENT


def test_a_profile_that_fails_says_why_and_is_an_error(
    running: tuple[str, Gang], client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    with answered(client, running, done=False, message="the kernel forbids it", file=None):
        assert run(["profile", "tiny", "--rank", "1"]) == 1
    assert "Rank 1 was not profiled: the kernel forbids it." in capsys.readouterr().err
    assert run(["profile", "tiny", "--rank", "9"]) == 1
    assert "Name one from 0 to 1." in capsys.readouterr().err


def test_a_restart_of_the_control_plane_is_waited_out(
    running: tuple[str, Gang], plane: Plane, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, gang = running

    def report() -> None:
        asked = client.profiles(job).items[0].id
        found = {"rank": 0, "profile": "stacks", "done": True, "message": "so", "file": file("profiles/one.txt")}
        gang.emit(("profile", {"id": asked, **found}))

    restart = Restart(command, plane, report, monkeypatch)
    assert run(["profile", job]) == 0 and restart.is_over
