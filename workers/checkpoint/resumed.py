"""The checkpoint with which a job begins. If its spec names a folder of checkpoints, the first start chooses the newest one for all starts.

The choice is a file in the job's own folder: until the job has saved, a later start may find newer checkpoints in the other folder.
"""

import contextlib
import os
from typing import Final

from ..storage.folder import Folder
from .manifest import MANIFEST
from .retention import newest

#: Two lines: the folder that the spec names, and the name of the checkpoint in it.
_RESUMED: Final = "resumed"


def chosen(root: Folder, resume: Folder) -> Folder:
    """The checkpoint with which the job of the folder `root` begins; `resume` itself if it is one, or has none. Raises OSError."""
    if resume.has(MANIFEST):
        return resume
    return _noted(root, resume) or newest(resume) or resume


def note_chosen(root: Folder, resume: Folder, path: Folder) -> None:
    """Let later starts begin with the checkpoint `path`, too. Raises OSError."""
    if path not in (resume, _noted(root, resume)):
        root.publish(_RESUMED, os.fsencode(f"{resume}\n{path.name}"), many_writers=True)


def _noted(root: Folder, resume: Folder) -> Folder | None:
    """A folder outside the service may be trained with another spec later, whose choice is another one."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        where, _, name = os.fsdecode(root.read(_RESUMED)).rpartition("\n")
        return resume / name if where == resume.where else None
    return None
