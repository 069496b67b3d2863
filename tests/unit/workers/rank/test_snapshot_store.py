import asyncio
import contextlib
import errno
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.checkpoint import from_snapshot
from shardyard.workers.checkpoint.manifest import File, Manifest
from shardyard.workers.messages.rendezvous import SnapshotHandle
from shardyard.workers.rank import snapshot_store
from shardyard.workers.rank.snapshot_store import SnapshotStore
from shardyard.workers.snapshot import shared_memory
from shardyard.workers.snapshot.replication import Chunk, Stale
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.local_folder import LocalFolder

SIZE = shared_memory.START + 100


def fill(fd: int, step: int) -> None:
    shared_memory.reserve(fd, SIZE)
    shared_memory.seal(fd, shared_memory.Header(step, 0, SIZE))


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SnapshotStore, SnapshotStore]]:
    """Ranks 0 and 1 of node `a`, in generation 2."""
    monkeypatch.setattr(snapshot_store, "node_id", lambda: "a")
    made = SnapshotStore(), SnapshotStore()
    for rank, store in enumerate(made):
        store.reserve(rank, 2, None)
    yield made
    for store in made:
        store.replicas.drop_except([])
        for fd in [*store.own, *(fd for fds in store.guarded.values() for fd in fds)]:
            os.close(fd)


def handle(store: SnapshotStore, node: str = "a") -> SnapshotHandle:
    return SnapshotHandle(node, os.getpid(), tuple(store.own))


def test_memory_outlives_its_actor_where_a_neighbour_holds_it(stores: tuple[SnapshotStore, SnapshotStore]) -> None:
    first, second = stores
    fill(first.own[0], 7)
    held = second.hold(0, handle(first))
    assert held is not None and second.all_steps() == {0: [7]}
    for fd in first.own:
        os.close(fd)
    first.own = []
    first.reserve(0, 3, held)
    assert first.steps() == [7] and first.generation == 3


def test_memory_of_a_process_that_is_gone_is_not_held(stores: tuple[SnapshotStore, SnapshotStore]) -> None:
    _, second = stores
    with Path(os.devnull).open("rb") as other:
        assert second.hold(0, SnapshotHandle("a", os.getpid(), (other.fileno(),))) is None
    assert second.all_steps() == {}


def test_what_is_held_of_a_dead_rank_is_kept_when_its_memory_is_offered_again(
    stores: tuple[SnapshotStore, SnapshotStore],
) -> None:
    """By a supervisor that begins after both have died: no other process has it."""
    first, second = stores
    fill(first.own[0], 7)
    assert second.hold(0, handle(first))
    with Path(os.devnull).open("rb") as other:
        assert second.hold(0, SnapshotHandle("a", os.getpid(), (other.fileno(),))) is None
    assert second.all_steps() == {0: [7]}


def test_a_new_generation_keeps_what_is_in_memory(stores: tuple[SnapshotStore, SnapshotStore]) -> None:
    first, second = stores
    fill(first.own[1], 5)
    first.reserve(0, 3, handle(second))
    assert first.steps() == [5]
    first.forget(after=0)
    assert first.steps() == [] and first.all_steps() == {}


async def test_steps_after_the_restored_one_are_forgotten_wherever_they_are(
    stores: tuple[SnapshotStore, SnapshotStore],
) -> None:
    """A neighbour's memory too: that rank may have moved, and its old segments would be mixed into an emergency checkpoint."""
    first, second = stores
    for fd, step in zip(first.own, (7, 9), strict=True):
        fill(fd, step)
    second.hold(0, handle(first))
    for step in (7, 9):
        await second.write(
            Chunk(3, 2, shared_memory.Header(step, 0, SIZE), shared_memory.START, bytes(SIZE - shared_memory.START))
        )
    second.forget(after=7)
    assert second.all_steps() == {0: [7], 3: [7]} and first.steps() == [7]


def test_memory_on_another_node_is_not_adopted(stores: tuple[SnapshotStore, SnapshotStore]) -> None:
    first, _ = stores
    fill(first.own[0], 7)
    moved = SnapshotStore()
    moved.reserve(0, 3, handle(first, node="b"))
    assert moved.steps() == []
    for fd in moved.own:
        os.close(fd)


