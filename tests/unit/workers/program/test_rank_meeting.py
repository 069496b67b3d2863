"""What ranks agree on through a real store: who saves a step, when it is complete, and from which checkpoint all continue."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from harness.patience import PATIENCE_S
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from shardyard.workers.checkpoint.errors import CheckpointError
from shardyard.workers.program import rank_meeting
from shardyard.workers.program.rank_meeting import CheckpointMismatch, RankMeeting, Vote
from shardyard.workers.program.shared_folder import EndRequested


@pytest.fixture
def store() -> Iterator[Any]:
    held = TCPStore("127.0.0.1", 0, None, is_master=True)
    yield held
    del held


def meetings(store: Any, world: int, is_to_stop: Callable[[], bool] = lambda: False) -> list[RankMeeting]:
    """Each rank has a connection of its own, as processes have."""
    own = [TCPStore("127.0.0.1", store.port, None, is_master=False) for _ in range(world)]
    return [RankMeeting(one, rank, world, is_to_stop) for rank, one in enumerate(own)]


def on_all(ranks: list[RankMeeting], do: Callable[[RankMeeting], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(ranks)) as pool:
        return [future.result(PATIENCE_S) for future in [pool.submit(do, rank) for rank in ranks]]


def test_a_step_is_saved_by_one_rank_or_by_all(store: Any) -> None:
    first, second = meetings(store, 2)
    first.claim(1, every=False)
    first.claim(1, every=False)
    with pytest.raises(CheckpointMismatch, match="rank 1 saves step 1 alone, which rank 0 saves, too"):
        second.claim(1, every=False)
    with pytest.raises(CheckpointMismatch, match="with ranks='all'"):
        second.claim(1, every=True)
    second.claim(2, every=True)
    first.claim(2, every=True)
    with pytest.raises(CheckpointMismatch, match="another rank with ranks='all'"):
        first.claim(2, every=False)


def test_the_last_of_all_ranks_gets_the_parts_of_all(store: Any) -> None:
    for step in (1, 2):
        found = on_all(meetings(store, 5), lambda rank, step=step: rank.gather(step, f"part {rank.rank}"))  # type: ignore[misc]
        assert [one for one in found if one] == [[f"part {rank}" for rank in range(5)]]


def test_all_ranks_have_the_choice_of_the_first_that_asks(store: Any) -> None:
    ranks = meetings(store, 4)
    picks: list[int] = []

    def pick(rank: RankMeeting) -> Any:
        return rank.picked(0, lambda: picks.append(rank.rank) or {"by": rank.rank})  # type: ignore[func-returns-value]

    found = on_all(ranks, pick)
    assert len(picks) == 1 and found == [{"by": picks[0]}] * 4


def test_a_choice_that_fails_fails_on_all_that_wait_for_it(store: Any) -> None:
    waits = threading.Event()
    first, second = meetings(store, 2, lambda: bool(waits.set()))
    with ThreadPoolExecutor(1) as pool:
        asked = []

        def fail() -> Any:
            asked.append(pool.submit(second.picked, 0, lambda: pytest.fail("it picks, too")))
            assert waits.wait(PATIENCE_S)
            raise OSError("no storage")

        with pytest.raises(OSError, match="no storage"):
            first.picked(0, fail)
        with pytest.raises(CheckpointError, match="no storage"):
            asked[0].result(PATIENCE_S)


@pytest.mark.parametrize("again", [0, 1])
def test_a_choice_that_failed_is_made_again_by_the_next_calls(again: int, store: Any) -> None:
    """A rank that asks later fails once, too: else it would continue from a checkpoint, and the others without one."""
    ranks = meetings(store, 2)

    def fail() -> Any:
        raise OSError("no storage")

    with pytest.raises(OSError, match="no storage"):
        ranks[0].picked(0, fail)
    with pytest.raises(CheckpointError, match="no storage"):
        ranks[1].picked(0, lambda: "newest")
    assert ranks[again].picked(0, lambda: "newest") == "newest"
    assert ranks[1 - again].picked(0, fail) == "newest"


def test_a_choice_that_a_rank_leaves_as_it_is_to_end_has_not_failed(store: Any) -> None:
    waits, ended = threading.Event(), threading.Event()
    first, second = meetings(store, 2, lambda: (waits.set(), ended.is_set())[1])

    def end() -> Any:
        assert waits.wait(PATIENCE_S)
        raise EndRequested

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(first.picked, 0, end)]
        while not store.check(["shardyard/0/pick/None/0/0"]):
            pass
        asked.append(pool.submit(second.picked, 0, end))
        assert isinstance(asked[0].exception(PATIENCE_S), EndRequested)
        ended.set()
        assert isinstance(asked[1].exception(PATIENCE_S), EndRequested)


def test_what_ranks_agreed_on_before_their_launcher_started_them_again_counts_for_nothing(store: Any) -> None:
    ranks = meetings(store, 2)
    assert ranks[0].gather(1, "torn") is None
    assert on_all(ranks, lambda rank: rank.picked(0, lambda: "old")) == ["old"] * 2
    assert on_all(ranks, lambda rank: rank.agree(0, "corrupt")) == ["corrupt"] * 2
    on_all(ranks, RankMeeting.fetched)
    again = [rank.after(1, lambda: False) for rank in ranks]
    assert again[1].gather(1, "part 1") is None and not again[1].all_fetched()
    assert again[0].gather(1, "part 0") == ["part 0", "part 1"]
    assert on_all(again, lambda rank: rank.picked(0, lambda: "new")) == ["new"] * 2
    assert on_all(again, lambda rank: rank.agree(0, "valid")) == ["valid"] * 2


def test_a_choice_counts_if_it_is_valid_on_all_ranks(store: Any) -> None:
    ranks = meetings(store, 3)
    votes: list[tuple[Vote, ...]] = [("valid", "unread", "corrupt"), ("valid", "unread", "valid"), ("valid",) * 3]
    found = [on_all(ranks, lambda rank, each=each, n=n: rank.agree(n, each[rank.rank])) for n, each in enumerate(votes)]  # type: ignore[misc]
    assert found == [["corrupt"] * 3, ["unread"] * 3, ["valid"] * 3]
    assert not ranks[0].all_fetched()
    on_all(ranks, RankMeeting.fetched)
    assert ranks[0].all_fetched()


def test_a_rank_that_is_to_end_waits_no_longer(store: Any) -> None:
    with pytest.raises(EndRequested):
        meetings(store, 2, lambda: True)[0].agree(0, "valid")


def test_a_save_is_over_when_those_that_save_it_have_begun_a_later_one(store: Any) -> None:
    first, second = meetings(store, 2)
    assert first.is_over(1), "no rank has begun it"
    first.claim(1, every=True)
    first.claim(2, every=True)
    assert not first.is_over(1), "it waits for the second rank's part"
    second.claim(1, every=True)
    assert not first.is_over(1)
    second.claim(2, every=True)
    second.claim(2, every=True)
    assert first.is_over(1) and not first.is_over(2)
    first.claim(3, every=False)
    assert not first.is_over(3)
    first.claim(4, every=True)
    assert first.is_over(3), "the second rank has no part in it"
    assert not first.is_over(2)
    again = [one.after(1, lambda: False) for one in (first, second)]
    assert again[0].is_over(2)
    assert again[0].edition() == again[1].edition() != first.edition() == second.edition()


class Counted:
    """A store that counts the requests."""

    def __init__(self, store: Any) -> None:
        self._store, self.requests = store, 0

    def __getattr__(self, name: str) -> Any:
        self.requests += 1
        return getattr(self._store, name)


def test_whether_a_save_is_over_takes_the_same_requests_for_any_number_of_ranks(store: Any) -> None:
    ranks = [RankMeeting(store, rank, 50, lambda: False) for rank in range(50)]
    counted = Counted(store)
    asking = RankMeeting(counted, 0, 50, lambda: False)
    for step in (1, 2):
        for rank in ranks:
            rank.claim(step, every=True)
            counted.requests = 0
            assert asking.is_over(1) is (step == 2 and rank is ranks[-1]) and counted.requests == 2


@pytest.mark.parametrize("made", [True, False])
def test_one_rank_makes_room_for_all_once_more_when_all_have_begun_the_step(made: bool, store: Any) -> None:
    ranks = meetings(store, 4)
    makers: list[int] = []

    def ask(rank: RankMeeting) -> bool:
        return rank.has_room(2, lambda: makers.append(rank.rank) or made)  # type: ignore[func-returns-value]

    assert on_all(ranks, ask) == on_all(ranks, ask) == [made] * 4 and len(makers) == 1
    on_all(ranks, lambda rank: rank.claim(2, every=True))
    assert on_all(ranks, ask) == [made] * 4 and len(makers) == 2


@contextmanager
def making_room(rank: RankMeeting, began: threading.Event) -> Iterator[None]:
    """Within the context the rank makes room; at its end it has."""
    ends = threading.Event()

    def make() -> bool:
        began.set()
        return ends.wait(PATIENCE_S)

    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(rank.has_room, 1, make)
        try:
            assert began.wait(PATIENCE_S)
            yield
        finally:
            ends.set()
        assert making.result(PATIENCE_S)


def test_a_rank_that_dies_as_it_makes_room_fails_no_other_save(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = meetings(store, 2)
    with making_room(first, threading.Event()):
        monkeypatch.setattr(rank_meeting, "WAIT_S", 0.0)
        assert second.has_room(1, lambda: pytest.fail("it makes room, too"))


def test_a_save_before_the_end_waits_for_the_room_that_another_rank_makes(store: Any) -> None:
    """A job that is paused has time for it."""
    first, second = meetings(store, 2, lambda: True)
    waits = threading.Event()
    look = second._store.get
    second._store = mock.Mock(wraps=second._store, get=lambda key: (look(key), waits.set())[0])
    with ThreadPoolExecutor(1) as pool:
        waiting = []

        def make() -> bool:
            waiting.append(pool.submit(second.has_room, 1, lambda: pytest.fail("it makes room, too")))
            return waits.wait(PATIENCE_S)

        assert first.has_room(1, make) and waiting[0].result(PATIENCE_S)


def test_a_save_of_processes_that_have_ended_does_not_wait_for_room(store: Any) -> None:
    began = threading.Event()
    first, second = (one.after(1, began.is_set) for one in meetings(store, 2))
    with making_room(first, began), pytest.raises(EndRequested):
        second.has_room(1, lambda: pytest.fail("it makes room, too"))
