"""What a program needs before it starts without a job: its files and its environment, kept in the cache that jobs on this machine use.

The program runs in the folder of code itself and not in a copy. Links to fetched files are put there and are removed at the end. What is
there by such a name stays, and the program finds that.
"""

import fcntl
import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from .conda_environment import conda_environment
from .files.job_files import JobFiles
from .files.links import VARIABLE, link_into, links, taken, unlink_from
from .program import Program
from .python_environment import python_environment
from .shared_folder import locked

#: Links of the runs on this machine: no job has such an id.
_NAME: Final = "local-"


class LocalPlace(NamedTuple):
    """What is prepared. `own`: targets of files for which the folder of code has something of its own."""

    variables: dict[str, str]
    environment: Path | None = None
    conda: bool = False
    own: tuple[str, ...] = ()


@contextmanager
def locally_prepared(program: Program, code: Path | None, cache: Path) -> Iterator[LocalPlace]:
    """What the program needs, until the block ends. `code`: the folder of code. The log goes to standard error.

    Raises EnvironmentNotBuilt, FilesNotFetched, FolderUnavailable.
    """
    root = code or Path.home()
    variables, own, place = dict[str, str](), tuple[str, ...](), None
    with ExitStack() as stack:
        if program.files is not None:
            files = JobFiles(program.mounts, program.files, cache, _never)
            found = stack.enter_context(files.held(files.resolve()))
            folder, own = stack.enter_context(_links(found, program, code, cache))
            variables[VARIABLE] = str(folder)
        if program.python is not None:
            place = stack.enter_context(python_environment(program.python, root, cache, _never))
        elif program.conda is not None:
            place = stack.enter_context(conda_environment(root / program.conda, cache, _never))
        yield LocalPlace(variables, place, program.conda is not None, own)


@contextmanager
def _links(
    found: dict[str, Path], program: Program, code: Path | None, cache: Path
) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """The folder with links to the files, and the targets that the folder of code has itself.

    Runs of the same files in the same folder share the links. The last one removes them.
    """
    facts = [str(code), [[mount.target, mount.source] for mount in program.mounts]]
    name = f"{_NAME}{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]}"
    place, own = cache / "mounts" / name, tuple[str, ...]()
    try:
        with links(found, name, cache, _never) as folder:
            if code is not None:
                own = tuple(target for target in found if taken(code, target, folder))
                link_into(code, [target for target in found if target not in own], folder)
            yield folder, own
    finally:
        with locked(place.with_name(f"{name}.lock"), fcntl.LOCK_EX) as alone:
            if alone is not None and code is not None:
                unlink_from(code, found, place)


def _never() -> bool:
    return False
