"""Ranges of bytes as RFC 9110 has them."""

import pytest

from shardyard.api.http.byte_range import Unsatisfiable, requested_range


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (None, None),
        ("bytes=0-3", (0, 4)),
        ("bytes=2-", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-99", (0, 10)),
        ("bytes=8-99", (8, 10)),
        ("bytes=5-4", None),
        ("bytes=0-1,4-5", None),
        ("items=0-1", None),
        ("bytes=-", None),
        ("bytes=" + "9" * 19 + "-", None),
    ],
)
def test_one_range_is_followed_and_others_get_the_whole_file(header: str | None, found: tuple[int, int] | None) -> None:
    assert requested_range(header, None, '"x"', 10) == found


def test_a_range_after_the_end_is_refused_and_another_file_is_sent_whole() -> None:
    for header, size in (("bytes=10-", 10), ("bytes=0-", 0), ("bytes=-0", 10)):
        with pytest.raises(Unsatisfiable):
            requested_range(header, None, '"x"', size)
    assert requested_range("bytes=2-", '"y"', '"x"', 10) is None and requested_range("bytes=2-", '"x"', '"x"', 10) == (
        2,
        10,
    )
