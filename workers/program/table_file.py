"""A table as CSV (RFC 4180), from rows or a DataFrame. Bounded: a longer table is refused, so that none is cut without a word.

Imports none of the libraries whose values it takes.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

#: Maximum number of rows, of columns, and of bytes.
MOST_ROWS: Final = 100_000
MOST_COLUMNS: Final = 1000
MOST_BYTES: Final = 64 << 20


def content(columns: Any, rows: Any = None) -> bytes:
    """The table's CSV in UTF-8. Raises ValueError, TypeError for what is no table, or a larger one."""
    names, found = _of_frame(columns) if rows is None else (columns, rows)
    if isinstance(names, str) or not isinstance(names, Iterable) or not isinstance(found, Iterable):
        raise TypeError("a table has a list of columns, and rows of as many values; or give a DataFrame")
    head = [str(name) for name in names]
    if not 0 < len(head) <= MOST_COLUMNS:
        raise ValueError(f"a table has 1 to {MOST_COLUMNS:,} columns, and not {len(head):,}")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(head)
    for number, row in enumerate(found, 1):
        if number > MOST_ROWS or text.seek(0, io.SEEK_CUR) > MOST_BYTES:
            raise ValueError(f"a table has at most {MOST_ROWS:,} rows and {MOST_BYTES >> 20} MiB: log a part of it")
        if isinstance(row, str | bytes | Mapping):
            raise TypeError(f"row {number} is a {type(row).__name__}: a row is a list of values, one for each column")
        values = list(row)
        if len(values) != len(head):
            raise ValueError(f"row {number} has {len(values):,} values for {len(head):,} columns")
        writer.writerow(values)
    return text.getvalue().encode("utf-8", "replace")


def _of_frame(frame: Any) -> tuple[Sequence[Any], Iterable[Any]]:
    """Columns and rows of a DataFrame of pandas or polars. Raises TypeError."""
    if hasattr(frame, "itertuples"):
        return list(frame.columns), frame.itertuples(index=False, name=None)
    if hasattr(frame, "iter_rows"):
        return list(frame.columns), frame.iter_rows()
    raise TypeError(f"{type(frame).__name__} is no DataFrame: give columns and rows")
