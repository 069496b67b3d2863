"""A restore beats for as long as it reads and tries again, so that slow storage is no hang."""

import errno
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness.bad_disk import BadDisk
from harness.ranks import group, spawn
from harness.stored_checkpoints import published

from shardyard.strategies.param_shard import ParamShard
from shardyard.workers.checkpoint import restore
from shardyard.workers.checkpoint.errors import CheckpointAbsent, CheckpointError, CheckpointRemoved
from shardyard.workers.checkpoint.inspect import inspect_checkpoint
from shardyard.workers.checkpoint.manifest import MANIFEST, File, Manifest, write
from shardyard.workers.checkpoint.retention import complete, folder, pin, prune, step_of
from shardyard.workers.checkpoint.staging_buffer import StagingBuffer
from shardyard.workers.storage import local_folder
from shardyard.workers.storage.errors import StorageUnreachable, StorageUnreadable
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.local_folder import LocalFolder


def nothing(*_: object) -> None:
    """There is nothing to say, and nothing to refuse."""


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """A world of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def piece(values: torch.Tensor) -> ParamShard:
    return ParamShard("weight", tuple(values.shape), (0,) * values.ndim, values, frozenset())


def saved(root: Folder, step: int, values: torch.Tensor) -> Manifest:
    """A checkpoint of one file."""
    image = StagingBuffer([piece(values)], torch.device("cpu"))
    image.take()
    content, path = image.content(), folder(root, step)
    path.write("rank-0", content)
    file = File(len(content), hashlib.sha256(content).hexdigest(), tuple(image.slices))
    manifest = Manifest(step, {"step": step}, image.tensors, {"rank-0": file})
    write(path, manifest)
    return manifest


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> BadDisk:
    monkeypatch.setattr(restore, "BACKOFF_S", (0.0, 0.0))
    return BadDisk(monkeypatch)


def test_each_block_and_each_part_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_folder, "_BLOCK_BYTES", 1 << 10)
    root, values, beats = LocalFolder(str(tmp_path)), torch.randn(64, 64), []
    manifest = saved(root, 3, values)
    found = piece(torch.zeros_like(values))
    restored = restore.restore(root, None, [found], nothing, nothing, lambda: beats.append(1))
    assert torch.equal(found.tensor, values)
    assert restored == restore.Restored(folder(root, 3), manifest, own=True)
    assert len(beats) >= manifest.bytes / 1024 + 2


def test_the_training_before_is_of_the_newest_manifest_that_can_be_read(tmp_path: Path) -> None:
    root, other = LocalFolder(str(tmp_path / "own")), LocalFolder(str(tmp_path / "other"))
    assert restore.training_before(root, None) == restore.training_before(root, other) == {}
    saved(other, 7, torch.zeros(2))
    assert restore.training_before(root, other) == restore.training_before(root, folder(other, 7)) == {"step": 7}
    for step in (1, 2, 3):
        saved(root, step, torch.zeros(2))
    (tmp_path / "own" / "step-00000003" / "manifest.json").write_text("{}")
    assert restore.training_before(root, other) == {"step": 2}


def test_each_try_at_storage_that_does_not_answer_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[int] = []

    def away(*_: Any) -> Any:
        raise StorageUnreachable("no answer")

    monkeypatch.setattr(restore, "BACKOFF_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(LocalFolder, "folders", away)
    with pytest.raises(StorageUnreachable):
        restore.restore(
            LocalFolder(str(tmp_path)), None, [piece(torch.zeros(2))], nothing, nothing, lambda: beats.append(1)
        )
    assert len(beats) == 3


def test_a_listing_that_fails_for_a_while_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, values = LocalFolder(str(tmp_path)), torch.arange(4.0)
    manifest = saved(root, 3, values)
    usual, stale = os.scandir, [OSError(errno.ESTALE, os.strerror(errno.ESTALE)) for _ in range(2)]

    def scandir(path: Path) -> Any:
        if stale:
            raise stale.pop()
        return usual(path)

    monkeypatch.setattr(restore, "BACKOFF_S", (0.0, 0.0))
    monkeypatch.setattr(os, "scandir", scandir)
    assert restore.restore(root, None, [piece(torch.zeros(4))], nothing, nothing) == restore.Restored(
        folder(root, 3), manifest, own=True
    )


def test_a_read_of_tensors_that_fails_for_a_while_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, values, warned = LocalFolder(str(tmp_path)), torch.arange(4.0), []
    manifest = saved(root, 3, values)
    usual, stale = LocalFolder.read_into, 2

    def read_into(self: LocalFolder, *where: Any) -> None:
        nonlocal stale
        if stale:
            stale -= 1
            raise StorageUnreachable(errno.ESTALE, os.strerror(errno.ESTALE))
        usual(self, *where)

    monkeypatch.setattr(restore, "BACKOFF_S", (0.0, 0.0))
    monkeypatch.setattr(LocalFolder, "read_into", read_into)
    found = piece(torch.zeros(4))
    restored = restore.restore(root, None, [found], lambda cause, *_: warned.append(cause), nothing)
    assert restored == restore.Restored(folder(root, 3), manifest, own=True) and torch.equal(found.tensor, values)
    assert warned == ["storage_unreachable"]
    stale = 3
    with pytest.raises(StorageUnreachable):
        restore.restore(root, None, [found], nothing, nothing)


def test_the_next_save_removes_what_was_refused_and_not_what_was_restored(tmp_path: Path) -> None:
    root, values = LocalFolder(str(tmp_path)), torch.arange(4.0)
    for step in (300, 350):
        saved(root, step, values)
    folder(root, 350).write("rank-0", memoryview(b"damaged"))
    found = restore.restore(root, None, [piece(torch.zeros(4))], nothing, nothing)
    assert found is not None and found.path == folder(root, 300)
    saved(root, 400, values)
    assert prune(root, 2, published(folder(root, 400))) == (300, 400)


def test_what_was_read_wrongly_once_is_kept_once_it_is_valid(tmp_path: Path) -> None:
    root, values = LocalFolder(str(tmp_path)), torch.arange(4.0)
    for step in (50, 100):
        saved(root, step, values)
    content = (tmp_path / folder(root, 100).name / "rank-0").read_bytes()
    for seen, step in ((b"damaged", 50), (content, 100)):
        folder(root, 100).write("rank-0", memoryview(seen))
        found = restore.restore(root, None, [piece(torch.zeros(4))], nothing, nothing)
        assert found is not None and found.path == folder(root, step)
    saved(root, 150, values)
    assert prune(root, 2, published(folder(root, 150))) == (100, 150)


@pytest.mark.parametrize("name", ["rank-0", MANIFEST])
def test_a_checkpoint_that_cannot_be_read_for_a_while_is_restored(tmp_path: Path, disk: BadDisk, name: str) -> None:
    root, warned = LocalFolder(str(tmp_path)), []
    for step in (50, 100):
        saved(root, step, torch.arange(4.0))
    disk.files, disk.tries = {f"{folder(root, 100)}/{name}"}, 2
    found = restore.restore(
        root, None, [piece(torch.zeros(4))], lambda cause, said, *_: warned.append((cause, said)), nothing
    )
    assert found is not None and found.path == folder(root, 100)
    ((cause, said),) = warned
    assert cause == "storage_unreachable" and name in said and "trying again" in said


@pytest.mark.parametrize("name", ["rank-0", MANIFEST])
def test_the_one_before_a_checkpoint_that_stays_unreadable_is_used(tmp_path: Path, disk: BadDisk, name: str) -> None:
    """A bad sector. Nothing says that the checkpoint is corrupt: the disk may be back, and later saves keep it."""
    root, warned = LocalFolder(str(tmp_path)), []
    for step in (50, 100):
        saved(root, step, torch.arange(4.0))
    disk.files = {f"{folder(root, 100)}/{name}"}
    assert restore.training_before(root, None) == {"step": 50 if name == MANIFEST else 100}
    found = restore.restore(root, None, [piece(torch.zeros(4))], lambda *said: warned.append(said), nothing)
    assert found is not None and found.path == folder(root, 50)
    cause, said, step = warned[-1]
    assert (cause, step) == ("storage_unreachable", 100)
    assert "cannot be read" in said and said.endswith(f"continues from {folder(root, 50)}.")
    looked_at = inspect_checkpoint(str(folder(root, 100)), verify=True)
    assert (looked_at.verdict, looked_at.code) == ("unknown", "storage_unreachable")
    saved(root, 60, torch.arange(4.0))
    assert prune(root, 2, published(folder(root, 60))) == (60, 100)


@pytest.mark.parametrize("corrupt", [False, True])
def test_training_does_not_start_again_because_no_checkpoint_can_be_read(
    tmp_path: Path, disk: BadDisk, corrupt: bool
) -> None:
    root, other = LocalFolder(str(tmp_path / "own")), LocalFolder(str(tmp_path / "other"))
    for where, step in ((root, 50), (root, 100), (other, 7)):
        saved(where, step, torch.arange(4.0))
    disk.files = {f"{folder(root, step)}/{name}" for step in (50, 100) for name in ("rank-0", MANIFEST)}
    with pytest.raises(StorageUnreadable):
        restore.training_before(root, other)
    if corrupt:
        disk.files = {f"{folder(root, 50)}/rank-0"}
        folder(root, 100).write("rank-0", memoryview(b"damaged"))
    with pytest.raises(StorageUnreachable, match=r"cannot be read.*no other checkpoint is valid") as raised:
        restore.restore(root, other, [piece(torch.zeros(4))], nothing, nothing)
    assert raised.value.passing and complete(root) == [folder(root, 100), folder(root, 50)]
    assert [path.has("corrupt") for path in complete(root)] == [corrupt, False]


def test_a_start_waits_two_minutes_in_all_however_many_checkpoints_cannot_be_read(
    tmp_path: Path, disk: BadDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses, warned = list[float](), list[str]()
    monkeypatch.setattr(restore, "BACKOFF_S", (1.0, 2.0))
    monkeypatch.setattr(time, "sleep", pauses.append)
    root = LocalFolder(str(tmp_path))
    for step in (50, 100, 150):
        saved(root, step, torch.arange(4.0))
    disk.files = {f"{folder(root, step)}/{MANIFEST}" for step in (50, 100, 150)}
    with pytest.raises(StorageUnreachable):
        restore.restore(root, None, [piece(torch.zeros(4))], lambda cause, *_: warned.append(cause), nothing)
    assert pauses == [1.0, 2.0] and warned == ["storage_unreachable"]


def test_all_starts_of_a_job_begin_with_the_checkpoint_that_the_first_one_chose(tmp_path: Path) -> None:
    """The spec names the folder of a job that goes on training."""
    root, other = LocalFolder(str(tmp_path / "own")), LocalFolder(str(tmp_path / "other"))

    def began(resume: Folder = other) -> Folder:
        found = restore.restore(root, resume, [piece(torch.zeros(4))], nothing, nothing)
        assert found is not None and not found.own
        assert restore.training_before(root, resume) == found.manifest.training
        return found.path

    saved(other, 100, torch.arange(4.0))
    assert began() == folder(other, 100)
    saved(other, 200, torch.arange(4.0))
    assert began() == began() == folder(other, 100)
    assert began(folder(other, 200)) == folder(other, 200) and began() == folder(other, 100)
    folder(other, 100).remove(MANIFEST)
    with pytest.raises(CheckpointError, match="step-00000100 holds no complete checkpoint"):
        began()
    another = LocalFolder(str(tmp_path / "another"))
    saved(another, 300, torch.arange(4.0))
    assert began(another) == folder(another, 300)


def test_a_choice_that_is_not_valid_is_made_again(tmp_path: Path) -> None:
    root, other = LocalFolder(str(tmp_path / "own")), LocalFolder(str(tmp_path / "other"))
    for step in (100, 200):
        saved(other, step, torch.arange(4.0))
    folder(other, 200).write("rank-0", memoryview(b"damaged"))
    with pytest.raises(CheckpointError, match="step-00000200 is corrupt"):
        restore.restore(root, other, [piece(torch.zeros(4))], nothing, nothing)
    folder(other, 200).remove_all()
    found = restore.restore(root, other, [piece(torch.zeros(4))], nothing, nothing)
    assert found is not None and found.path == folder(other, 100)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("before", ["the manifest is read", "a file is read", "its tensors are read"])
def test_a_checkpoint_that_a_save_removes_meanwhile_is_not_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, times: int
) -> None:
    """The save of a gang that was cut off, with keep: 1. The newer one is restored."""
    root, warned, steps = LocalFolder(str(tmp_path)), list[Any](), [100]
    where = {"the manifest is read": "read", "a file is read": "sha256", "its tensors are read": "read_into"}[before]
    usual = getattr(LocalFolder, where)

    def removed_before(self: LocalFolder, *what: Any) -> Any:
        if self == folder(root, steps[-1]) and len(steps) <= times:
            steps.append(steps[-1] + 100)
            saved(root, steps[-1], torch.full((4,), float(steps[-1])))
            prune(root, 1, published(folder(root, steps[-1])))
        return usual(self, *what)

    monkeypatch.setattr(restore, "BACKOFF_S", (0.0, 0.0))
    saved(root, 100, torch.zeros(4))
    monkeypatch.setattr(LocalFolder, where, removed_before)
    found = piece(torch.zeros(4))
    restored = restore.restore(root, None, [found], lambda *said: warned.append(said), nothing)
    assert restored is not None and restored.path == folder(root, steps[-1]) and len(steps) == times + 1
    assert torch.equal(found.tensor, torch.full((4,), float(steps[-1])))
    assert not warned and not (tmp_path / "step-00000100").exists()


def test_a_restore_does_not_start_afresh_where_each_checkpoint_is_removed_while_it_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, usual = LocalFolder(str(tmp_path)), LocalFolder.sha256

    def removed_before(self: LocalFolder, *what: Any) -> Any:
        saved(root, step_of(self) + 1, torch.zeros(4))
        prune(root, 1, published(folder(root, step_of(self) + 1)))
        return usual(self, *what)

    monkeypatch.setattr(restore, "BACKOFF_S", (0.0, 0.0))
    saved(root, 100, torch.zeros(4))
    monkeypatch.setattr(LocalFolder, "sha256", removed_before)
    with pytest.raises(CheckpointAbsent):
        restore.restore(root, None, [piece(torch.zeros(4))], nothing, nothing)
    assert complete(root) == [folder(root, 103)]


def test_a_restore_does_not_start_afresh_before_this_node_sees_the_newer_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Part of the older one is in memory then."""
    root, usual = LocalFolder(str(tmp_path)), LocalFolder.read_into
    saved(root, 100, torch.zeros(4))

    def removed_before(self: LocalFolder, *what: Any) -> Any:
        folder(root, 100).remove_all()
        return usual(self, *what)

    monkeypatch.setattr(restore, "BACKOFF_S", (0.0, 0.0))
    monkeypatch.setattr(LocalFolder, "read_into", removed_before)
    with pytest.raises(CheckpointAbsent):
        restore.restore(root, None, [piece(torch.zeros(4))], nothing, nothing)


