"""Errors of storage, after which its content is unknown. The message names a remedy."""


class StorageError(OSError):
    """Storage that does not answer, or refuses. `passing`: a later try may succeed."""

    code = "storage_unreachable"
    passing: bool = False

    @property
    def facts(self) -> dict[str, str]:
        """The cause of the gang's end, if a later try may succeed: then the training code is not at fault."""
        return {"cause": self.code} if self.passing else {}


class StorageUnreachable(StorageError):
    """Storage that does not answer. A later try may succeed."""

    passing = True


class StorageUnreadable(StorageUnreachable):
    """An input/output error, of a bad disk or of a mount without a server. If it stays after further tries, this file alone may be bad."""


class StorageDenied(StorageError):
    """Storage that does not exist, or refuses these credentials. Another try does not help."""
