"""A job's working copy of its code on this node: unpacked once by the first of its ranks, and shared by all of them.

Copies are below `cache/code/`, one per job, so that a rank that starts again finds what it wrote (`shared_folder.py`). A copy that no rank
uses is removed a day after its last use, or when another one needs its room.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..code_archive import MANIFEST, Manifest, part_name, stored_parts, unpack
from ..messages import json_codec
from ..storage.errors import StorageError
from ..storage.folder import Folder
from ..storage.open_folder import folder_at
from .program import Code
from .shared_folder import EndRequested, remove_unused, shared_folder

#: Seconds after its last use for which a copy is kept.
KEPT_S: Final = 86_400.0
#: Seconds to wait for another rank that unpacks.
WAIT_S: Final = 1800.0
#: Free bytes that the file system is to have beyond a copy.
_SPARE_BYTES: Final = 256 << 20


class CodeUnusable(Exception):
    """The code cannot be unpacked on this node."""


@contextmanager
def working_copy(code: Code, job: str, cache: Path, is_to_stop: Callable[[], bool]) -> Iterator[Path]:
    """The folder with the job's code, which stays until the block ends.

    Raises CodeUnusable, FolderUnavailable, EndRequested, StorageError, and any other OSError for those of the cache.
    """
    copy = cache / "code" / job
    with shared_folder(copy, lambda _: _unpack(code, copy, is_to_stop), copy.is_dir, is_to_stop, WAIT_S):
        yield copy


def _unpack(code: Code, copy: Path, is_to_stop: Callable[[], bool]) -> None:
    folder = folder_at(code.archive)

    def part(number: int) -> bytes:
        """Of 4 MiB. The question before each is a heartbeat: slow storage is no hang."""
        if is_to_stop():
            raise EndRequested
        with _reading(folder, part_name(number)):
            return stored(number)

    with _reading(folder, MANIFEST):
        content, stored = folder.read(MANIFEST), stored_parts(folder)
    try:
        manifest: Manifest = json_codec.loads(Manifest, content)
    except ValueError as error:
        raise CodeUnusable(f"the manifest in {code.archive} cannot be read: {error}") from None
    if manifest.digest != code.digest:
        raise CodeUnusable(f"the manifest in {code.archive} is not that of {code.digest}")
    remove_unused(copy.parent, KEPT_S, manifest.bytes + _SPARE_BYTES)
    partial = copy.with_name(f".{copy.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that died
    try:
        unpack(manifest, part, partial)
        partial.rename(copy)
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)
        raise


@contextmanager
def _reading(folder: Folder, name: str) -> Iterator[None]:
    """Raise CodeUnusable if a file of the archive cannot be read for another reason than a StorageError."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise CodeUnusable(f"{name} in {folder} cannot be read: {error}") from None
