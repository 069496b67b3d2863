"""A path as a user typed it: `~` is a home folder, and a text that cannot be a path is refused."""

from pathlib import Path

from ..service.errors import MissingFile


def given_path(text: str | Path, field: str | None = None) -> Path:
    """The path with `~` written out. Raises MissingFile."""
    try:
        if "\0" in str(text):
            raise MissingFile("A path holds a null character.", field=field, remedy="Name a file.")
        return Path(text).expanduser()
    except RuntimeError:
        message = f"{text}: this machine has no such user."
        raise MissingFile(message, field=field, remedy="Write the path without ~.") from None
