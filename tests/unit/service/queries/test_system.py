"""Which buckets an answer has."""

import pytest

from shardyard.service.queries.system import MOST_BUCKETS, width_of

HOUR = 3600.0


@pytest.mark.parametrize(
    ("first", "last", "newest", "width"),
    [
        (0.0, 600.0, 600.0, 5),
        (0.0, HOUR - 10, HOUR - 10, 5),
        (0.0, 2 * HOUR, 2 * HOUR, 120),
        (1.5 * HOUR, 2 * HOUR, 2 * HOUR, 5),
        (0.0, 60.0, 24 * HOUR, 1800),
        (0.0, 700 * HOUR, 700 * HOUR, 1800),
    ],
)
def test_the_finest_width_that_is_kept_so_far_back(first: float, last: float, newest: float, width: int) -> None:
    assert width_of(first, last, newest) == width
    assert (last - first) / width <= 2 * MOST_BUCKETS or width == 1800