@pytest.mark.parametrize("newer", [True, False])
@pytest.mark.parametrize("before", ["read", "sha256", "read_into"])
def test_an_older_checkpoint_that_is_pinned_is_restored_only_if_no_newer_one_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, newer: bool
) -> None:
    """A gang that was cut off has saved, with keep: 1. This node's listing of the folder is older, and lacks the newer one at first."""
    root, usual, listed, seen = (
        LocalFolder(str(tmp_path)),
        getattr(LocalFolder, before),
        LocalFolder.folders,
        list[int](),
    )

    def removed_before(self: LocalFolder, *what: Any) -> Any:
        if self == folder(root, 200) and not seen:
            seen.append(0)
            self.remove_all()
        return usual(self, *what)

    def late(self: LocalFolder) -> list[str]:
        if seen:
            seen.append(0)
            if newer and len(seen) == 3:
                saved(root, 300, torch.full((4,), 3.0))
        return listed(self)

    monkeypatch.setattr(restore, "BACKOFF_S", (0.0, 0.0))
    for step in (100, 200):
        saved(root, step, torch.full((4,), step / 100))
    pin(folder(root, 100))
    monkeypatch.setattr(LocalFolder, before, removed_before)
    monkeypatch.setattr(LocalFolder, "folders", late)
    values = piece(torch.zeros(4))
    found = restore.restore(root, None, [values], nothing, nothing)
    assert found is not None and found.path == folder(root, 300 if newer else 100) and len(seen) == 3
    assert torch.equal(values.tensor, torch.full((4,), 3.0 if newer else 1.0))


