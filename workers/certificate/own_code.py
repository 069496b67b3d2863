"""The digest of a user's own modules: of names and contents, so that it is the same wherever the folder lies. Imports none of them."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ...strategies.layout import Refusal
from .. import regular_files

#: More files, or a larger one, are not modules of one model.
MOST_FILES: Final = 2_000
MOST_BYTES: Final = 4 << 20


def digest(folder: Path) -> str:
    """SHA-256 of the Python files below `folder`, in the order of their names. Hidden folders are left out.

    Raises Refusal for a folder that cannot be read or has too many files.
    """
    whole = hashlib.sha256()
    try:
        for name in sorted(_names(folder)):
            content = regular_files.read(folder / name, MOST_BYTES)
            whole.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    except OSError as error:
        message = f"{error.filename or folder} cannot be read: {error.strerror}."
        raise Refusal("model.code", message, "Name a folder that this user may read.") from None
    return whole.hexdigest()


def _names(folder: Path) -> Iterator[str]:
    """The files' names relative to the folder, with slashes. Links to folders are not followed."""
    found = 0
    for path, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        for name in (one for one in files if one.endswith(".py")):
            found += 1
            if found > MOST_FILES:
                message = f"{folder} has more than {MOST_FILES:,} Python files."
                raise Refusal("model.code", message, "Name a folder with only the modules of the model.")
            yield Path(path, name).relative_to(folder).as_posix()


def _raise(error: OSError) -> None:
    raise error
