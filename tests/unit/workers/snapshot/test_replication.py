import asyncio
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from shardyard.workers.snapshot import replication, shared_memory
from shardyard.workers.snapshot.replication import (
    Chunk,
    ReplicaStore,
    Replicator,
    SnapshotNotifier,
    Stale,
    notifier_pair,
    replication_peers,
    send,
)

SIZE = shared_memory.START + 1000


@pytest.fixture
def replicas() -> Iterator[ReplicaStore]:
    made = ReplicaStore()
    yield made
    made.drop_except([])


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "CHUNK", 300)


def fill(fd: int, step: int, size: int = SIZE) -> bytes:
    """A complete segment; returns its content."""
    content = os.urandom(size - shared_memory.START)
    shared_memory.empty(fd)
    shared_memory.reserve(fd, size)
    os.pwrite(fd, content, shared_memory.START)
    shared_memory.seal(fd, shared_memory.Header(step, 10, size))
    return content


def content(fds: list[int], step: int) -> bytes:
    (fd,) = [fd for fd in fds if (header := shared_memory.read_header(fd)) and header.step == step]
    header = shared_memory.read_header(fd)
    assert header is not None
    return os.pread(fd, header.size - shared_memory.START, shared_memory.START)


async def test_a_copy_is_equal_and_complete_only_with_its_last_part(fds: list[int], replicas: ReplicaStore) -> None:
    wanted, seen = fill(fds[0], 7), []

    async def give(chunk: Chunk) -> bool:
        seen.append(shared_memory.steps(replicas.of(3)))
        return replicas.write(chunk)

    assert await send(fds[0], 3, 1, give)
    assert seen == [[]] * 4 and content(replicas.of(3), 7) == wanted
    assert not await send(fds[1], 3, 1, give), "an empty segment is no copy"


async def test_the_two_newest_copies_stay_and_one_that_is_there_is_not_sent_again(
    fds: list[int], replicas: ReplicaStore
) -> None:
    async def give(chunk: Chunk) -> bool:
        parts.append(chunk)
        return replicas.write(chunk)

    for step in (1, 2, 3):
        parts: list[Chunk] = []
        fill(fds[step % 2], step)
        await send(fds[step % 2], 0, 1, give)
    assert shared_memory.steps(replicas.of(0)) == [2, 3]
    parts = []
    assert await send(fds[1], 0, 2, give) and len(parts) == 1
    assert shared_memory.steps(replicas.of(0)) == [2, 3]


async def test_a_copy_of_a_step_that_is_trained_again_is_taken_again(fds: list[int], replicas: ReplicaStore) -> None:
    """What the first training sealed may have the same step and size, and other numbers. One that is being written is not continued."""
    fill(fds[0], 7)
    fill(fds[1], 9)
    late: list[Chunk] = []

    async def give(chunk: Chunk) -> bool:
        late.append(chunk)
        return len(late) == 1 and replicas.write(chunk)

    for fd in fds:
        await send(fd, 3, 1, lambda chunk: asyncio.to_thread(replicas.write, chunk))
    await send(fds[1], 4, 1, give)
    replicas.empty_after(7)
    assert shared_memory.steps(replicas.of(3)) == [7]
    with pytest.raises(Stale):
        replicas.write(late[1])
    again = fill(fds[1], 9)
    await send(fds[1], 3, 2, lambda chunk: asyncio.to_thread(replicas.write, chunk))
    assert shared_memory.steps(replicas.of(3)) == [7, 9] and content(replicas.of(3), 9) == again


@pytest.mark.parametrize("when", range(4))
async def test_what_changes_while_it_is_read_is_never_a_copy(fds: list[int], replicas: ReplicaStore, when: int) -> None:
    fill(fds[0], 1)
    await send(fds[0], 0, 1, _into(replicas))
    fill(fds[0], 2)
    count = 0

    async def give(chunk: Chunk) -> bool:
        nonlocal count
        if count == when:
            fill(fds[0], 4)
        count += 1
        return replicas.write(chunk)

    assert await send(fds[0], 0, 1, give) == (when == 3), "its last part had been read before"
    assert shared_memory.steps(replicas.of(0)) == ([1, 2] if when == 3 else [1])


