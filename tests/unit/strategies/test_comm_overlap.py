"""A bucket has a size, however small it is given."""

import pytest

from shardyard.strategies.comm_overlap import Overlap


@pytest.mark.parametrize(("given", "size"), [(8, 8 << 20), (0.5, 1 << 19), (1e-9, 1)])
def test_a_bucket_has_at_least_a_byte(given: float, size: int) -> None:
    assert Overlap(bucket_mb=given).bucket_bytes == size
