"""A bucket of system metrics as one value."""

import pytest

from shardyard.service.store.packing.metric_curve import Bucket
from shardyard.service.store.packing.system_bucket import merged, names_of, packed, unpacked


def bucket(*values: float) -> Bucket:
    return Bucket(len(values), min(values), max(values), sum(values))


def test_a_bucket_is_read_as_it_was_written() -> None:
    written = {"rank/0/cpu": bucket(1.0, 3.0), "node/n1/memory_used": bucket(2.0**40)}
    content = packed(written)
    assert names_of(content) == list(written)
    assert unpacked(content) == written
    assert unpacked(content, lambda name: name.startswith("rank/")) == {"rank/0/cpu": bucket(1.0, 3.0)}


def test_numbers_keep_six_digits() -> None:
    assert unpacked(packed({"a": bucket(123456.789)}))["a"].low == pytest.approx(123456.789, rel=1e-6)


def test_samples_are_added_to_those_that_are_there() -> None:
    one, other = {"a": bucket(1.0), "b": bucket(5.0)}, {"a": bucket(3.0), "c": bucket(7.0)}
    assert merged(one, other) == {"a": bucket(1.0, 3.0), "b": bucket(5.0), "c": bucket(7.0)}
    assert one == {"a": bucket(1.0), "b": bucket(5.0)}, "it is not changed"


def test_a_thousand_series_take_little_room() -> None:
    """Of 64 ranks on GPUs and their 8 nodes there are fewer than a thousand."""
    series = {f"rank/{rank}/{name}": bucket(float(rank)) for rank in range(100) for name in "abcdefghij"}
    assert len(packed(series)) < 10_000
