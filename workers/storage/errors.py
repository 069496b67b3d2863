"""Errors of storage: what it holds is unknown. The message says what to do."""


class StorageError(OSError):
    """Storage that does not answer, or refuses. `passing`: a later try may succeed."""

    code = "storage_unreachable"
    passing: bool = False

    @property
    def facts(self) -> dict[str, str]:
        """The cause that ends a gang: where a later try may succeed, the training code is not at fault."""
        return {"cause": self.code} if self.passing else {}


class StorageUnreachable(StorageError):
    """Storage that gives no answer. A later try may succeed."""

    passing = True


class StorageDenied(StorageError):
    """Storage that does not exist, or refuses these credentials. Another try does not help."""
