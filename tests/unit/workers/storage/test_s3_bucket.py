import threading

import pytest

from shardyard.workers.storage.s3_bucket import AT_ONCE, ahead


def test_results_come_in_order_and_only_a_few_ahead() -> None:
    begun: list[int] = []
    results = ahead(lambda number: begun.append(number) or number * number, range(100))
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    assert len(begun) <= AT_ONCE + 2
    assert list(results) == [number * number for number in range(3, 100)]


def test_nothing_more_begins_once_one_has_failed() -> None:
    begun: list[int] = []
    lock = threading.Lock()

    def fail_at_first(number: int) -> int:
        with lock:
            begun.append(number)
        if number == 0:
            raise OSError("the disk is gone")
        return number

    with pytest.raises(OSError, match="the disk is gone"):
        list(ahead(fail_at_first, range(100)))
    assert len(begun) <= AT_ONCE
