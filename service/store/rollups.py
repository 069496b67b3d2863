"""SQL of the table `rollups`: the extremes and the sum of each number over every 32, 1,024 and 32,768 steps, exact as the steps are.

When a step is stored, its buckets are computed again: the lowest level's from the steps, the others' from the level below. So a
step that a later attempt replaced is removed from them too, and a batch costs some dozens of rows however long the job is. A range
of any length is then read in about as many rows as are requested, times 32 at most.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    FromClause,
    Select,
    String,
    bindparam,
    case,
    func,
    literal,
    select,
)
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .dialect import insert_into
from .tables import SERIES, rollups, steps

#: Steps of a bucket, level by level; each divides the next.
WIDTHS: Final = (32, 1024, 32_768)
#: Numbers above this are left out of sums, which must not overflow: PostgreSQL reports that as an error.
_TAME: Final = 1e290
_KEY = ("job_id", "width", "bucket")


async def extend(tx: AsyncConnection, job_id: str, low: int, high: int) -> None:
    """Compute the buckets of steps `low` to `high`, which have just been stored. Call only with the job's row locked."""
    for below, width in zip((1, *WIDTHS), WIDTHS, strict=False):
        places = {"first": place(low, width), "last": place(high, width)}
        await tx.execute(_extension(tx.dialect.name, below, width), {"of_job": job_id, **places})


@cache
def _extension(dialect: str, below: int, width: int) -> Any:
    """Computes buckets `first` to `last` of `of_job`. Built once: SQLAlchemy takes longer to build it than SQLite to run it."""
    job: BindParameter[str] = bindparam("of_job", type_=String)
    rows = _of_range(job, below, width, bindparam("first", type_=BigInteger), bindparam("last", type_=BigInteger))
    shown: list[ColumnElement[Any]] = [job, literal(width), *rows.subquery().c]
    columns = ["job_id", "width", "bucket", *_columns()]
    values = select(*shown)
    statement = insert_into(dialect, rollups).from_select(
        columns, values.where(literal(True))
    )  # SQLite needs a WHERE before ON CONFLICT
    made = {name: statement.excluded[name] for name in _columns()}
    return statement.on_conflict_do_update(index_elements=list(_KEY), set_=made)


async def read(
    tx: AsyncConnection, job_id: str, names: Sequence[str], width: int, low: int, high: int
) -> Sequence[RowMapping]:
    """Buckets of `width` steps (a power of two) that contain some of steps `low` to `high`, in order.

    Columns: `place` (bucket i has the steps from i · width + 1 on) and, by name, `_low`, `_high`, `_sum` and `_count`.
    """
    below = max((level for level in (1, *WIDTHS) if level <= width), default=1)
    statement = _of_range(job_id, below, width, place(low, width), place(high, width), names)
    return (await tx.execute(statement.order_by("place"))).mappings().all()


def place(step: int, width: int) -> int:
    """The bucket of a step; steps count from 1."""
    return max(0, step - 1) // width


def _of_range(
    job_id: str | ColumnElement[str],
    below: int,
    width: int,
    first: int | ColumnElement[int],
    last: int | ColumnElement[int],
    names: Sequence[str] = SERIES,
) -> Select[*tuple[Any, ...]]:
    """Buckets `first` to `last` of `width` steps, computed from those of `below` steps, or from the steps if that is 1."""
    source: FromClause = steps if below == 1 else rollups
    number = steps.c.step - 1 if below == 1 else rollups.c.bucket
    many = width // below
    inside = [source.c.job_id == job_id, number.between(first * many, (last + 1) * many - 1)]
    if below == 1:  # in the form of the primary key, so that the range is read by its index
        inside[1] = steps.c.step.between(first * many + 1, (last + 1) * many)
    else:
        inside.append(rollups.c.width == below)
    values = [value for name in names for value in _values(source, name, below == 1)]
    return select((number // literal(many)).label("place"), *values).where(*inside).group_by("place")


def _values(source: FromClause, name: str, single: bool) -> list[ColumnElement[Any]]:
    made: tuple[ColumnElement[Any], ...]
    if single:
        value = source.c[name]
        tame = case((func.abs(value) < _TAME, value))
        made = (func.min(value), func.max(value), func.sum(tame), func.count(tame))
    else:
        low, high, total, count = (source.c[f"{name}_{end}"] for end in _ENDS)
        made = (func.min(low), func.max(high), func.sum(total), func.sum(count))
    return [value.label(f"{name}_{end}") for value, end in zip(made, _ENDS, strict=True)]


_ENDS = ("low", "high", "sum", "count")


def _columns() -> list[str]:
    return [f"{name}_{end}" for name in SERIES for end in _ENDS]
