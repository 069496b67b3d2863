"""A rank that works longer than its peers is named once, and so is its recovery; noise that comes and goes names no rank."""

import copy
import math
import random
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardyard.workers.messages.event_buffer import Ranks
from shardyard.workers.messages.gang_spec import StragglerLimits
from shardyard.workers.supervisor.policies import straggler
from shardyard.workers.supervisor.policies.straggler import MANY, WARM_UP, Finding, Observation, Stragglers

LIMITS = StragglerLimits(factor=1.5, steps=10, seconds=0.0)


def records(step: int, own: Sequence[float], parts: Sequence[int]) -> Ranks:
    longest = max(own)
    return {
        rank: {"step": step, "busy_s": seconds, "wait_s": longest - seconds, "part": part}
        for rank, (seconds, part) in enumerate(zip(own, parts, strict=True))
    }


def run(
    own: Callable[[int], Sequence[float]], steps: int, parts: Sequence[int], limits: StragglerLimits | None = LIMITS
) -> list[Finding]:
    """Findings of `steps` steps in which the ranks work for `own(step)` seconds."""
    stragglers = Stragglers(limits)
    return [found for step in range(1, steps + 1) for found in stragglers.add(records(step, own(step), parts))]


def slowed(rank: int, first: int, last: int, even: Sequence[float], by: float = 0.05) -> Callable[[int], list[float]]:
    """All ranks vary by a tenth, and `rank` takes `by` seconds more from `first` to `last`."""
    dice = random.Random(rank)

    def own(step: int) -> list[float]:
        extra = by if first <= step <= last else 0.0
        return [s * dice.uniform(0.95, 1.05) + (extra if r == rank else 0.0) for r, s in enumerate(even)]

    return own


@pytest.mark.parametrize(
    ("even", "parts"),
    [([0.05] * 4, [0] * 4), ([0.05] * 2, [0] * 2), ([0.05] * 2 * MANY, [0] * 2 * MANY), ([0.05, 0.02] * 2, [0, 1] * 2)],
    ids=["four peers", "two peers", "many peers", "two stages of two replicas"],
)
def test_an_episode_among_peers_is_reported_once_and_so_is_its_end(even: list[float], parts: list[int]) -> None:
    begun, ended = run(slowed(1, 31, 60, even), 100, parts)
    assert (begun.rank, begun.slow, ended.rank, ended.slow) == (1, True, 1, False)
    assert begun.step == 31 and 61 - 2 <= ended.step <= 62
    assert begun.busy_s == pytest.approx(even[1] + 0.05, rel=0.1) and begun.usual_s == pytest.approx(even[1], rel=0.1)
    assert begun.peers == tuple(r for r, part in enumerate(parts) if part == parts[1] and r != 1)


def test_a_rank_that_is_slow_from_the_start_is_named_by_its_peers() -> None:
    (found,) = run(slowed(0, 1, 99, [0.05] * 4), 40, [0] * 4)
    assert found.rank == 0 and found.step == WARM_UP + 1


def test_a_stage_without_replicas_is_held_against_its_own_past() -> None:
    stages, parts = [0.09, 0.03, 0.05], [0, 1, 2]
    begun, ended = run(slowed(1, 31, 60, stages), 100, parts)
    assert (begun.rank, begun.step, begun.slow, begun.peers, ended.slow) == (1, 31, True, (), False)
    assert begun.usual_s == pytest.approx(0.03, rel=0.1)
    assert run(slowed(1, 101, 200, stages), 100, parts) == []  # however uneven stages are


def test_without_peers_what_makes_all_ranks_slower_is_nobodys_fault() -> None:
    assert run(lambda step: [0.03 * (1 + (step > 30)), 0.05 * (1 + (step > 30))], 100, [0, 1]) == []


def test_a_neighbour_that_was_slow_at_first_makes_no_straggler_of_others() -> None:
    assert run(lambda step: [0.03, 0.05 if step > 20 else 0.2], 100, [0, 1]) == []


def test_noise_names_no_rank() -> None:
    """Each rank is often twice as slow as another, but none for long."""
    dice = random.Random(0)
    for parts in ([0] * 4, [0, 0], [0, 1], [0, 0, 1, 1]):
        even = StragglerLimits(seconds=0.0)
        assert run(lambda _: [dice.uniform(0.03, 0.09) for _ in parts], 1500, parts, even) == []  # noqa: B023


