"""Errors of a checkpoint. The message names a remedy."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be used. The message names a remedy."""

    code = "checkpoint_unusable"


class CheckpointCorrupt(CheckpointError):
    """A checkpoint whose content is not what was saved: an older one may be valid."""

    code = "checkpoint_corrupt"


class CheckpointAbsent(CheckpointError):
    """A folder without a complete checkpoint. One that was listed before has been removed since. `folder`: its name."""

    def __init__(self, message: str, folder: str = "") -> None:
        super().__init__(message)
        self.folder = folder


class CheckpointRemoved(CheckpointAbsent):
    """A checkpoint that is being removed to make room: a newer one exists."""

    code = "checkpoint_deleted"
