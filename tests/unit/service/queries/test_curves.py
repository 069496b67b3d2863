import pytest

from shardyard.service.queries.curves import width_of


@pytest.mark.parametrize("buckets", [2, 3, 400, 800])
def test_a_range_fits_wherever_it_begins_and_no_narrower_width_would(buckets: int) -> None:
    for count in (1, 2, 3, buckets, buckets + 1, 1000, 999_999, 1_000_000):
        width = width_of(count, buckets)

        def most(wide: int, steps: int = count) -> int:
            """Buckets of a range that begins with the last step of one, which is where it meets the most."""
            return (wide - 1 + steps - 1) // wide + 1

        assert most(width) <= buckets
        assert width == 1 or most(width // 2) > buckets