def test_a_burst_shorter_than_its_limit_names_no_rank() -> None:
    own = slowed(2, 31, 60, [0.05] * 4)
    assert run(own, 100, [0] * 4, StragglerLimits(1.5, 10, seconds=30 * 0.1 + 1.0)) == []
    assert run(own, 100, [0] * 4, StragglerLimits(1.5, 10, seconds=1.0))[0].rank == 2


def test_little_work_beside_much_waiting_is_not_worth_a_word() -> None:
    stragglers = Stragglers(LIMITS)
    for step in range(1, 100):
        ranks = records(step, [0.001, 0.003], [0, 0])
        for record in ranks.values():
            record["wait_s"] = 0.1
        assert stragglers.add(ranks) == []


def test_switched_off_or_without_own_times_it_names_no_rank() -> None:
    assert run(slowed(0, 1, 99, [0.05] * 4), 100, [0] * 4, None) == []
    stragglers = Stragglers(LIMITS)
    assert [stragglers.add({r: {"step": n, "step_s": 1.0} for r in range(2)}) for n in range(50)] == [[]] * 50


def test_an_episode_outlives_supervisor_and_generation() -> None:
    stragglers, own = Stragglers(LIMITS), slowed(1, 31, 80, [0.03, 0.05])
    reported = [found for step in range(1, 61) for found in stragglers.add(records(step, own(step), [0, 1]))]
    assert [found.slow for found in reported] == [True]
    heir = Stragglers.from_state(LIMITS, stragglers.to_state())
    heir.renew()
    reported = [found for step in range(61, 121) for found in heir.add(records(step, own(step), [0, 1]))]
    assert [(found.slow, found.rank) for found in reported] == [(False, 1)]


SECONDS = st.sampled_from([0.0, 1e-300, 0.1, 0.3, 0.30000000000000004, 1.0, 7.0, 1e300]) | st.floats(0.0, 10.0)


@given(st.lists(st.lists(SECONDS, min_size=6, max_size=6), min_size=5, max_size=8), st.permutations([0, 1, 2, 3, 4, 4]))
def test_ranks_without_peers_are_held_against_their_past_as_if_each_looked_at_all_others(
    steps: list[list[float]], parts: list[int]
) -> None:
    """To the bit. Some steps have no time of some ranks, so that these have no past yet."""
    stragglers = Stragglers(StragglerLimits(factor=1.5, steps=2, seconds=0.0))
    for step, seconds in enumerate(steps, start=1):
        stragglers.add(records(step, seconds, parts))
        own = {rank: busy for rank, busy in enumerate(seconds) if busy}
        alone = [rank for rank in own if sum(parts[other] == parts[rank] for other in own) == 1]
        looks = [
            (rank, look) for rank in alone if rank in stragglers._tracks for look in stragglers._tracks[rank].recent
        ]
        for rank, look in looks:
            if look.step == step:
                assert look.usual_s == _usual(stragglers, rank, own)


def _usual(stragglers: Stragglers, rank: int, own: dict[int, float]) -> float:
    """The rule, looked up in all other ranks for each."""
    past = {other: stragglers._tracks[other].usual_s for other in own}
    if (mine := past[rank]) is None:
        return math.inf
    others = ((own[other], past[other]) for other in own if other != rank)
    return mine * max(1.0, statistics.median(now / before if before else 1.0 for now, before in others))


