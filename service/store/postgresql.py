"""PostgreSQL's connections, and how long a transaction waits there for another process, or for one that has vanished.

A process whose machine loses its power or network leaves its locks to the server, which by default keeps them for two hours.
Each transaction sets its limits itself: a pooler may refuse settings of a session, or pass them on to other clients.
"""

import re
from functools import partial
from typing import Final

from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, ExceptionContext
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from ..database_url import prepared
from ..errors import InvalidDatabase

#: Options of libpq, after which a server that has vanished counts as unreachable: half a minute.
_CONNECTION: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
#: Settings by which the server notices within half a minute that a client has vanished, and ends its transaction.
_KEEPALIVES: Final = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
#: SQLSTATE of a write where only reads are allowed, such as on a standby.
_READ_ONLY: Final = "25006"
#: How long a statement waits for a lock, and a transaction for its next statement.
LIMITS: Final = {"lock_timeout": "20s", "idle_in_transaction_session_timeout": "60s"}
#: Lifts the limits of a transaction: those of the server, the database, the role and the URL. The last is of PostgreSQL 17 and later.
_NO_LIMITS: Final = (
    "SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN "
    "('lock_timeout', 'idle_in_transaction_session_timeout', 'statement_timeout', 'transaction_timeout')"
)


def engine(url: URL, connections: int, more: int = 0, *, limited: bool = True) -> AsyncEngine:
    """An engine of at most `connections` and, under load, `more`. Raises InvalidDatabase.

    `limited`: its transactions wait only shortly for locks; otherwise they take as long as they need, whatever sets a limit.
    All other settings of the URL win: options of libpq, and in `options` the server's.
    """
    rest, arguments = prepared(url)
    options = {name: value for name, value in _CONNECTION.items() if name not in rest.query}
    try:
        made = create_async_engine(
            rest, pool_size=connections, max_overflow=more, pool_pre_ping=True, connect_args={**options, **arguments}
        )
    except ModuleNotFoundError as error:
        says = f"PostgreSQL needs the package {error.name}, which is not installed."
        raise InvalidDatabase(
            says, field="SHARDYARD_DATABASE_URL", remedy="pip install 'shardyard[postgres]'"
        ) from None
    event.listen(made.sync_engine, "handle_error", _replace)
    first = [_settings(rest, _KEEPALIVES | LIMITS)] if limited else [_settings(rest, _KEEPALIVES), _NO_LIMITS]
    for statement in filter(None, first):
        event.listen(made.sync_engine, "begin", partial(_begin, statement))
    return made


def _settings(url: URL, wanted: dict[str, str]) -> str:
    """The statement that sets, for one transaction, what the URL's `options` do not; empty if they set all."""
    given = str(url.query.get("options", ""))
    missing = (name for name in wanted if not re.search(rf"(-c *|--){name.replace('_', '[-_]')} *=", given))
    calls = ", ".join(f"set_config('{name}', '{wanted[name]}', true)" for name in missing)
    return f"SELECT {calls}" if calls else ""


def _begin(statement: str, connection: Connection) -> None:
    connection.exec_driver_sql(statement)


def _replace(context: ExceptionContext) -> None:
    """Have the pool replace a connection that fails its ping, whatever the error, and all connections if one may only read.

    A task that is cancelled at an unlucky moment leaves a connection in the midst of a query, which psycopg reports as a misuse. After a
    failover, connections to the server that was the primary answer pings, and its name may lead to another server by now.
    """
    if context.is_pre_ping or getattr(context.original_exception, "sqlstate", None) == _READ_ONLY:
        context.is_disconnect = True
