"""Errors of the files and pins of checkpoints, and of the model registry."""

from .errors import ShardyardError


class CheckpointFileNotFound(ShardyardError):
    """The checkpoint has no such file."""

    code = "checkpoint_file_not_found"


class CheckpointStorageFailed(ShardyardError):
    """The storage of checkpoints cannot be read by the API."""

    code = "checkpoint_storage_failed"
    retry_after_s = 5


class JobInModels(ShardyardError):
    """A version of a model comes from the job, so it is not deleted."""

    code = "job_in_models"


class ModelNotFound(ShardyardError):
    """No model has this name."""

    code = "model_not_found"


class VersionNotFound(ShardyardError):
    """The model has no version of this number or alias."""

    code = "version_not_found"


class VersionAliased(ShardyardError):
    """Aliases name the version, so it is not deleted."""

    code = "version_aliased"


class AliasMoved(ShardyardError):
    """The alias names another version than the request expects."""

    code = "alias_moved"


class InvalidAlias(ShardyardError):
    """This cannot be the name of an alias, or the model has too many."""

    code = "invalid_alias"


class CheckpointInModels(ShardyardError):
    """A version of a model names the checkpoint, so it stays pinned."""

    code = "checkpoint_in_models"


class PinUnderway(ShardyardError):
    """The checkpoint is being pinned or unpinned."""

    code = "pin_underway"
    retry_after_s = 5
