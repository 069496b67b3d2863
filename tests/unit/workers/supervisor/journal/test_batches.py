from itertools import pairwise

from shardyard.workers.supervisor.journal.batches import JOINED_BYTES, LEAST_SAVED, Batch, joinable, joined


def batches(*sizes: int) -> list[Batch]:
    """Of one event each, numbered from 1."""
    return [Batch(number, number, size) for number, size in enumerate(sizes, 1)]


def test_few_batches_are_not_joined() -> None:
    assert joinable([]) == []
    assert joinable(batches(*[100] * LEAST_SAVED)) == []


def test_small_neighbours_become_one_batch() -> None:
    kept = batches(*[100] * (LEAST_SAVED + 1))
    runs = joinable(kept)
    assert runs == [kept]
    assert joined(kept, runs) == [Batch(1, LEAST_SAVED + 1, 100 * (LEAST_SAVED + 1))]


def test_large_batches_stay_as_they_are() -> None:
    """Each join writes its batches again: a batch may be as large as all events that the supervisor keeps."""
    kept = batches(JOINED_BYTES + 1, *[1000] * LEAST_SAVED, JOINED_BYTES, *[1000] * 2)
    runs = joinable(kept)
    assert runs == [kept[1 : LEAST_SAVED + 1], kept[-2:]]
    assert [batch.size for batch in joined(kept, runs)] == [JOINED_BYTES + 1, 1000 * LEAST_SAVED, JOINED_BYTES, 2000]
    assert not any(joinable(batches(*[JOINED_BYTES + 1] * 1000)))


def test_what_is_joined_one_after_the_other_stays_few() -> None:
    kept: list[Batch] = []
    rewritten = 0
    for number in range(1, 8001):
        kept.append(Batch(number, number, 2048))
        runs = joinable(kept)
        rewritten += sum(batch.size for run in runs for batch in run)
        kept = joined(kept, runs)
        assert len(kept) < 200
    assert [kept[0].first, kept[-1].last] == [1, 8000]
    assert all(one.last + 1 == other.first for one, other in pairwise(kept))
    assert rewritten < 2 * 8000 * 2048, "bytes that were written again"
