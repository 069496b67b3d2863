"""The URL of the database: which ones serve, what is shown of one, and how psycopg prepares statements."""

from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from .errors import InvalidDatabase

#: Options of libpq that are secrets.
_SECRET: Final = ("password", "sslpassword")
#: psycopg's option: after how many runs of a statement the server is to keep it prepared; `none`: never.
_PREPARE: Final = "prepare_threshold"
_FIELD: Final = "SHARDYARD_DATABASE_URL"


def parse(url: str) -> URL:
    """The URL of one of the two databases that pass the same tests. Raises InvalidDatabase for any other."""
    remedy = "Use sqlite+aiosqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/NAME."
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is not a number
        raise InvalidDatabase("The database URL cannot be read.", field=_FIELD, remedy=remedy) from None
    if parsed.drivername == "postgresql+psycopg":
        return parsed
    if parsed.drivername != "sqlite+aiosqlite":
        says = f"{parsed.drivername} is not a supported database."
    elif parsed.database in (None, "", ":memory:") or "uri" in parsed.query:
        says = "A SQLite database must be a file, named by its path."
    elif "\0" in parsed.database or Path(parsed.database).is_dir():
        says = f"{parsed.database!r} is not a file, and a SQLite database must be one."
    else:
        return parsed
    raise InvalidDatabase(says, field=_FIELD, remedy=remedy)


def shown(url: URL) -> str:
    """The URL without its secrets, for logs and messages."""
    return url.difference_update_query(_SECRET).render_as_string(hide_password=True)


def prepared(url: URL) -> tuple[URL, dict[str, int | None]]:
    """The URL without `prepare_threshold`, and that as psycopg's argument.

    A pooler between this process and the server may give each transaction another connection, which has not prepared the statement.
    """
    given = url.query.get(_PREPARE)
    if given is None:
        return url, {}
    rest = url.difference_update_query([_PREPARE])
    if given == "none":
        return rest, {_PREPARE: None}
    if isinstance(given, str) and given.isdecimal():
        return rest, {_PREPARE: int(given)}
    remedy = "Use prepare_threshold=none where a pooler does not know prepared statements, or leave it out."
    raise InvalidDatabase(f"{_PREPARE} is neither a number nor `none`.", field=_FIELD, remedy=remedy)
