"""What can be wrong with a checkpoint; the message says what to do about it."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, with what to do about it."""

    code = "checkpoint_unusable"


class Damaged(CheckpointError):
    """A checkpoint whose content is not what was saved: an older one may be whole."""

    code = "checkpoint_damaged"


class Unreachable(CheckpointError, OSError):
    """Storage that gives no answer, or refuses: nothing is known of what it holds. `passing`: it may answer when asked again."""

    code = "storage_unreachable"
    passing = True

    @property
    def facts(self) -> dict[str, str]:
        """What a gang that ends by it says: it is no fault of the training code where it may pass."""
        return {"cause": self.code} if self.passing else {}


class Refused(Unreachable):
    """Storage that knows us not, or does not exist: asking again does not help."""

    passing = False
