"""A rank is slow that stays behind its peers for several windows; noise marks no rank, and a mark stays until the rank keeps up again."""

import random

import pytest

from shardyard.service.policies.slow_ranks import LESS, MORE, WINDOWS, Marks, marked, slow_rank
from shardyard.service.schemas.rank import SlowRank

NOISE = 0.06
FEW = 10


def following(windows: list[list[float | None]], parts: list[int]) -> list[SlowRank | None]:
    """What is said in each window; who does not work waits for the longest."""
    marks, said = Marks(), []
    for own in windows:
        waited = [None if one is None else max(filter(None, own)) - one for one in own]
        marks = Marks.of_json(marked(marks, own, waited, parts).as_json() | {})
        said.append(slow_rank(marks, own, waited, parts))
    return said


def noisy(ranks: int, windows: int, slow: int | None = None, by: float = 0.0) -> list[list[float | None]]:
    """Own work of 50 ms that varies by `NOISE` (a standard deviation), of rank `slow` longer by the share `by`."""
    chosen = random.Random(ranks)
    return [
        [0.05 * chosen.gauss(1.0, NOISE) * (1.0 + by if rank == slow else 1.0) for rank in range(ranks)]
        for _ in range(windows)
    ]


@pytest.mark.parametrize("ranks", [2, 3, 4, 16])
def test_undisturbed_ranks_are_never_slow(ranks: int) -> None:
    said = following(noisy(ranks, 10_000), [0] * ranks)
    assert len(said) == 10_000 and not any(said)


@pytest.mark.parametrize("ranks", [2, 3, 4, 16])
def test_a_rank_that_is_slower_by_a_third_is_slow_within_a_few_windows_and_stays_so(ranks: int) -> None:
    said = following(noisy(ranks, 500, slow=1, by=1 / 3), [0] * ranks)
    first = next(n for n, one in enumerate(said) if one)
    assert WINDOWS - 1 <= first < FEW
    assert {one.rank if one else None for one in said[first:]} == {1}


def marks(*windows: tuple[float, int]) -> list[bool]:
    """Whether rank 3 of four is slow in each window; a window is its compute time as a multiple of its peers', and a count."""
    rows: list[list[float | None]] = [
        [0.05, 0.051, 0.049, 0.05 * times] for times, count in windows for _ in range(count)
    ]
    return [one is not None for one in following(rows, [0] * 4)]


def test_it_takes_several_windows_in_a_row_and_as_many_to_keep_up() -> None:
    just, between, little = 1.02 + MORE, 1.0 + (MORE + LESS) / 2, 1.01
    assert marks((just, WINDOWS - 1), (little, 1), (just, WINDOWS - 1)) == [False] * (2 * WINDOWS - 1)
    assert marks((just, WINDOWS + 1)) == [False] * (WINDOWS - 1) + [True] * 2
    assert marks((just, WINDOWS), (between, 50))[WINDOWS - 1 :] == [True] * 51, "less than it takes to be marked"
    assert marks((between, 50)) == [False] * 50
    over = marks((just, WINDOWS), (little, WINDOWS - 1), (just, 1), (little, WINDOWS), (between, 5))
    assert over[WINDOWS - 1 :] == [True] * (2 * WINDOWS) + [False] * 6


def test_it_is_named_with_its_milliseconds() -> None:
    [*_, slow] = following([[0.052, 0.051, 0.053, 0.1]] * WINDOWS, [0] * 4)
    assert slow is not None and (slow.rank, slow.busy_s, slow.usual_s) == (3, 0.1, 0.052)
    assert slow.message == "rank 3 computes 48 ms longer than its peers"


@pytest.mark.parametrize(
    ("own", "parts"),
    [
        ([0.05, 0.1, 0.05, 0.1], [0, 1, 0, 1]),  # a stage that has more to do
        ([0.05, 0.1], [0, 1]),  # no peers
        ([0.04, 0.06, 0.05, 0.07, 0.03, 0.08], [0] * 6),  # within their spread
        ([None, None, 0.1, None], [0] * 4),
        ([None] * 2, [0] * 2),
    ],
    ids=str,
)
def test_no_rank_is_named_without_reason(own: list[float | None], parts: list[int]) -> None:
    assert following([own] * 10, parts) == [None] * 10


def test_little_work_beside_much_waiting_is_not_worth_a_word() -> None:
    marks, own, waited = Marks(), [0.001, 0.003], [0.1, 0.1]
    for _ in range(10):
        marks = marked(marks, own, waited, [0, 0])
    assert marks == Marks()


def test_of_several_the_one_that_costs_most() -> None:
    said = following([[0.05, 0.2, 0.05, 0.1, 0.05, 0.3]] * WINDOWS, [0, 0, 0, 1, 1, 1])
    assert said[-1] is not None and said[-1].rank == 5


def test_a_rank_that_reported_nothing_keeps_its_mark() -> None:
    said = following([[0.05, 0.05, 0.1]] * WINDOWS + [[0.05, 0.05, None]] * 5 + [[0.05, 0.05, 0.1]], [0] * 3)
    assert [one is not None for one in said[WINDOWS - 1 :]] == [True, *[False] * 5, True]
