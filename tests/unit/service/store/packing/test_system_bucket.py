"""A bucket of system metrics as one value."""

import pytest

from shardyard.service.store.packing.metric_curve import Bucket
from shardyard.service.store.packing.system_bucket import Unpacking, merge, names_of, packed


def bucket(*values: float) -> Bucket:
    return Bucket(len(values), min(values), max(values), sum(values))


def test_a_bucket_is_read_as_it_was_written() -> None:
    written = {"rank/0/cpu": bucket(1.0, 3.0), "node/n1/memory_used": bucket(2.0**40)}
    content = packed(written)
    assert names_of(content) == list(written)
    assert Unpacking().of(content) == written
    assert Unpacking(lambda names: names[:1]).of(content) == {"rank/0/cpu": bucket(1.0, 3.0)}


def test_numbers_keep_six_digits() -> None:
    assert Unpacking().of(packed({"a": bucket(123456.789)}))["a"].low == pytest.approx(123456.789, rel=1e-6)


def test_samples_are_added_to_those_that_are_there() -> None:
    one, other = {"a": bucket(1.0), "b": bucket(5.0)}, {"a": bucket(3.0), "c": bucket(7.0)}
    merge(one, other)
    assert one == {"a": bucket(1.0, 3.0), "b": bucket(5.0), "c": bucket(7.0)}
    merge(one, other)
    assert other == {"a": bucket(3.0), "c": bucket(7.0)}, "it is not changed"


def test_buckets_with_other_names_are_unpacked_in_turn() -> None:
    """A rank that had no sample in one bucket has one in the next."""
    written = [{"a": bucket(1.0)}, {"a": bucket(2.0), "b": bucket(3.0)}, {"b": bucket(4.0)}, {"b": bucket(5.0)}]
    unpacking = Unpacking({"b"}.intersection)
    assert [unpacking.of(packed(one)) for one in written] == [{}, *({"b": bucket(x)} for x in (3.0, 4.0, 5.0))]


def test_a_thousand_series_take_little_room() -> None:
    """Of 64 ranks on GPUs and their 8 nodes there are fewer than a thousand."""
    series = {f"rank/{rank}/{name}": bucket(float(rank)) for rank in range(100) for name in "abcdefghij"}
    assert len(packed(series)) < 10_000
