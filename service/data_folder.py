"""The data folder is private to its owner: it holds the access token, the database, logs and checkpoints.

The control plane keeps the folder closed (0700, its files 0600). If it cannot close a folder, it refuses to use it.
"""

import errno
import logging
import os
import stat
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from .errors import DataFolderOpen, DataFolderUnusable

log = logging.getLogger(__name__)

#: For processes of the control plane and their children: new files and folders are accessible to their owner only.
PRIVATE_UMASK: Final = 0o077
#: The files that the control plane keeps in the folder. Other files there are not touched.
_OURS: Final = (
    *(
        "token",
        "secrets.key",
        "ray.token",
        "control.json",
        "control.lock",
        "control.log",
        "cluster.json",
        "cluster.lock",
        "run.lock",
    ),
    *("shardyard.db", "shardyard.db-wal", "shardyard.db-shm", "checkpoints", "cache", "ray"),
)
#: Those whose content lets its reader in, and how to replace it.
_SECRETS: Final = {
    "token": "shardyard token --rotate",
    "secrets.key": "see docs/how-to/secrets.md#replace-the-key",
}
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def make(folder: Path) -> None:
    """Make the folder if it is missing, accessible to this user only. Raises `DataFolderUnusable`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        why = "it is not a folder" if isinstance(error, FileExistsError) else error.strerror
        message = f"The data folder {folder} cannot be made: {why}."
        remedy = "Name a folder of your own in SHARDYARD_DATA_DIR."
        raise DataFolderUnusable(message, field="SHARDYARD_DATA_DIR", remedy=remedy) from None


def make_private(folder: Path) -> None:
    """Make the folder if it is missing, and close it to other users. Raises `DataFolderUnusable`, `DataFolderOpen`."""
    make(folder)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        facts = os.fstat(handle)
        if facts.st_uid != os.geteuid() or facts.st_mode & stat.S_ISVTX:
            raise _refusal(folder, facts)
        if not _close(handle):
            raise _refusal(folder, facts)
        if facts.st_mode & _OTHERS:
            log.warning("%s was open to other users (%04o): now 0700.", folder, stat.S_IMODE(facts.st_mode))
            for name in filter(partial(_is_readable_by_others, folder), _SECRETS):
                log.warning("Other users may have read %s. Replace what is in it: %s", folder / name, _SECRETS[name])
        close_to_others(folder / name for name in _OURS)
    finally:
        os.close(handle)


def close_to_others(paths: Iterable[Path]) -> None:
    """Remove other users' permissions from the given files and folders, if they exist and belong to this user."""
    for path in paths:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # it does not exist, is a link, or belongs to another user
            continue
        try:
            if os.fstat(handle).st_uid == os.geteuid():
                _close(handle)
        finally:
            os.close(handle)


def _is_readable_by_others(folder: Path, name: str) -> bool:
    try:
        mode = (folder / name).lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))


def _close(handle: int) -> bool:
    """Remove other users' permissions. Returns whether that worked: some file systems have no permissions."""
    mode = os.fstat(handle).st_mode
    if mode & _OTHERS:
        try:
            os.fchmod(handle, stat.S_IMODE(mode) & ~_OTHERS)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EROFS, errno.ENOTSUP):
                raise
    return not os.fstat(handle).st_mode & _OTHERS


def _refusal(folder: Path, facts: os.stat_result) -> DataFolderOpen:
    shared = " and shared by all users" if facts.st_mode & stat.S_ISVTX else ""
    return DataFolderOpen(
        f"{folder} cannot be closed to other users: it belongs to user {facts.st_uid}{shared} "
        f"(this is user {os.geteuid()}, its mode is {stat.S_IMODE(facts.st_mode):04o}).",
        field="SHARDYARD_DATA_DIR",
        remedy="Name a folder of your own in SHARDYARD_DATA_DIR, or give this one to the user who runs Shardyard (chown).",
    )
