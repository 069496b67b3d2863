import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardyard.workers.messages.rendezvous import SnapshotHandle
from shardyard.workers.rank import snapshot_store
from shardyard.workers.rank.snapshot_store import SnapshotStore
from shardyard.workers.snapshot import shared_memory
from shardyard.workers.snapshot.replication import Chunk, Stale

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
