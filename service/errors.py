"""Every error of the service is a class with a stable code, a field and a remedy. HTTP is not used here."""

from typing import ClassVar


class ShardyardError(Exception):
    """An error that a user or operator can resolve. `field` is dotted from the spec's root: `train.layout.tensor`."""

    code: ClassVar[str] = "error"
    #: Seconds after which the same request may succeed; None: only after a user or operator has acted.
    retry_after_s: ClassVar[int | None] = None

    def __init__(self, message: str, *, field: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.remedy = remedy


class InvalidSpec(ShardyardError):
    """Parts of the spec contradict each other."""

    code = "invalid_spec"


class InvalidLayout(ShardyardError):
    """The model, the batch or the sequence length cannot be distributed over this layout."""

    code = "invalid_layout"


class MissingFile(ShardyardError):
    """A file that the spec names does not exist."""

    code = "missing_file"


class NotAFile(ShardyardError):
    """A path in the spec is a folder, a FIFO, a device or a socket but must be a file, or is a file but must be a folder."""

    code = "not_a_file"


class FileTooLarge(ShardyardError):
    """A file that the spec names is larger than files of its kind may be."""

    code = "file_too_large"


class TooManyFiles(ShardyardError):
    """A pattern of the spec matches too many files, or searches too many folders."""

    code = "too_many_files"


class FilesTooSlow(ShardyardError):
    """The files that the spec names could not be checked in time."""

    code = "files_too_slow"
    retry_after_s = 10

    def __init__(self, message: str, *, field: str | None = "train", remedy: str | None = None) -> None:
        default = "Try again later. Operators: check that the file system with these files answers."
        super().__init__(message, field=field, remedy=remedy or default)


class AdvisorBusy(ShardyardError):
    """The layout advisor has not answered in time."""

    code = "advisor_busy"
    retry_after_s = 10

    def __init__(self, message: str) -> None:
        remedy = (
            "Try again later. Fewer ranks, and layouts of which parts are given, such as tensor, are searched sooner."
        )
        super().__init__(message, field="train.layout", remedy=remedy)


class EmptyCorpus(ShardyardError):
    """The files that the spec names hold no text."""

    code = "empty_corpus"


class TooManyRanks(ShardyardError):
    """The layout needs more devices than the cluster has or can ever have."""

    code = "too_many_ranks"


class DoesNotFit(ShardyardError):
    """A rank of the job needs more memory than its device has."""

    code = "does_not_fit"


class UnknownCheckpoint(ShardyardError):
    """`resume_from` names neither a job with a complete checkpoint nor a complete checkpoint's folder."""

    code = "unknown_checkpoint"


class ResumeMismatch(ShardyardError):
    """The job cannot continue from the checkpoint with these data, or no step would be left to train."""

    code = "resume_mismatch"


class IdempotencyConflict(ShardyardError):
    """The idempotency key was used before, with another body."""

    code = "idempotency_conflict"


class JobNotFound(ShardyardError):
    """No job has this id or name."""

    code = "job_not_found"


class SweepNotFound(ShardyardError):
    """No sweep has this id or name."""

    code = "sweep_not_found"


class SweepEnded(ShardyardError):
    """The sweep has ended, and cannot be cancelled any more."""

    code = "sweep_ended"


class JobDeleted(ShardyardError):
    """The job was deleted. It can be restored until its removal begins."""

    code = "job_deleted"


class JobNotEnded(ShardyardError):
    """Only a job that has ended can be retried or deleted."""

    code = "job_not_ended"


class JobSucceeded(ShardyardError):
    """The job has succeeded, so there is nothing to retry."""

    code = "job_succeeded"


class JobPinned(ShardyardError):
    """The job is pinned, so it is not deleted."""

    code = "job_pinned"


class JobInUse(ShardyardError):
    """A job or a sweep that has not ended continues from a checkpoint of this job."""

    code = "job_in_use"


class NodeNotFound(ShardyardError):
    """No known node has this id or host."""

    code = "node_not_found"


class AmbiguousNode(ShardyardError):
    """Several nodes have this host, or an id that begins with this text."""

    code = "ambiguous_node"


class JobEnded(ShardyardError):
    """The job has ended, so it cannot be changed any more."""

    code = "job_ended"


class JobPausing(ShardyardError):
    """The job's gang still saves before the job is paused."""

    code = "job_pausing"


class FaultsDisabled(ShardyardError):
    """Fault injection is not enabled on this server."""

    code = "faults_disabled"

    def __init__(self) -> None:
        remedy = "If jobs may be harmed, set SHARDYARD_FAULT_INJECTION=true for the API and the dispatchers."
        super().__init__("Fault injection is not enabled on this server.", remedy=remedy)


class JobNotRunning(ShardyardError):
    """Faults, traces and profiles need a running job."""

    code = "job_not_running"


class InvalidFault(ShardyardError):
    """The fault does not fit the job, or its parts contradict each other."""

    code = "invalid_fault"


class TraceNotFound(ShardyardError):
    """The job has no such trace (any more), or the trace has no such step."""

    code = "trace_not_found"


class TraceNotPossible(ShardyardError):
    """The job has no steps that its trainers could record."""

    code = "trace_not_possible"


class TraceOpen(ShardyardError):
    """The job already has an open trace. It can record one trace at a time."""

    code = "trace_open"


class CheckpointNotFound(ShardyardError):
    """The job has no checkpoint at this position."""

    code = "checkpoint_not_found"


class CheckpointDeleted(ShardyardError):
    """The checkpoint was deleted, by retention or by a user."""

    code = "checkpoint_deleted"


class CheckpointCorrupt(ShardyardError):
    """Files of the checkpoint differ from what was saved."""

    code = "checkpoint_corrupt"


class OperationNotFound(ShardyardError):
    """The job has no such operation (any more)."""

    code = "operation_not_found"


class TooManyOperations(ShardyardError):
    """The job has too many operations that wait or run already."""

    code = "too_many_operations"


class ExportUnderway(ShardyardError):
    """The job itself exports this checkpoint before it ends."""

    code = "export_underway"


class ExportUnsupported(ShardyardError):
    """The checkpoint holds a program's own files, which are no model that Shardyard knows."""

    code = "export_unsupported"


class InvalidCode(ShardyardError):
    """An archive of code, or a part of it, is not what its manifest says, or holds something that is not accepted."""

    code = "invalid_code"


class CodeNotFound(ShardyardError):
    """No archive of code has this id (any more)."""

    code = "code_not_found"


class UnknownCode(ShardyardError):
    """A job names an archive of code that is not there, or not complete."""

    code = "unknown_code"


class CodeStorageFailed(ShardyardError):
    """The storage for code cannot be written or read."""

    code = "code_storage_failed"
    retry_after_s = 5


class ArtifactNotFound(ShardyardError):
    """A job has no such file."""

    code = "artifact_not_found"


class ArtifactStorageFailed(ShardyardError):
    """The storage of logged files cannot be read."""

    code = "artifact_storage_failed"
    retry_after_s = 5


class UnknownSecret(ShardyardError):
    """A job names a secret that is not stored."""

    code = "unknown_secret"


class TooManySecrets(ShardyardError):
    """No further secret can be stored."""

    code = "too_many_secrets"


class SecretsKeyUnusable(ShardyardError):
    """The key by which secrets are encrypted is missing, invalid, or another one than that of a stored secret."""

    code = "secrets_key_unusable"


class InvalidCursor(ShardyardError):
    """The cursor of a page or a stream was not issued by the service."""

    code = "invalid_cursor"


class InvalidDatabase(ShardyardError):
    """This version does not support the database's URL or schema."""

    code = "invalid_database"


class InvalidSetting(ShardyardError):
    """A `SHARDYARD_…` variable has an invalid value."""

    code = "invalid_setting"


class DataFolderUnusable(ShardyardError):
    """The data folder is not a folder, or cannot be made."""

    code = "data_folder_unusable"


class DataFolderOpen(ShardyardError):
    """Other users may read or change the data folder, and the control plane cannot remove their permissions."""

    code = "data_folder_open"


class ClusterError(ShardyardError):
    """The Ray cluster did not answer. The state of its gangs is unknown: they may still run."""

    code = "cluster_unreachable"


class GangLost(ShardyardError):
    """The cluster answers that this gang's supervisor does not exist (any more)."""

    code = "gang_lost"


class OtherVersion(GangLost):
    """The gang cannot be used, because its nodes and this control plane have different versions: one cannot read what the other writes."""

    code = "other_version"

    def __init__(self, what: str) -> None:
        super().__init__(what, remedy="Install the control plane's version on every node.")


class LeaseLost(ShardyardError):
    """Another dispatcher holds the job's lease now. This dispatcher's knowledge of the job is void."""

    code = "lease_lost"


class StateChanged(ShardyardError):
    """The job changed its state before this decision was stored. Read the job again."""

    code = "state_changed"


class IllegalMove(ShardyardError):
    """The table of states has no such move: a bug."""

    code = "illegal_move"
