"""All ranks of a program continue from one checkpoint, also where a save removes checkpoints while they choose."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.checkpoint_services import gang

from shardyard.workers.checkpoint.manifest import MANIFEST
from shardyard.workers.checkpoint.retention import pin
from shardyard.workers.program import storage_tries
from shardyard.workers.storage.errors import StorageUnreadable
from shardyard.workers.storage.local_folder import LocalFolder


def before(monkeypatch: pytest.MonkeyPatch, where: str, step: int, act: Callable[[], None]) -> Any:
    """Calls `act` once, before this method of a folder looks into this step's checkpoint. The lock is held from then on."""
    usual, once = getattr(LocalFolder, where), threading.Lock()

    def looks(self: LocalFolder, *what: Any) -> Any:
        if self.name == f"step-{step:08d}" and once.acquire(blocking=False):
            act()
        return usual(self, *what)

    monkeypatch.setattr(LocalFolder, where, looks)
    return once


@pytest.mark.parametrize("where", ["read", "read_into", "sha256"])
@pytest.mark.parametrize("every", [False, True])
def test_a_checkpoint_that_a_save_removes_meanwhile_is_not_corrupt(
    every: bool, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The save of a gang that was cut off, with keep: 1. All ranks continue from the newer one."""
    rank = None if every else 0
    monkeypatch.setattr(storage_tries, "BACKOFF_S", (0.0, 0.0))
    with gang(tmp_path, world=4, keep=1) as cut_off, gang(tmp_path) as second:
        cut_off.save(1, "one", rank)
        once = before(monkeypatch, where, 1, lambda: cut_off.save(2, "two", rank))
        found = second.resume()
    is_read = (
        every or where != "sha256"
    )  # a part is fetched, and only those of ranks that there are no longer are compared
    step, text = (2, "two") if is_read else (1, "one")
    assert found == ([(step, f"{text} {own}") for own in range(2)] if every else [(step, text)] * 2)
    assert second.kinds() == [] and once.locked() is is_read
    assert not (tmp_path / "storage/job/step-00000001").exists() or not is_read


def test_after_a_corrupt_one_a_checkpoint_that_a_save_removes_is_replaced_by_the_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranks have found the newest one corrupt, so they look for an older one, of which a save makes a newer one."""
    monkeypatch.setattr(storage_tries, "BACKOFF_S", (0.0, 0.0))
    with gang(tmp_path, keep=2) as first, gang(tmp_path, keep=1) as cut_off, gang(tmp_path) as second:
        for step in (1, 2):
            first.save(step, f"step {step}", rank=None)
        for path in (tmp_path / "storage/job/step-00000002").rglob("*"):
            if path.is_file() and path.name != MANIFEST:
                path.write_text("damaged")
        before(monkeypatch, "read", 1, lambda: cut_off.save(3, "step 3", rank=None))
        assert second.resume() == [(3, "step 3 0"), (3, "step 3 1")]


@pytest.mark.parametrize("every", [False, True])
def test_an_older_checkpoint_that_is_pinned_is_not_used_before_the_newer_one_is_seen(
    every: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node's listing of the folder may be some seconds old."""
    rank, listed, stale = None if every else 0, LocalFolder.folders, [False]
    monkeypatch.setattr(storage_tries, "BACKOFF_S", (0.0, 0.0))
    with gang(tmp_path, keep=1) as cut_off, gang(tmp_path) as second:
        cut_off.save(1, "one", rank)
        pin(LocalFolder(str(tmp_path / "storage/job/step-00000001")))
        cut_off.save(2, "two", rank)

        def remove() -> None:
            cut_off.save(3, "three", rank)
            stale[0] = True

        def late(self: LocalFolder) -> list[str]:
            found = [name for name in listed(self) if not (stale[0] and name == "step-00000003")]
            stale[0] = False
            return found

        once = before(monkeypatch, "read_into", 2, remove)
        monkeypatch.setattr(LocalFolder, "folders", late)
        found = second.resume()
    assert found == ([(3, f"three {own}") for own in range(2)] if every else [(3, "three")] * 2)
    assert once.locked() and second.kinds() == []


def test_an_older_checkpoint_is_used_if_the_one_that_replaced_the_removed_one_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_tries, "BACKOFF_S", (0.0, 0.0))
    root = tmp_path / "storage/job"
    with gang(tmp_path, keep=1) as cut_off, gang(tmp_path) as second:
        cut_off.save(1, "one", None)
        pin(LocalFolder(str(root / "step-00000001")))
        cut_off.save(2, "two", None)

        def replace() -> None:
            cut_off.save(3, "three", None)
            for part in (root / "step-00000003").rglob("*"):
                if part.is_file() and part.name != MANIFEST:
                    part.write_bytes(b"damaged")

        once = before(monkeypatch, "read_into", 2, replace)
        assert second.resume() == [(1, f"one {own}") for own in range(2)]
    assert once.locked()


def test_a_resume_fails_on_all_ranks_where_each_checkpoint_is_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not begin afresh, and the next call lists them again."""
    monkeypatch.setattr(storage_tries, "BACKOFF_S", (0.0,))
    usual, saving = LocalFolder.read_into, threading.Lock()
    with gang(tmp_path, keep=1) as cut_off, gang(tmp_path) as second:
        cut_off.save(1, "step 1", rank=None)

        def removed_before(self: LocalFolder, *what: Any) -> Any:
            with saving:
                if self.has(MANIFEST):
                    step = int(self.name[5:]) + 1
                    cut_off.save(step, f"step {step}", rank=None)
            usual(self, *what)

        with monkeypatch.context() as busy:
            busy.setattr(LocalFolder, "read_into", removed_before)
            answers = second.on_all(lambda service, _: service.answer({"resume": {"rank": None}}, []))
        assert all("was removed, to make room" in one["error"] for one in answers), answers
        assert second.resume() == [(3, "step 3 0"), (3, "step 3 1")] and second.kinds() == []


def test_the_next_resume_reads_the_checkpoint_of_another_job_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of the storage that one rank has met, and that has passed, fails no later call."""
    monkeypatch.setattr(storage_tries, "BACKOFF_S", ())
    other, usual, pickers = tmp_path / "storage/other", LocalFolder.read_into, list[int]()
    with gang(tmp_path, checkpoints=str(other)) as first:
        first.save(1, "one", rank=None)

    def unreadable(self: LocalFolder, *what: Any) -> None:
        pickers.append(threading.get_ident())
        if pickers[0] != threading.get_ident():
            raise StorageUnreadable("the disk fails")
        usual(self, *what)

    with gang(tmp_path, resume=str(other)) as second:
        with monkeypatch.context() as failing:
            failing.setattr(LocalFolder, "read_into", unreadable)
            answers = second.on_all(lambda service, _: service.answer({"resume": {"rank": None}}, []))
        assert all("error" in one for one in answers), answers
        assert second.resume() == [(1, "one 0"), (1, "one 1")]
