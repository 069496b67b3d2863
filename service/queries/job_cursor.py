"""Cursors of lists of jobs: the place of a page's last job in the order of the list."""

import hashlib
import math
import re
from typing import Final

from sqlalchemy.engine import RowMapping

from ..errors import InvalidCursor
from ..schemas.job_order import Order, Sort
from ..states import State
from ..store import numbered_jobs
from ..store.jobs import Place
from ..store.numbered_jobs import Numbering

#: Seconds for which a list in the order of a number can be read on: all that ended since its first page is sorted again for each page.
LIFE_S: Final = 86_400.0

_ID: Final = r"(?P<id>job-[0-9a-z]{26})"
_NUMBER: Final = r"-?\d{1,20}(\.\d{1,20})?(e[+-]\d{1,3})?"
_PLACES: Final = {
    Order.NAME: re.compile(rf"(?P<value>[a-z0-9-]{{1,63}})/{_ID}", re.ASCII),
    Order.STATE: re.compile(rf"(?P<value>{'|'.join(State)})/{_ID}"),
    **dict.fromkeys((Order.NEWEST, Order.OLDEST), re.compile(_ID)),
}
#: Of which order it is, as of when, and the number.
_NUMBERED: Final = re.compile(rf"(?P<sort>[0-9a-f]{{8}})/(?P<at>{_NUMBER})/(?P<number>{_NUMBER}|none)/{_ID}", re.ASCII)


def place(cursor: str, sort: Sort) -> Place:
    """The place in an order by a text. Raises InvalidCursor."""
    found = _PLACES[sort.order].fullmatch(cursor)
    if found is None:
        raise _invalid(cursor)
    return Place(**found.groupdict())


def of_row(row: RowMapping, sort: Sort) -> str:
    """The cursor after a row of `jobs` in an order by a text."""
    value = {Order.NAME: row["name"], Order.STATE: row["state"]}.get(sort.order)
    return str(row["id"]) if value is None else f"{value}/{row['id']}"


def numbered(cursor: str, sort: Sort, now: float) -> tuple[Numbering, numbered_jobs.Place]:
    """The list's order with the time of its first page, and the place in it. Raises InvalidCursor."""
    found = _NUMBERED.fullmatch(cursor)
    if found is None or found["sort"] != _digest(sort):
        raise _invalid(cursor)
    at, number = float(found["at"]), None if found["number"] == "none" else float(found["number"])
    # A later time than any clock has: device times up to it may overflow in the database.
    if at > now + LIFE_S or not math.isfinite(number or 0.0):
        raise _invalid(cursor)
    if at < now - LIFE_S:
        remedy = "Read the list again from its first page."
        raise InvalidCursor("The first page of this list was read more than a day ago.", field="cursor", remedy=remedy)
    return Numbering(sort, at), numbered_jobs.Place(found["id"], number)


def of_number(last: numbered_jobs.Place, numbering: Numbering) -> str:
    """The cursor after a job in the order of a number."""
    return (
        f"{_digest(numbering.sort)}/{numbering.at!r}/{'none' if last.number is None else repr(last.number)}/{last.id}"
    )


def _digest(sort: Sort) -> str:
    """Short for any name of a metric: a cursor is not valid in another order."""
    text = f"{sort.order} {sort.descending} {sort.metric}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _invalid(cursor: str) -> InvalidCursor:
    remedy = "Use `next` of the page before, in the same order."
    return InvalidCursor(f"{cursor[:80]!r} is not a cursor.", field="cursor", remedy=remedy)
