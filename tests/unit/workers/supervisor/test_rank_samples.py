"""Samples are means by rank over the steps since the last, and what no rank reported is None."""

import json
from typing import Any

import pytest

from shardyard.workers.supervisor.rank_samples import MOST_RANKS, Samples, places


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def samples(ranks: int = 2) -> tuple[Samples, Clock]:
    clock = Clock()
    return Samples(ranks, 5.0, clock), clock


def step(number: int, *busy_s: float | None, **more: Any) -> dict[int, dict[str, Any]]:
    reports = [{"step": number, "step_s": 0.2, **({} if own is None else {"busy_s": own})} for own in busy_s]
    return {rank: record | {name: by[rank] for name, by in more.items()} for rank, record in enumerate(reports)}


def test_a_sample_is_the_mean_over_the_steps_since_the_last() -> None:
    gathered, clock = samples()
    assert gathered.add(step(1, 0.1, 0.1)) is None
    clock.now += 4.9
    assert gathered.add(step(2, 0.2, 0.1)) is None
    clock.now += 0.1
    first = gathered.add(step(3, 0.3, 0.1))
    assert first is not None
    assert (first["step"], first["steps"], first["busy_s"], first["step_s"]) == (3, 3, [0.2, 0.1], [0.2, 0.2])
    clock.now += 5.0
    second = gathered.add(step(4, 0.4, 0.1))
    assert second is not None and (second["step"], second["steps"], second["busy_s"]) == (4, 1, [0.4, 0.1])


def test_a_sample_says_how_many_steps_were_measured_if_not_all() -> None:
    gathered, _ = samples()
    for number in range(1, 7):
        gathered.add(step(number, *((0.1, 0.3) if number % 3 == 0 else (None, None))))
    sample = gathered.flush()
    assert sample is not None
    assert (sample["steps"], sample["timed_steps"], sample["busy_s"]) == (6, 2, [0.1, 0.3])
    gathered.add(step(7, 0.1, 0.1))
    sample = gathered.flush()
    assert sample is not None and "timed_steps" not in sample, "all"


def test_what_is_not_reported_is_none() -> None:
    gathered, _ = samples(3)
    gathered.add(step(1, 0.1, None))
    sample = gathered.flush()
    assert sample is not None
    assert (sample["busy_s"], sample["wait_s"], sample["memory"]) == ([0.1, None, None], [None] * 3, [None] * 3)
    assert gathered.flush() is None, "nothing is left"


def test_memory_is_the_newest_that_was_reported_and_on_cuda_what_torch_allocated() -> None:
    gathered, _ = samples()
    gathered.add(step(1, 0.1, 0.1, resident=[10, 20]))
    gathered.add(step(2, 0.1, 0.1, resident=[None, 30]))
    sample = gathered.flush()
    assert sample is not None and (sample["memory"], sample["memory_of"]) == ([10, 30], "resident")
    gathered.add(step(3, 0.1, 0.1, resident=[10, 20], allocated=[1, 2]))
    sample = gathered.flush()
    assert sample is not None and (sample["memory"], sample["memory_of"]) == ([1, 2], "allocated")
    gathered.add(step(4, 0.1, 0.1))
    sample = gathered.flush()
    assert sample is not None and sample["memory"] == [None, None], "other processes have come"


def test_a_sample_of_many_ranks_stays_small() -> None:
    gathered, _ = samples(512)
    numbers = [0.0123456789 + rank / 7 for rank in range(512)]
    gathered.add(step(10**6, *numbers, wait_s=numbers, resident=[85_899_345_920 + rank for rank in range(512)]))
    sample = gathered.flush()
    assert sample is not None
    sample |= places([f"{rank // 8:056x}" for rank in range(512)])
    assert len(json.dumps(sample, separators=(",", ":"))) < 30_000


def test_gangs_that_would_not_fit_an_answer_report_none() -> None:
    gathered, _ = samples(MOST_RANKS + 1)
    assert gathered.add(step(1, 0.1, 0.1)) is None and gathered.flush() is None


def test_each_node_is_named_once() -> None:
    assert places(["b", "a", None, "b"]) == {"nodes": ["a", "b"], "node_of": [1, 0, None, 1]}
    assert places([]) == {"nodes": [], "node_of": []}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_one_step_left_out_has_its_own_mean(rank: int) -> None:
    gathered, _ = samples()
    gathered.add(step(1, 0.2, 0.2))
    gathered.add({rank: {"step": 2, "step_s": 0.4, "busy_s": 0.4}})
    sample = gathered.flush()
    assert sample is not None
    assert sample["busy_s"] == [pytest.approx(0.3 if other == rank else 0.2) for other in (0, 1)]
