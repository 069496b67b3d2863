"""Links by which a program finds the files of its job: all below one folder of the node, and, with code, also in its working copy.

A link into a working copy replaces only a link that another attempt has put there, and none leaves the working copy.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..shared_folder import remove_unused, shared_folder
from .errors import FilesNotFetched

#: Variable with the folder of all links.
VARIABLE: Final = "SHARDYARD_FILES"
#: Seconds after their last use for which links are kept, and to wait for another process that makes them.
KEPT_S: Final = 7 * 86_400.0
WAIT_S: Final = 600.0


@contextmanager
def links(found: Mapping[str, Path], job: str, cache: Path, is_to_stop: Callable[[], bool]) -> Iterator[Path]:
    """A folder with a link for each target, which stays until the block ends. Raises FolderUnavailable, EndRequested."""
    root = cache / "mounts"
    digest = hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:16]
    place = root / f"{job}-{digest}"

    def make(_: int) -> None:
        remove_unused(root, KEPT_S, 0)
        partial_place = place.with_name(
            f".{place.name}.{secrets.token_hex(8)}.removed"
        )  # removed with the others, if this process dies
        for target, path in found.items():
            link = partial_place / target
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
        partial_place.replace(place)

    with shared_folder(place, make, place.is_dir, is_to_stop, WAIT_S):
        yield place


def link_into(copy: Path, targets: Iterable[str], folder: Path) -> None:
    """Link each target in a working copy of code to that in the folder of links. Raises FilesNotFetched where the code has something else.

    So a link of another attempt is known by its place, although the files may have been elsewhere, as in the node's Hugging Face cache.
    """
    ours = f"{folder.parent}{os.sep}"
    for target in targets:
        link = copy / target
        try:
            link.parent.mkdir(parents=True, exist_ok=True)
            inside = link.parent.resolve().is_relative_to(copy.resolve())
            free = not os.path.lexists(link) or (link.is_symlink() and str(link.readlink()).startswith(ours))
        except OSError:  # a file where a folder is to be
            inside = free = False
        if not inside or not free:
            raise FilesNotFetched(
                f"files[{target}]: the code has something at this path; choose another target, or leave it out with code.ignore."
            )
        new = link.with_name(f".{secrets.token_hex(8)}.link")  # its own name may be as long as a name may be
        new.symlink_to(folder / target)
        new.replace(link)
