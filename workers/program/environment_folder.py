"""The folders of programs' environments on this node, each built by the first rank that needs it, and shared by all jobs that ask for it.

They are below `cache/environments/`, under the digest of all that determines them (`shared_folder.py`). An environment is built at its
place, because scripts in it have its path, and counts when its mark is written. One that no rank uses is removed 7 days after its last
use, or when another one needs its room; what its builder keeps goes with it.
"""

import contextlib
import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from .build_process import EnvironmentNotBuilt
from .shared_folder import remove_unused, shared_folder

#: Seconds after its last use for which an environment is kept.
KEPT_S: Final = 7 * 86_400.0
#: Seconds for a build.
BUILD_S: Final = 1800.0
#: Seconds to wait for another process that builds.
WAIT_S: Final = BUILD_S + 60.0
#: Free bytes that the file system is to have before a build: torch for GPUs takes about 7 GB.
_SPARE_BYTES: Final = 8 << 30
#: The file in an environment that is complete.
_MARK: Final = ".complete"


class Build(Protocol):
    """Builds one environment. `lock`: a descriptor that the processes of the build inherit."""

    def run(self, lock: int) -> None:
        """Build it at its place. Raises EnvironmentNotBuilt, EndRequested."""

    def empty_cache(self, lock: int) -> None:
        """Remove packages that are kept for later builds. Raises EnvironmentNotBuilt, EndRequested."""


def folder_of(cache: Path, facts: list[Any]) -> Path:
    """The place of the environment that these facts determine, which can be written as JSON."""
    return cache / "environments" / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


@contextmanager
def kept(place: Path, build: Build, is_to_stop: Callable[[], bool]) -> Iterator[None]:
    """Keep the environment at `place` until the block ends; it is built if it is not there.

    Raises EnvironmentNotBuilt, FolderUnavailable, EndRequested.
    """
    said = False

    def ends() -> bool:
        nonlocal said
        if not said:
            said = True
            _say("waiting for another process on this node that builds the environment")
        return is_to_stop()

    with shared_folder(place, lambda lock: _run(build, place, lock), (place / _MARK).is_file, ends, WAIT_S):
        yield


def _run(build: Build, place: Path, lock: int) -> None:
    """Raises EnvironmentNotBuilt, EndRequested. Of a failed build nothing stays."""
    shutil.rmtree(place, ignore_errors=True)  # of a process that died
    removed = remove_unused(place.parent, KEPT_S, _SPARE_BYTES)
    if removed or shutil.disk_usage(place.parent).free < _SPARE_BYTES:
        with contextlib.suppress(EnvironmentNotBuilt):  # another process uses it
            build.empty_cache(lock)
    try:
        build.run(lock)
        (place / _MARK).touch()
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def _say(text: str) -> None:
    sys.stderr.write(f"shardyard: {text}\n")
    sys.stderr.flush()
