"""Every error of the service is a type with a stable code, a field, and a remedy. HTTP is not known here."""

from typing import ClassVar


class ShardyardError(Exception):
    """Something that a user or operator can act on. `field` is dotted from the spec's root: `train.layout.tensor`."""

    code: ClassVar[str] = "error"

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


class EmptyCorpus(ShardyardError):
    """The files that the spec names hold no text."""

    code = "empty_corpus"


class TooManyRanks(ShardyardError):
    """The layout needs more devices than the cluster has or can ever have."""

    code = "too_many_ranks"


class UnknownCheckpoint(ShardyardError):
    """`resume_from` names neither a job with a complete checkpoint nor a complete checkpoint's folder."""

    code = "unknown_checkpoint"


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


class ClusterError(ShardyardError):
    """The Ray cluster did not answer. Nothing is known about the gangs on it: they may live on."""

    code = "cluster_unreachable"


class GangLost(ShardyardError):
    """The cluster answers and says that this gang's supervisor does not exist (any more)."""

    code = "gang_lost"


class LeaseLost(ShardyardError):
    """Another dispatcher holds the job now; whatever this one knew of it is void."""

    code = "lease_lost"


class StateChanged(ShardyardError):
    """The job moved on while this was being decided; look again."""

    code = "state_changed"


class IllegalMove(ShardyardError):
    """The table of states has no such move: a bug."""

    code = "illegal_move"
