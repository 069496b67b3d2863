"""A save holds what the state was when it began, whatever becomes of the state meanwhile; a disk's fault costs one checkpoint."""

import errno
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness.bucket import Buckets
from harness.full_disk import FullDisk
from harness.patience import PATIENCE_S
from harness.ranks import group, spawn

from shardyard.strategies.layout import Layout
from shardyard.strategies.mesh import REPLICA, Mesh, make_mesh
from shardyard.strategies.param_shard import ParamShard
from shardyard.workers.checkpoint import async_saver
from shardyard.workers.checkpoint.async_saver import THREAD, Saver
from shardyard.workers.checkpoint.manifest import MANIFEST, read
from shardyard.workers.checkpoint.reader import load_into
from shardyard.workers.checkpoint.retention import complete, folder
from shardyard.workers.checkpoint.verify import verify
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.local_folder import LocalFolder
from shardyard.workers.storage.open_folder import folder_at
from shardyard.workers.storage.s3_folder import BucketFolder
from shardyard.workers.trainer.flight_recorder import collectives

CPU = torch.device("cpu")


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    """A world of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield make_mesh(Layout(), CPU)
    dist.destroy_process_group()


@pytest.fixture
def state() -> list[ParamShard]:
    shapes = {"a": (5, 3), "optimizer.exp_avg.a": (5, 3), "b": (7,)}
    return [
        ParamShard(name, shape, (0,) * len(shape), torch.randn(shape), frozenset()) for name, shape in shapes.items()
    ]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Storage that takes nothing before the event is set."""
    ready = threading.Event()
    for kind in (LocalFolder, BucketFolder):
        monkeypatch.setattr(kind, "write", _waiting(kind.write, ready))
    return ready


def _waiting(write: Any, ready: threading.Event) -> Any:
    def waiting(folder: Folder, name: str, content: memoryview) -> None:
        assert threading.current_thread().name != THREAD or ready.wait(PATIENCE_S)
        write(folder, name, content)

    return waiting


def values(shards: list[ParamShard]) -> list[torch.Tensor]:
    return [shard.tensor.clone() for shard in shards]


def stored(path: Folder, like: list[ParamShard]) -> list[torch.Tensor]:
    shards = [shard.like(shard.name, torch.empty_like(shard.tensor)) for shard in like]
    manifest = read(path)
    verify(path, manifest)
    load_into(path, manifest, shards)
    return [shard.tensor for shard in shards]


def equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def test_training_goes_on_while_a_slow_disk_gets_the_state_of_the_save(
    mesh: Mesh, state: list[ParamShard], slow: threading.Event, root: Folder
) -> None:
    saver = Saver(root, 2, state, mesh)
    before = values(state)
    saver.save(4, {"step": 4})
    saver.settle()
    for shard in state:
        shard.tensor.normal_()
    assert saver.ended() == [] and complete(root) == []
    slow.set()
    saver.wait()
    (saved,) = saver.ended()
    manifest = read(folder_at(saved.path))
    assert (saved.step, saved.error, saved.bytes, saved.digest) == (4, None, manifest.bytes, manifest.sha256)
    assert saved.held_s <= saved.seconds
    assert equal(stored(folder_at(saved.path), state), before)
    assert {record.group for record in collectives()} <= {
        "world"
    }  # what is said of a hang does not speak of the writers


def test_a_save_waits_for_the_one_before(
    mesh: Mesh, state: list[ParamShard], slow: threading.Event, root: Folder
) -> None:
    saver = Saver(root, 2, state, mesh)
    first = values(state)
    saver.save(1, {})
    threading.Timer(0.2, slow.set).start()
    state[0].tensor.zero_()
    second = values(state)
    saver.save(2, {})
    saver.wait()
    assert [saved.step for saved in saver.ended()] == [1, 2]
    assert equal(stored(folder(root, 1), state), first)
    assert equal(stored(folder(root, 2), state), second)