async def test_parts_that_do_not_follow_each_other_are_refused(fds: list[int], replicas: ReplicaStore) -> None:
    fill(fds[0], 1)
    parts: list[Chunk] = []

    async def collect(chunk: Chunk) -> bool:
        parts.append(chunk)
        return True

    await send(fds[0], 0, 1, collect)
    with pytest.raises(Stale):
        replicas.write(parts[1])
    replicas.write(parts[0])
    with pytest.raises(Stale):
        replicas.write(parts[2])
    assert shared_memory.steps(replicas.of(0)) == []


async def test_each_part_takes_memory_for_itself_alone(
    fds: list[int], replicas: ReplicaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory for tens of gigabytes takes longer than a peer may take for a part."""
    page = shared_memory.START
    monkeypatch.setattr(replication, "CHUNK", 2 * page)
    wanted, sizes = fill(fds[0], 7, 20 * page), list[int]()

    async def give(chunk: Chunk) -> bool:
        more = replicas.write(chunk)
        sizes.append(dict(replicas.sizes())[3])
        return more

    assert await send(fds[0], 3, 1, give)
    assert sizes == [(1 + 2 * parts) * page for parts in range(1, 10)] + [20 * page]
    assert content(replicas.of(3), 7) == wanted


async def test_copies_of_other_ranks_are_freed(fds: list[int], replicas: ReplicaStore) -> None:
    fill(fds[0], 1)
    for rank in (0, 1, 2):
        await send(fds[0], rank, 1, _into(replicas))
    sizes = dict(replicas.sizes())
    assert sorted(sizes) == [0, 1, 2] and set(sizes.values()) == {2 * shared_memory.START}, "whole pages"
    gone = replicas.of(1)
    replicas.drop_except([0, 2, 5])
    assert [shared_memory.steps(replicas.of(rank)) for rank in range(3)] == [[1], [], [1]]
    for fd in gone:
        with pytest.raises(OSError):
            os.fstat(fd)


def _into(replicas: ReplicaStore) -> replication.Give:
    async def give(chunk: Chunk) -> bool:
        return replicas.write(chunk)

    return give


class Actor:
    """An actor's side in a thread of its own, as a trainer sees it: in another process."""

    def __init__(self, fds: list[int], give: replication.Give) -> None:
        ours, theirs = notifier_pair()
        ours.setblocking(False)
        self.notifier, self.met, self.warnings = SnapshotNotifier(theirs), 0, list[str]()
        self._ends = (ours, theirs)
        copying = Replicator(ours, fds, 0, self.warnings.append)
        self._thread = threading.Thread(target=lambda: asyncio.run(copying.run(1, give, self._meet)))
        self._thread.start()

    def _meet(self) -> None:
        self.met += 1

    def end(self) -> None:
        self._ends[1].close()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._ends[0].close()


def test_a_trainer_waits_until_its_snapshot_is_copied(fds: list[int], replicas: ReplicaStore) -> None:
    actor = Actor(fds, _into(replicas))
    for step in (1, 2, 3):
        fill(fds[step % 2], step)
        actor.notifier.notify(step)
        actor.notifier.wait()
        assert step in shared_memory.steps(replicas.of(0))
    actor.notifier.wait()
    assert actor.met == 2 and actor.notifier.took_s > 0 and not actor.warnings
    actor.end()


@pytest.mark.parametrize("silent", [False, True])
def test_a_peer_that_is_gone_stops_no_training(fds: list[int], monkeypatch: pytest.MonkeyPatch, silent: bool) -> None:
    monkeypatch.setattr(replication, "CHUNK_S", 0.01)
    calls = 0

    async def give(_: Chunk) -> bool:
        nonlocal calls
        calls += 1
        if silent:
            await asyncio.Event().wait()
        raise ConnectionError("it is gone")

    actor = Actor(fds, give)
    for step in (1, 2, 3):
        fill(fds[step % 2], step)
        actor.notifier.notify(step)
        actor.notifier.wait()
    assert calls == 1, "it is left alone for a while"
    assert len(actor.warnings) == 1 and "step 1 is not copied" in actor.warnings[0]
    actor.end()


@pytest.mark.parametrize("limit", ["ANSWER_S", "COPY_S"])
def test_an_actor_that_does_not_answer_stops_no_training(
    limit: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until it sends a late answer or, if it was silent, that a copy goes on. Then it is waited for again."""
    ours, theirs = notifier_pair()
    with monkeypatch.context() as patch:
        patch.setattr(replication, limit, 0.01)
        trainers = SnapshotNotifier(theirs)
        took_s = []
        for step in (1, 2):
            trainers.notify(step)
            trainers.wait()
            took_s.append(trainers.took_s)
    assert took_s == sorted(took_s), "a wait that is given up is no short copy"
    assert capsys.readouterr().out.count("the snapshot of step 1 has no copy on another node") == 1
    if limit == "COPY_S":
        ours.send(replication._MESSAGE.pack(0, 0.0))
        trainers.notify(2)
        trainers.wait()
        assert trainers._answer_s == 0.0, "a slow copy holds up one step, and not each of them"
    for step, earlier in ((3, 0 if limit == "ANSWER_S" else 1), (4, 3)):
        ours.send(replication._MESSAGE.pack(earlier, 0.0))
        trainers.notify(step)
        answer = threading.Timer(0.05, ours.send, [replication._MESSAGE.pack(step, 4.0 + step)])
        answer.start()
        trainers.wait()
        answer.join()
        assert trainers.cost_s == 4.0 + step
    assert not capsys.readouterr().out
    ours.close()
    theirs.close()


async def test_an_actor_reports_while_it_copies_and_warns_of_a_copy_that_it_gave_up(
    fds: list[int], replicas: ReplicaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "ALIVE_S", 0.0)
    ours, theirs = notifier_pair()
    ours.setblocking(False)
    warnings = list[str]()

    async def give(chunk: Chunk) -> bool:
        if chunk.header.step == 2:
            fill(fds[0], 4)
        return replicas.write(chunk)

    with ours, theirs:
        copying = asyncio.create_task(Replicator(ours, fds, 0, warnings.append).run(1, give, lambda: None))
        for step, messages in ((1, [0, 0, 0, 0, 1]), (2, [0, 2])):
            fill(fds[0], step)
            theirs.send(replication._MESSAGE.pack(step, 0.0))
            received = [await asyncio.to_thread(theirs.recv, replication._MESSAGE.size) for _ in messages]
            assert [replication._MESSAGE.unpack(message)[0] for message in received] == messages
        theirs.shutdown(socket.SHUT_WR)
        await copying
    assert warnings == ["the snapshot of step 2 is not copied: it was overwritten meanwhile"]


def test_buddies_sit_on_another_node_and_share_the_work() -> None:
    assert replication_peers(["a"] * 4) == [None] * 4
    assert replication_peers(["a", "a", "b", "b"]) == [2, 3, 0, 1]
    places = ["c", "a", "b", "a", "c", "a", "b"]
    found = replication_peers(places)
    assert all(other is not None and places[other] != places[rank] for rank, other in enumerate(found))
    most = [found.count(rank) for rank in range(len(places))]
    assert max(most) == 2, "three ranks on a node of two"


def test_peers_on_a_thousand_nodes_are_found_in_one_pass_over_the_ranks() -> None:
    class Counted(list[str | None]):
        passes = 0

        def __iter__(self) -> Iterator[str | None]:
            Counted.passes += 1
            return super().__iter__()

    assert replication_peers(Counted(f"{rank:04}" for rank in range(1000))) == [*range(1, 1000), 0]
    assert Counted.passes == 1
