"""Links by which a program finds the files of its job: all below one folder of the node, and, with code, also in its working copy.

A link into a working copy replaces only a link that another attempt has put there, and none leaves the working copy.
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .. import cache_disk
from ..shared_folder import remove_unused, shared_folder
from .errors import FilesNotFetched

#: Variable with the folder of all links.
VARIABLE: Final = "SHARDYARD_FILES"
#: Seconds after their last use for which links are kept, and to wait for another process that makes them.
KEPT_S: Final = 7 * 86_400.0
WAIT_S: Final = 600.0


@contextmanager
def links(found: Mapping[str, Path], job: str, cache: Path, is_to_stop: Callable[[], bool]) -> Iterator[Path]:
    """A folder with a link for each target, which stays until the block ends. Raises FolderUnavailable, EndRequested.

    Its path is the same on all nodes, wherever these have the files: a driver of Ray may pass it to its workers.
    """
    root = cache / "mounts"
    place = root / job

    def make(_: int) -> None:
        remove_unused(root, KEPT_S, 0)
        place.mkdir()

    with shared_folder(place, make, place.is_dir, is_to_stop, WAIT_S):
        for target, path in found.items():
            link = place / target
            link.parent.mkdir(parents=True, exist_ok=True)
            _link(link, path)
        yield place


def link_into(copy: Path, targets: Iterable[str], folder: Path) -> None:
    """Link each target in a working copy of code to that in the folder of links.

    Raises FilesNotFetched where the code has something else, OSError for a disk that is full or fails.

    So a link of another attempt is known by its place, although the files may have been elsewhere, as in the node's Hugging Face cache.
    """
    for target in targets:
        link = copy / target
        try:
            link.parent.mkdir(parents=True, exist_ok=True)
            inside = link.parent.resolve().is_relative_to(copy.resolve())
            free = not taken(copy, target, folder)
        except OSError as error:  # a file where a folder is to be
            if cache_disk.cause_of(error) is not None:
                raise
            inside = free = False
        if not inside or not free:
            raise FilesNotFetched(
                f"files[{target}]: the code has something at this path; choose another target, or leave it out with code.ignore."
            )
        _link(link, folder / target)


def taken(code: Path, target: str, folder: Path) -> bool:
    """Whether the code has something at this path that is no link into the folder of links."""
    link = code / target
    return os.path.lexists(link) and not _leads_into(link, folder)


def unlink_from(code: Path, targets: Iterable[str], folder: Path) -> None:
    """Remove the links that `link_into` has made, and the folders that are empty without them. Errors are ignored."""
    for target in targets:
        link = code / target
        with contextlib.suppress(OSError):
            if not _leads_into(link, folder):
                continue
            link.unlink()
            for parent in list(link.parents)[: target.count("/")]:
                parent.rmdir()


def _leads_into(link: Path, folder: Path) -> bool:
    return link.is_symlink() and str(link.readlink()).startswith(f"{folder}{os.sep}")


def _link(link: Path, path: Path) -> None:
    """Make a link, or replace one that leads elsewhere, at once: other ranks of the node may read it."""
    if not (link.is_symlink() and link.readlink() == path):
        new = link.with_name(f".{secrets.token_hex(8)}.link")  # its own name may be as long as a name may be
        new.symlink_to(path)
        new.replace(link)
