"""The errors of a database that cannot serve. HTTP is not used here; `store/driver_errors.py` finds the one that a driver means."""

from typing import ClassVar

from .errors import ShardyardError


class DatabaseError(ShardyardError):
    """The database cannot serve, for a reason that has no subclass.

    If a transaction was being committed, it is unknown whether it is stored. `detail` has the driver's own words, which may contain
    hosts, users and paths: for logs and terminals, never for answers.
    """

    code = "database_failed"
    retry_after_s: ClassVar[int | None] = 5
    says: ClassVar[str] = "The database failed."
    cure: ClassVar[str] = "The server's log has the driver's message. Check the database's own log and its disk."

    def __init__(self, detail: str = "", *, says: str | None = None, cure: str | None = None) -> None:
        super().__init__(says or self.says, remedy=cure or self.cure)
        self.detail = detail


class DatabaseUnreachable(DatabaseError):
    """No server answers at the database's address, or the connection broke."""

    code = "database_unreachable"
    retry_after_s = 2
    says = "The database does not answer."
    cure = "Try again soon; what is stored is kept. Operators: check that the server of SHARDYARD_DATABASE_URL runs and can be reached."


class DatabaseBusy(DatabaseError):
    """The database has no free connection, or another transaction held it up for too long."""

    code = "database_busy"
    retry_after_s = 2
    says = "The database is busy: it has no free connection, or took too long."
    cure = "Try again soon. Operators: raise its limit of connections, or find out which transaction holds it up."


class DatabaseReadOnly(DatabaseError):
    """The database can be read but not written."""

    code = "database_read_only"
    retry_after_s = 10
    says = "The database is read-only, so nothing can be stored."
    cure = (
        "Operators: point SHARDYARD_DATABASE_URL at the primary, not a replica, unset default_transaction_read_only,"
        " or give this user write access to the SQLite file and its folder."
    )


class DatabaseFull(DatabaseError):
    """The disk of the database is full."""

    code = "database_full"
    retry_after_s = 10
    says = "The disk of the database is full, so nothing can be stored."
    cure = "Operators: make room on it. What is stored is kept, and jobs continue by themselves afterwards."


class DatabaseMissing(DatabaseError):
    """There is no database of this name, or no file at this path."""

    code = "database_missing"
    retry_after_s = None
    says = "The database does not exist."
    cure = "Operators: check that SHARDYARD_DATABASE_URL names the right database. To create it, run: shardyard migrate"


class DatabaseDenied(DatabaseError):
    """The database refuses this user, its password, or its statement."""

    code = "database_denied"
    retry_after_s = None
    says = "The database refuses its user."
    cure = "Operators: check the user and password of SHARDYARD_DATABASE_URL, and the user's rights on the database."


class DatabaseCorrupt(DatabaseError):
    """The database's file is corrupt, or is not a database."""

    code = "database_corrupt"
    retry_after_s = None
    says = "The database is corrupt, or is not a database."
    cure = "Operators: stop the control plane and restore the database from a backup, or name another file in SHARDYARD_DATABASE_URL."


class SchemaMissing(DatabaseError):
    """The database has no tables yet."""

    code = "schema_missing"
    says = "The database has no schema yet."
    cure = "Operators: create its tables with: shardyard migrate"


class SchemaTooOld(DatabaseError):
    """The database's schema is older than this version needs."""

    code = "schema_too_old"
    cure = "Operators: bring it up to date with: shardyard migrate"


class SchemaTooNew(DatabaseError):
    """The database's schema is newer than this version supports."""

    code = "schema_too_new"
    cure = "Operators: install the Shardyard version that migrated it, or a newer one, on every machine that runs an API or a dispatcher."


class SchemaUnknown(DatabaseError):
    """The database has a schema of another program."""

    code = "schema_unknown"
    retry_after_s = None
    cure = "Operators: name a database of Shardyard's own in SHARDYARD_DATABASE_URL."


class SchemaDamaged(DatabaseError):
    """A table or column is missing though the schema's revision is the right one."""

    code = "schema_damaged"
    retry_after_s = None
    says = "The database lacks a table or column that its schema's revision has."
    cure = "Operators: its tables were changed by hand; restore them, or the database from a backup."