def test_a_rank_that_waits_for_its_own_write_gives_signs_of_life(
    mesh: Mesh, state: list[ParamShard], slow: threading.Event, root: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no hang, however long the storage takes: but not longer than the other ranks wait for it."""
    monkeypatch.setattr(async_saver, "_BEAT_S", 0.01)
    saver, beats = Saver(root, 2, state, mesh), []

    def beat() -> None:
        beats.append(1)
        if len(beats) == 3:
            slow.set()

    saver.save(1, {})
    saver.wait(beat)
    assert len(beats) >= 3 and [saved.error for saved in saver.ended()] == [None]
    slow.clear()
    monkeypatch.setattr(async_saver, "WRITE", timedelta())
    saver.save(2, {})
    threading.Timer(0.1, slow.set).start()
    saver.wait(lambda: pytest.fail("it has waited for longer than the others"))


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_worker_that_is_lost_costs_the_checkpoint_where_the_others_train_on(
    mesh: Mesh, state: list[ParamShard], root: Folder, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    def lost(*_: object) -> None:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr("shardyard.workers.checkpoint.writer.Writer.write", lost)
    monkeypatch.setattr(async_saver, "own_clocks", lambda _: goes_on)
    saver = Saver(root, 2, state, mesh)
    saver.save(1, {})
    saver.wait()
    if goes_on:
        (saved,) = saver.ended()
        assert saved.step == 1 and saved.error == "a rank was lost: Connection closed by peer"
    else:
        with pytest.raises(RuntimeError, match="closed by peer"):
            saver.ended()


def test_a_dead_path_costs_the_checkpoint_and_the_next_one_is_saved(
    mesh: Mesh, state: list[ParamShard], tmp_path: Path
) -> None:
    root = tmp_path / "mount"
    root.write_bytes(b"")  # a folder is expected here
    saver = Saver(folder_at(str(root)), 2, state, mesh)
    saver.save(1, {})
    saver.wait()
    (saved,) = saver.ended()
    assert saved.error is not None and "Not a directory" in saved.error and str(root) in saved.error
    root.unlink()
    saver.save(2, {})
    saver.wait()
    assert [saved.error for saved in saver.ended()] == [None]
    assert equal(stored(folder(folder_at(str(root)), 2), state), values(state))


def test_saving_a_step_again_replaces_it_whole(mesh: Mesh, state: list[ParamShard], root: Folder) -> None:
    for _ in range(2):  # each run has a mark of its own
        saver = Saver(root, 2, state, mesh)
        saver.save(3, {})
        saver.wait()
        state[0].tensor.normal_()
        assert [saved.error for saved in saver.ended()] == [None]
    path = folder(root, 3)
    assert sorted(path.files()) == sorted([MANIFEST, *read(path).files])
    assert len(read(path).files) == 1


def test_a_save_that_was_cut_off_is_overwritten(mesh: Mesh, state: list[ParamShard], root: Folder) -> None:
    path = folder(root, 3)
    path.write("rank-00000-0badcafe.safetensors", memoryview(b"half"))
    path.write(f"{MANIFEST}.partial", memoryview(b"{"))
    assert complete(root) == []
    saver = Saver(root, 2, state, mesh)
    saver.save(3, {})
    saver.wait()
    assert [saved.error for saved in saver.ended()] == [None]
    assert equal(stored(path, state), values(state))
    assert len(path.files()) == 2


def test_what_no_disk_is_to_blame_for_is_raised(mesh: Mesh, state: list[ParamShard], root: Folder) -> None:
    saver = Saver(root, 2, state, mesh)
    saver.save(3, {"step": object()})
    saver.wait()
    with pytest.raises(TypeError, match="not JSON serializable"):
        saver.ended()


def test_a_dead_bucket_costs_the_checkpoint_and_the_next_one_is_saved(
    mesh: Mesh, state: list[ParamShard], slow: threading.Event, prefix: str, buckets: Buckets
) -> None:
    root = folder_at(prefix)
    saver = Saver(root, 2, state, mesh)
    saver.save(1, {})
    buckets.kill()  # in the middle of the save
    try:
        slow.set()
        saver.wait()
    finally:
        buckets.start()
    (failed,) = saver.ended()
    assert failed.error is not None and "s3://checkpoints" in failed.error
    saver.save(2, {}, backoff_s=(1.0, 2.0))
    saver.wait()
    assert [saved.error for saved in saver.ended()] == [None]
    assert complete(root) == [folder(root, 2)]
    assert equal(stored(folder(root, 2), state), values(state))


def test_a_manifest_that_arrived_unknown_goes_with_its_files(
    mesh: Mesh, state: list[ParamShard], root: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = type(root).publish

    def unanswered(folder: Any, name: str, content: bytes, **how: bool) -> None:
        publish(folder, name, content, **how)
        if name == MANIFEST:
            raise OSError("no answer")

    saver = Saver(root, 2, state, mesh)
    with monkeypatch.context() as patch:
        patch.setattr(type(root), "publish", unanswered)
        saver.save(1, {})
        saver.wait()
    (failed,) = saver.ended()
    assert failed.error == f"{MANIFEST}: no answer" and complete(root) == []
    assert folder(root, 1).files() == {}


@pytest.mark.parametrize(("where", "backoff_s"), [("write", (0.0,)), ("publish", ())], ids=["write", "publish"])
def test_a_save_whose_files_a_rank_0_that_was_cut_off_removes_does_not_count(
    mesh: Mesh, state: list[ParamShard], root: Folder, monkeypatch: pytest.MonkeyPatch, where: str, backoff_s: Any
) -> None:
    """It saves the same step, after the files of its successor are written or after their manifest is published."""
    old, new = Saver(root, 2, state, mesh), Saver(root, 2, state, mesh)
    usual, is_in_time = getattr(type(root), where), [True]

    def followed(folder: Folder, name: str, *content: Any, **how: bool) -> None:
        usual(folder, name, *content, **how)
        if is_in_time and (where == "write" or name == MANIFEST):
            is_in_time.clear()
            old.save(1, {"by": "old"})
            old.wait()

    monkeypatch.setattr(type(root), where, followed)
    new.save(1, {"by": "new"}, backoff_s)
    new.wait()
    ((of_old,), (of_new,)) = old.ended(), new.ended()
    assert of_old.error is None
    if backoff_s:
        assert of_new.error is None
    else:
        assert of_new.error == f"{folder(root, 1)}: another save has removed files of step 1 meanwhile"
    assert equal(stored(folder(root, 1), state), values(state))
    assert read(folder(root, 1)).training == {"by": "new" if backoff_s else "old"}


@pytest.mark.parametrize("same_step", [False, True])
@pytest.mark.parametrize("for_manifest", [False, True])
def test_a_full_disk_has_room_again_for_the_save_after_one_that_was_killed(
    mesh: Mesh,
    state: list[ParamShard],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    same_step: bool,
    for_manifest: bool,
) -> None:
    """What the killed one has left is removed after the next manifest, which without that room is never published."""
    root, saver = folder_at(str(tmp_path)), Saver(LocalFolder(str(tmp_path)), 2, state, mesh)
    disk = FullDisk(monkeypatch, tmp_path, 1 << 20)
    for step in (100, 200):
        saver.save(step, {})
        saver.wait()
    size = saver.ended()[0].bytes
    folder(root, 300).write("rank-00000-0badcafe.safetensors", memoryview(bytes(2 * size)))
    disk.size = disk.used() + size // 2 + (size if for_manifest else 0)
    step = 300 if same_step else 400
    saver.save(step, {})
    saver.wait()
    assert [saved.error for saved in saver.ended()] == [None]
    assert complete(root) == [folder(root, step), folder(root, 200)]
    assert sorted(root.folders()) == ["step-00000200", f"step-{step:08d}"]
    assert len(folder(root, step).files()) == 2 and equal(stored(folder(root, step), state), values(state))


def _on_a_full_disk(rank: int, world: int, port: int, where: str) -> tuple[str | None, int]:
    """The disk of rank 1 is full while a killed save has files there."""
    group(rank, world, port)
    root, left, usual, written = LocalFolder(where), folder(LocalFolder(where), 300), LocalFolder.write, []
    if rank == 0:
        left.write("rank-00000-0badcafe.safetensors", memoryview(b"half"))
    dist.barrier()

    def write(self: LocalFolder, name: str, content: Any) -> None:
        written.append(name)
        if rank == 1 and left.files():
            raise OSError(errno.ENOSPC, "No space left on device")
        usual(self, name, content)

    LocalFolder.write = write  # type: ignore[method-assign]
    shard = ParamShard("a", (4,), (2 * rank,), torch.full((2,), float(rank)), frozenset({REPLICA}))
    saver = Saver(root, 2, [shard], make_mesh(Layout(data=2), CPU))
    saver.save(400, {})
    saver.wait()
    (saved,) = saver.ended()
    return saved.error, len(written)


def test_all_ranks_try_once_more_where_the_disk_of_one_was_full(tmp_path: Path) -> None:
    assert spawn(_on_a_full_disk, 2, str(tmp_path)) == [(None, 2)] * 2
    assert len(read(folder(folder_at(str(tmp_path)), 400)).files) == 2
