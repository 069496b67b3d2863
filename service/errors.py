"""Every error of the service is a type with a stable code, a field, and a remedy. HTTP is not known here."""

from typing import ClassVar


class ShardyardError(Exception):
    """Something that a user or operator can act on. `field` is dotted from the spec's root: `train.layout.tensor`."""

    code: ClassVar[str] = "error"
    #: Seconds after which the same request may succeed; None: not before somebody acts.
    retry_after_s: ClassVar[int | None] = None

    def __init__(self, message: str, *, field: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.remedy = remedy


class InvalidSpec(ShardyardError):
    """The spec's parts do not go together."""

    code = "invalid_spec"


class InvalidLayout(ShardyardError):
    """The model, the batch or the sequence length cannot be spread over this layout."""

    code = "invalid_layout"


class MissingFile(ShardyardError):
    """A file that the spec names does not exist."""

    code = "missing_file"


class NotAFile(ShardyardError):
    """A name of the spec stands for a folder, a FIFO, a device or a socket, where a file is needed, or for a file, where a folder is."""

    code = "not_a_file"


class FileTooLarge(ShardyardError):
    """A file that the spec names is larger than any of its kind."""

    code = "file_too_large"


class TooManyFiles(ShardyardError):
    """A pattern of the spec matches too many files, or goes through too many folders."""

    code = "too_many_files"


class FilesTooSlow(ShardyardError):
    """The files that the spec names could not be looked at in time."""

    code = "files_too_slow"
    retry_after_s = 10

    def __init__(self, message: str, *, field: str | None = "train", remedy: str | None = None) -> None:
        default = "Try again later. Operators: see whether the file system on which they lie answers."
        super().__init__(message, field=field, remedy=remedy or default)


class EmptyCorpus(ShardyardError):
    """The files that the spec names hold no text."""

    code = "empty_corpus"


class TooManyRanks(ShardyardError):
    """The layout needs more devices than the cluster has or can ever have."""

    code = "too_many_ranks"


class UnknownCheckpoint(ShardyardError):
    """`resume_from` names neither a job with a complete checkpoint nor a complete checkpoint's folder."""

    code = "unknown_checkpoint"


class ResumeMismatch(ShardyardError):
    """A checkpoint cannot be gone on from with these data, or leaves no step to train."""

    code = "resume_mismatch"


class IdempotencyConflict(ShardyardError):
    """The idempotency key was used before, for another body."""

    code = "idempotency_conflict"


class JobNotFound(ShardyardError):
    """No job has this id or name."""

    code = "job_not_found"


class NodeNotFound(ShardyardError):
    """No known node has this id or host."""

    code = "node_not_found"


class AmbiguousNode(ShardyardError):
    """Several nodes have this host, or an id that begins so."""

    code = "ambiguous_node"


class JobEnded(ShardyardError):
    """The job has ended, so it cannot be changed any more."""

    code = "job_ended"


class FaultsDisabled(ShardyardError):
    """This server lets nobody strike faults at jobs."""

    code = "faults_disabled"

    def __init__(self) -> None:
        remedy = "Where jobs may be harmed, set SHARDYARD_FAULT_INJECTION=true for the API and the dispatchers."
        super().__init__("Fault injection is not enabled on this server.", remedy=remedy)


class JobNotRunning(ShardyardError):
    """Faults strike and traces record jobs that are running, and no others."""

    code = "job_not_running"


class InvalidFault(ShardyardError):
    """The fault does not fit the job, or its parts do not go together."""

    code = "invalid_fault"


class TraceNotFound(ShardyardError):
    """The job has no such trace (any more), or the trace no such step."""

    code = "trace_not_found"


class TraceOpen(ShardyardError):
    """A job's steps are recorded for one trace at a time."""

    code = "trace_open"


class CheckpointNotFound(ShardyardError):
    """The job has told of no checkpoint at this place of its story."""

    code = "checkpoint_not_found"


class CheckpointGone(ShardyardError):
    """The checkpoint was removed, to make room or by hand."""

    code = "checkpoint_removed"


class CheckpointDamaged(ShardyardError):
    """Files of the checkpoint are not as they were saved."""

    code = "checkpoint_damaged"


class OperationNotFound(ShardyardError):
    """The job has no such operation (any more)."""

    code = "operation_not_found"


class TooManyOperations(ShardyardError):
    """So many operations of one job wait or run already."""

    code = "too_many_operations"


class ExportUnderway(ShardyardError):
    """The job exports this checkpoint itself, before it ends."""

    code = "export_underway"


class InvalidCursor(ShardyardError):
    """A page's or a stream's cursor is not one that the service gave out."""

    code = "invalid_cursor"


class InvalidDatabase(ShardyardError):
    """The database's URL or schema is not one that this version can use."""

    code = "invalid_database"


class InvalidSetting(ShardyardError):
    """A `SHARDYARD_…` variable has a value that it cannot have."""

    code = "invalid_setting"


class DataFolderUnusable(ShardyardError):
    """The data folder is no folder, or cannot be made."""

    code = "data_folder_unusable"


class DataFolderOpen(ShardyardError):
    """Other users may read or change the data folder, and its permissions cannot be taken from them."""

    code = "data_folder_open"


class DatabaseError(ShardyardError):
    """The database cannot serve. This class is for what none of its subclasses names.

    Whether a transaction that was being committed is stored is not known. `detail` has the driver's own words, which may name hosts,
    users and paths: for logs and terminals, never for answers.
    """

    code = "database_failed"
    retry_after_s: ClassVar[int | None] = 5
    says: ClassVar[str] = "The database failed."
    cure: ClassVar[str] = "The server's log has the driver's words. Look at the database's own log and its disk."

    def __init__(self, detail: str = "", *, says: str | None = None, cure: str | None = None) -> None:
        super().__init__(says or self.says, remedy=cure or self.cure)
        self.detail = detail


class DatabaseUnreachable(DatabaseError):
    """Nothing answers at the database's address, or the connection broke."""

    code = "database_unreachable"
    retry_after_s = 2
    says = "The database does not answer."
    cure = "Try again soon; what is stored is kept. Operators: see whether the server of SHARDYARD_DATABASE_URL runs and is reached."


class DatabaseBusy(DatabaseError):
    """The database has no connection to give, or another transaction held it up for too long."""

    code = "database_busy"
    retry_after_s = 2
    says = "The database is busy: it has no connection to give, or took too long."
    cure = "Try again soon. Operators: raise its limit of connections, or see what holds it up."


class DatabaseReadOnly(DatabaseError):
    """The database can be read and not written."""

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
    cure = "Operators: make room on it. What is stored is kept, and jobs go on by themselves afterwards."


class DatabaseMissing(DatabaseError):
    """There is no database of this name, or no file at this path."""

    code = "database_missing"
    retry_after_s = None
    says = "The database does not exist."
    cure = "Operators: see whether SHARDYARD_DATABASE_URL names the right one. A new one is created with: shardyard migrate"


class DatabaseDenied(DatabaseError):
    """The database refuses this user, its password, or what it tried."""

    code = "database_denied"
    retry_after_s = None
    says = "The database refuses its user."
    cure = "Operators: see whether the user and password of SHARDYARD_DATABASE_URL are right, and its rights on the database."


class DatabaseCorrupt(DatabaseError):
    """The database's file is damaged, or is no database."""

    code = "database_corrupt"
    retry_after_s = None
    says = "The database is damaged, or is not a database."
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
    """The database's schema is newer than this version knows."""

    code = "schema_too_new"
    cure = "Operators: install the Shardyard version that migrated it, or a newer one, wherever an API or a dispatcher runs."


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
    cure = "Operators: somebody changed its tables by hand; restore them, or the database from a backup."


class TooManySearches(ShardyardError):
    """This process searches as many logs as it may."""

    code = "too_many_searches"
    retry_after_s = 2

    def __init__(self) -> None:
        super().__init__("Too many logs are being searched.", remedy="Try again in a few seconds.")


class SearchTooSlow(ShardyardError):
    """The database did not get through a small part of a log in time."""

    code = "search_too_slow"
    retry_after_s = 10

    def __init__(self) -> None:
        remedy = "Try again later, or search for a shorter text."
        super().__init__("The database did not get through any part of the log in time.", remedy=remedy)


class ClusterError(ShardyardError):
    """The Ray cluster did not answer. Nothing is known about the gangs on it: they may live on."""

    code = "cluster_unreachable"


class GangLost(ShardyardError):
    """The cluster answers and says that this gang's supervisor does not exist (any more)."""

    code = "gang_lost"


class OtherVersion(ShardyardError):
    """The gang sends events of another version: it was started by another version of the service, or its nodes have one installed."""

    code = "other_version"

    def __init__(self, gang: str, found: int, known: int) -> None:
        message = f"{gang} sends events of version {found}; this service reads version {known}."
        super().__init__(message, remedy="Install the same version on every node.")


class LeaseLost(ShardyardError):
    """Another dispatcher holds the job now; whatever this one knew of it is void."""

    code = "lease_lost"


class StateChanged(ShardyardError):
    """The job moved on while this was being decided; look again."""

    code = "state_changed"


class IllegalMove(ShardyardError):
    """The table of states has no such move: a bug."""

    code = "illegal_move"