def test_a_corrupt_checkpoint_is_reported_though_the_one_before_it_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, warned = LocalFolder(str(tmp_path)), list[Any]()
    for step in (100, 110):
        saved(root, step, torch.zeros(4))
    folder(root, 110).write("rank-0", memoryview(b"damaged"))

    def refuse(*_: Any) -> None:
        raise CheckpointError("of another model")

    with pytest.raises(CheckpointError, match="of another model"):
        restore.restore(root, None, [piece(torch.zeros(4))], lambda *said: warned.append(said), refuse)
    ((cause, message, step),) = warned
    assert (cause, step) == ("checkpoint_corrupt", 110) and str(folder(root, 100)) in message


def test_an_incident_names_the_checkpoint_that_was_read_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, warned, usual = LocalFolder(str(tmp_path)), list[Any](), LocalFolder.read_into
    for step in (100, 110):
        saved(root, step, torch.zeros(4))
    folder(root, 110).write("rank-0", memoryview(b"damaged"))

    def removed_before(self: LocalFolder, *what: Any) -> Any:
        if self == folder(root, 100):
            saved(root, 120, torch.ones(4))
            self.remove_all()
        return usual(self, *what)

    monkeypatch.setattr(restore, "BACKOFF_S", (0.0, 0.0))
    monkeypatch.setattr(LocalFolder, "read_into", removed_before)
    assert restore.restore(root, None, [piece(torch.zeros(4))], lambda *said: warned.append(said), nothing)
    ((cause, message, step),) = warned
    assert (cause, step) == ("checkpoint_corrupt", 110) and message.endswith(f"continues from {folder(root, 120)}.")


