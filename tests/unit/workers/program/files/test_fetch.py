"""A fetch: whole or not there, continued after a kill, cancelled at once. From a server that speaks the Hub's routes."""

import errno
import multiprocessing
import os
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.hub import Hub, Repository, running_hub
from harness.patience import PATIENCE_S

from shardyard.workers.program import cache_disk
from shardyard.workers.program.files import fetch as module
from shardyard.workers.program.files import interruption
from shardyard.workers.program.files.errors import NO_ROOM, NOT_FETCHED, UNREACHABLE, FilesNotFetched
from shardyard.workers.program.files.fetch import Fetch
from shardyard.workers.program.files.hub_remote import HubRemote
from shardyard.workers.program.files.source import parse
from shardyard.workers.program.shared_folder import EndRequested, remove_tree

FILES = {"a": b"first", "b/empty": b"", "c/large": os.urandom((2 << 20) + 5), "d": b"last"}
COMMIT = "c" * 40


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A dataset of four files, of which one has several blocks."""
    monkeypatch.setattr(module, "BLOCK_BYTES", 1 << 20)
    monkeypatch.setattr(interruption, "BACKOFF_S", (0.0, 0.0))
    with running_hub() as found:
        found.repositories["datasets/org/data"] = Repository({COMMIT: dict(FILES)}, {"main": COMMIT})
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        yield found


def fetch(place: Path, is_to_stop: Any = lambda: False, said: list[str] | None = None) -> None:
    remote = HubRemote(parse("hf://datasets/org/data"))
    lines: list[str] = [] if said is None else said
    Fetch(remote, remote.listing(), place, is_to_stop, lines.append).run()


def there(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_all_files_are_there_and_read_only(hub: Hub, tmp_path: Path) -> None:
    said: list[str] = []
    fetch(tmp_path / "one", said=said)
    assert there(tmp_path / "one") == FILES and [path.name for path in tmp_path.iterdir()] == ["one"]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "one").rglob("*") if path.is_file()}
    folders = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "one", tmp_path / "one/c")}
    assert (modes, folders) == ({0o444}, {0o555})
    assert said == [
        "hf://datasets/org/data: 0 B of 2.1 MB (0%), 4 files, begins",
        "hf://datasets/org/data: 2.1 MB of 2.1 MB (100%), 4 files, ends",
    ]
    remove_tree(tmp_path / "one")
    assert list(tmp_path.iterdir()) == []


def test_after_a_kill_what_is_whole_is_not_fetched_again(hub: Hub, tmp_path: Path) -> None:
    """The process is killed while the server holds the last block of a file back."""
    place = tmp_path / "one"
    hub.gates["d"] = threading.Event()
    child = multiprocessing.get_context("fork").Process(target=fetch, args=(place,))
    child.start()
    try:
        assert hub.held.wait(PATIENCE_S)
        partial = tmp_path / ".one.partial/content"
        while not (partial / "c/large").exists():
            assert child.is_alive()
    finally:
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join(PATIENCE_S)
        hub.gates.pop("d").set()
    assert not place.exists() and there(partial) == {name: FILES[name] for name in FILES if name != "d"}
    half = tmp_path / ".one.partial/incoming"
    half.write_bytes(b"ha")
    half.chmod(0o444)  # killed just before it got its name: it can only be replaced
    (tmp_path / "same").hardlink_to(half)
    hub.asked.clear()
    fetch(place)
    assert there(place) == FILES and (tmp_path / "same").read_bytes() == b"ha"
    assert [name for name in hub.asked if name.startswith("resolve")] == ["resolve d"]


def test_a_rank_that_is_to_end_does_not_wait_for_an_answer(hub: Hub, tmp_path: Path) -> None:
    hub.gates["c/large"] = threading.Event()
    try:
        with pytest.raises(EndRequested):
            fetch(tmp_path / "one", is_to_stop=hub.held.is_set)
    finally:
        hub.gates["c/large"].set()
    assert not (tmp_path / "one").exists()


def test_a_server_that_fails_for_a_while_is_asked_again(hub: Hub, tmp_path: Path) -> None:
    remote = HubRemote(parse("hf://datasets/org/data"))
    listing = remote.listing()
    hub.failing = 2
    Fetch(remote, listing, tmp_path / "one", lambda: False, str).run()
    assert there(tmp_path / "one") == FILES
    hub.failing = 1000
    with pytest.raises(FilesNotFetched, match="hf://datasets/org/data: a: the Hub answers with status 503") as failed:
        Fetch(remote, listing, tmp_path / "two", lambda: False, str).run()
    assert failed.value.cause == UNREACHABLE and not (tmp_path / "two").exists()


def test_a_file_that_stays_damaged_is_named(hub: Hub, tmp_path: Path) -> None:
    remote = HubRemote(parse("hf://datasets/org/data"))
    listing = remote.listing()
    hub.repositories["datasets/org/data"].commits[COMMIT]["d"] = b"lost"
    with pytest.raises(FilesNotFetched, match=r"d does not have the checksum .*git:.*; store it again") as failed:
        Fetch(remote, listing, tmp_path / "one", lambda: False, str).run()
    assert failed.value.cause == NOT_FETCHED and hub.asked["resolve d"] == 3


def test_a_full_disk_is_no_fault_of_the_source(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`/dev/full` is a disk without room."""
    (tmp_path / ".one.partial/content").mkdir(parents=True)
    (tmp_path / ".one.partial/incoming").symlink_to("/dev/full")
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)  # else the link would be replaced
    with pytest.raises(FilesNotFetched, match="make room on this node") as failed:
        fetch(tmp_path / "one")
    assert failed.value.cause == NO_ROOM


def test_a_disk_that_fails_is_no_fault_of_the_source(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(module, "sync_folder", fails)
    with pytest.raises(FilesNotFetched, match="repair the cache of this node") as failed:
        fetch(tmp_path / "one")
    assert failed.value.cause == cache_disk.FAILED
