"""Cursors of lists of jobs in the order of a number."""

import pytest

from shardyard.service.errors import InvalidCursor
from shardyard.service.queries.job_cursor import LIFE_S, numbered, of_number
from shardyard.service.schemas.job_order import Order, Sort
from shardyard.service.store.numbered_jobs import Numbering, Place

NOW = 1_795_000_000.25
SORT = Sort(Order.DEVICE_TIME, descending=True)
ID = f"job-{'a' * 26}"


@pytest.mark.parametrize("number", [None, 0.0, -0.0, 12.5, -1e-300, 1.5e300, 123456789012345678.0])
def test_a_cursor_is_read_as_it_was_written(number: float | None) -> None:
    numbering, place = Numbering(SORT, NOW), Place(ID, number)
    assert numbered(of_number(place, numbering), SORT, NOW + 1.0) == (numbering, place)


@pytest.mark.parametrize("at", [NOW - LIFE_S - 1.0, NOW + LIFE_S + 1.0, 1.7e308, -1.7e308])
def test_a_time_that_no_first_page_has_is_refused(at: float) -> None:
    """Device times up to the largest numbers overflow in the database."""
    with pytest.raises(InvalidCursor):
        numbered(of_number(Place(ID, 1.0), Numbering(SORT, at)), SORT, NOW)