def test_a_checkpoint_of_another_job_that_is_removed_while_it_is_verified_is_not_called_corrupt(tmp_path: Path) -> None:
    root, other = LocalFolder(str(tmp_path / "own")), LocalFolder(str(tmp_path / "other"))
    saved(other, 100, torch.zeros(4))
    with pytest.raises(CheckpointRemoved, match="was removed, to make room"):
        restore.restore(
            root, folder(other, 100), [piece(torch.zeros(4))], nothing, nothing, folder(other, 100).remove_all
        )


def _restored(rank: int, world: int, port: int, where: str, read: str) -> tuple[str, list[float], list[Any]]:
    """Where a save removes the checkpoint before rank 1 reads its share, by the method `read` of its folder."""
    group(rank, world, port)
    root, usual, warned = LocalFolder(where), getattr(LocalFolder, read), list[Any]()
    older, values = folder(root, 100), piece(torch.zeros(4))

    def removed_before(self: LocalFolder, *what: Any) -> Any:
        if rank == 1 and self == older:
            saved(root, 200, torch.ones(4))
            older.remove_all()
        return usual(self, *what)

    setattr(LocalFolder, read, removed_before)
    found = restore.restore(root, None, [values], lambda *said: warned.append(said), nothing)
    return str(found and found.path.name), values.tensor.tolist(), warned


@pytest.mark.parametrize("read", ["sha256", "read_into"])
def test_all_ranks_restore_the_newer_one_where_a_single_rank_finds_the_older_one_removed(
    tmp_path: Path, read: str
) -> None:
    root = LocalFolder(str(tmp_path))
    first, path = saved(root, 100, torch.zeros(4)), folder(root, 100)
    path.write("rank-1", memoryview(b"weights"))
    files = {**first.files, "rank-1": File(7, hashlib.sha256(b"weights").hexdigest(), ())}
    write(path, Manifest(100, first.training, first.tensors, files))
    assert spawn(_restored, 2, str(tmp_path), read) == [("step-00000200", [1.0] * 4, [])] * 2
    assert not path.files()
