"""What can be wrong with a checkpoint; the message says what to do about it."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, with what to do about it."""

    code = "checkpoint_unusable"


class CheckpointCorrupt(CheckpointError):
    """A checkpoint whose content is not what was saved: an older one may be valid."""

    code = "checkpoint_damaged"