async def test_a_copy_of_an_earlier_generation_is_refused(stores: tuple[SnapshotStore, SnapshotStore]) -> None:
    first, _ = stores
    header = shared_memory.Header(4, 0, SIZE)
    content = bytes(SIZE - shared_memory.START)
    with pytest.raises(Stale):
        await first.write(Chunk(1, 1, header, shared_memory.START, content))
    assert not await first.write(Chunk(1, 2, header, shared_memory.START, content)), "that was all of it"
    assert first.replica_steps(1) == [4] and first.all_steps() == {1: [4]}
    assert not await first.write(Chunk(0, 2, header, shared_memory.START, content))
    assert first.steps() == [4]
    first.drop_replicas_except([])
    assert first.all_steps() == {0: [4]}


async def test_a_full_disk_has_room_for_a_file_after_what_killed_saves_left_is_removed(
    stores: tuple[SnapshotStore, SnapshotStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, name = LocalFolder.write, "rank-00000-0a1b2c3d.safetensors"
    left, others = (
        tmp_path / path
        for path in ("step-00000006/rank-00000-dead.safetensors", "step-00000007/rank-00001-0a1b2c3d.safetensors")
    )
    for path in (left, others):
        path.parent.mkdir()
        path.write_bytes(b"")

    def write(self: LocalFolder, *what: Any) -> None:
        if left.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        usual(self, *what)

    monkeypatch.setattr(LocalFolder, "write", write)
    store, _ = stores
    fill(store.own[0], 7)
    file = await store.write_out(0, 7, [], str(tmp_path), name)
    assert (others.parent / name).stat().st_size == file.bytes and others.exists()
    await store.discard(str(tmp_path), 7, [name, others.name, "rank-00002-0a1b2c3d.safetensors"])
    assert not others.parent.exists() or not [*others.parent.iterdir()]


async def test_one_file_of_an_emergency_checkpoint_is_written_at_a_time(
    stores: tuple[SnapshotStore, SnapshotStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This rank's own, and that of a lost rank whose replica is here. The node has room for one copy."""
    begun: queue.Queue[str] = queue.Queue()
    first_may_end, at_once = threading.Event(), list[int]()
    running = set[str]()

    def write(_: Folder, __: int, name: str, *what: Any) -> File:
        running.add(name)
        at_once.append(len(running))
        begun.put(name)
        first_may_end.wait(PATIENCE_S)
        running.discard(name)
        return File(0, "", ())

    monkeypatch.setattr(from_snapshot, "write", write)
    store, _ = stores
    fill(store.own[0], 7)
    content = bytes(SIZE - shared_memory.START)
    await store.write(Chunk(1, 2, shared_memory.Header(7, 0, SIZE), shared_memory.START, content))
    both = asyncio.gather(*(store.write_out(rank, 7, [], str(tmp_path), f"rank-{rank}") for rank in (0, 1)))
    assert await asyncio.to_thread(begun.get, timeout=PATIENCE_S) == "rank-0"
    with contextlib.suppress(queue.Empty):
        await asyncio.to_thread(begun.get, timeout=0.2)
    first_may_end.set()
    assert await both == [File(0, "", ())] * 2
    assert at_once == [1, 1]


@pytest.mark.parametrize("has_room", [True, False])
async def test_a_full_disk_leaves_no_ranks_files_without_a_manifest(
    has_room: bool, stores: tuple[SnapshotStore, SnapshotStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, left, usual = (
        "rank-00000-0a1b2c3d.safetensors",
        tmp_path / "step-00000006/rank-00000-dead",
        LocalFolder.publish,
    )
    left.parent.mkdir()
    left.write_bytes(b"")

    def publish(self: LocalFolder, *what: Any, **how: Any) -> Any:
        if left.exists() or not has_room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return usual(self, *what, **how)

    store, _ = stores
    fill(store.own[0], 7)
    manifest = Manifest(7, {}, {}, {name: await store.write_out(0, 7, [], str(tmp_path), name)})
    monkeypatch.setattr(LocalFolder, "publish", publish)
    with contextlib.nullcontext() if has_room else pytest.raises(OSError, match="No space"):
        await store.commit(str(tmp_path), 1, manifest)
    assert (tmp_path / "step-00000007" / name).exists() is has_room and not left.exists()