def test_ranks_without_peers_cost_one_sort_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside those of the ranks' numbers and of the times of which the step's is the median. Nothing is sorted for each rank."""
    stragglers, size, sizes = Stragglers(LIMITS), 300, list[int]()
    own = slowed(0, 0, 0, [0.05] * size)
    steps = [records(step, own(step), range(size)) for step in range(1, 31)]
    for ranks in steps[:-1]:
        stragglers.add(ranks)

    def counting(sort: Callable[..., Any]) -> Callable[..., Any]:
        def counted(values: Iterable[Any]) -> Any:
            sizes.append(len(found := [*values]))
            return sort(found)

        return counted

    monkeypatch.setattr(statistics, "median", counting(statistics.median))
    monkeypatch.setattr(straggler, "sorted", counting(sorted), raising=False)
    assert stragglers.add(steps[-1]) == [] and sizes == [size] * 3


class Compared(int):
    """A rank that counts how often one is compared with another."""

    times = 0
    __hash__ = int.__hash__

    def __ne__(self, other: object) -> bool:
        Compared.times += 1
        return int.__ne__(self, other)


def test_peers_are_looked_for_only_where_an_episode_begins_or_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compared, "times", 0)
    stragglers, size, found = Stragglers(LIMITS), 1024, []
    own = slowed(1, 5, 15, [0.05] * size)
    for step in range(1, 31):
        ranks = {Compared(rank): record for rank, record in records(step, own(step), [0] * size).items()}
        found += stragglers.add(ranks)
    assert [(one.rank, one.slow, len(one.peers)) for one in found] == [(1, True, size - 1), (1, False, size - 1)]
    assert Compared.times == 2 * size


def test_memory_does_not_grow_with_steps() -> None:
    stragglers, own = Stragglers(LIMITS), slowed(1, 31, 10_000, [0.05] * 4)
    sizes = []
    for step in range(1, 1001):
        stragglers.add(records(step, own(step), [0] * 4))
        if step in (100, 1000):
            sizes.append(sum(len(t.recent) + len(t.past) for t in copy.copy(stragglers._tracks).values()))
    assert sizes[0] == sizes[1] == 4 * LIMITS.steps


class Unread(deque[Observation]):
    """It counts how often all of it is read."""

    reads = 0

    def __iter__(self) -> Iterator[Observation]:
        Unread.reads += 1
        return super().__iter__()


def test_a_step_reads_no_window_unless_an_episode_begins_or_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window may have ten thousand steps, and a gang a thousand ranks."""
    monkeypatch.setattr(Unread, "reads", 0)
    monkeypatch.setattr(Stragglers, "_window", lambda self: Unread(maxlen=self._limits.steps))
    assert len(run(slowed(1, 31, 60, [0.05] * 4), 100, [0] * 4)) == 2
    assert Unread.reads == 1 + 2 * 3, "for the first late step, and three medians for each finding"


def test_late_steps_are_counted_as_if_each_step_counted_all(monkeypatch: pytest.MonkeyPatch) -> None:
    dice, stragglers = random.Random(5), Stragglers(LIMITS)
    judge, judged = Stragglers._judge, []

    def checked(self: Stragglers, rank: int, members: Sequence[int]) -> list[Finding]:
        track = self._tracks[rank]
        judged.append(track.late)
        assert track.late == sum(look.late for look in track.recent)
        return judge(self, rank, members)

    monkeypatch.setattr(Stragglers, "_judge", checked)
    for step in range(1, 201):
        if step == 120:
            stragglers.renew()
        stragglers.add(records(step, [dice.choice([0.05, 0.05, 0.2]) for _ in range(4)], [0] * 4))
    assert set(range(7)) <= set(judged)


def test_an_incident_says_who_since_when_and_by_how_much() -> None:
    among = Finding(2, True, 41, 0.072, 0.021, 0.076, (0, 1, 3)).failure("node")
    assert (among.cause, among.rank, among.node, among.is_repairable) == ("straggler", 2, "node", False)
    assert among.message == (
        "since step 41 its compute time is 72 ms of each 76 ms step, 3.4 × its peers' 21 ms (ranks 0, 1, 3); the others wait for it"
    )
    alone = Finding(1, True, 9, 2.5, 1.25, 2.5, ()).failure(None)
    assert alone.message == (
        "since step 9 its compute time is 2.50 s of each 2.50 s step, 2.0 × its earlier 1.25 s; the others wait for it"
    )
    over = Finding(1, False, 9, 0.02, 0.02, 0.03, ()).failure(None)
    assert (over.cause, over.message) == (
        "straggler_over",
        "since step 9 its compute time is 20 ms of each 30 ms step, compared with its earlier 20 ms",
    )


def test_where_only_some_steps_are_measured_an_episode_begins_and_lasts_as_it_did() -> None:
    """On GPUs one step of several is measured. The time between them counts, and steps keep their numbers."""
    every, limits = 5, StragglerLimits(factor=1.5, steps=4, seconds=5.0)
    stragglers, found = Stragglers(limits), []
    for step in range(1, 201):
        slow = 0.05 if 51 <= step <= 120 else 0.0
        own = records(step, [0.05, 0.05 + slow, 0.05, 0.05], [0] * 4)
        timed = own if step % every == 0 else {rank: {"step": step, "step_s": 0.1} for rank in own}
        found += [(step, one) for one in stragglers.add(timed)]
    (at, begun), (_, ended) = found
    assert (begun.rank, begun.slow, begun.step) == (1, True, 55)
    assert (ended.slow, ended.step) == (False, 125)
    assert 100 <= at <= 110, "50 steps of 0.1 s after the first late one"
