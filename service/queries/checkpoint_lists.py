"""The files of the checkpoints that were last asked for. A process with bounded memory parses a manifest, once for all its files.

One manifest is parsed at a time, in half of the memory that is free; the API's own requests have the other half.
"""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ...workers.checkpoint import file_list
from ...workers.checkpoint.errors import CheckpointCorrupt, CheckpointError
from ...workers.forkserver.client import IMPORT_VARIABLES
from ...workers.host_memory import memory_limits
from ...workers.storage.file_stat import FileStat
from ..blocking_calls import BlockingCalls
from ..model_errors import CheckpointStorageFailed

log = logging.getLogger(__name__)

#: Lists that are kept in memory: up to 25 MB each.
_KEPT: Final = 4
#: Bytes with which the largest manifest that is read can be parsed, whatever is in it.
_MOST_MEMORY: Final = 2 << 30
#: Seconds after which parsing has failed. A manifest of 1,024 ranks takes two.
_LIMIT_S: Final = 60.0


@dataclass(frozen=True)
class Listing:
    """The files of one checkpoint: path → stored name, size in bytes, SHA-256."""

    folder: str
    digest: str
    files: Mapping[str, file_list.Stored]


class CheckpointLists:
    """The lists of one process. Requests for a list that is being made wait for it."""

    def __init__(self, limit_s: float) -> None:
        self._turn = BlockingCalls("lists of checkpoints", 1, limit_s)
        self._kept: dict[tuple[str, FileStat], Listing] = {}

    async def of(self, where: str, manifest: FileStat, read: Callable[[], bytes]) -> Listing:
        """The files of the checkpoint in the folder `where`. `read`: returns the content of its manifest, and is called in a thread.

        Raises CheckpointCorrupt, CheckpointError, CheckpointStorageFailed, OSError.
        """
        key = (where, manifest)
        kept = self._of(key)
        return kept if kept is not None else await self._turn.do(lambda: self._of(key) or self._made(key, read))

    def _of(self, key: tuple[str, FileStat]) -> Listing | None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._kept[key] = found  # as the newest
        return found

    def _made(self, key: tuple[str, FileStat], read: Callable[[], bytes]) -> Listing:
        made = self._kept[key] = listed(key[0], read())
        for oldest in list(self._kept)[:-_KEPT]:  # a request may take one out meanwhile
            self._kept.pop(oldest, None)
        return made


def listed(where: str, content: bytes) -> Listing:
    """The files that a manifest of this content in the folder `where` names. Blocks. Raises as `CheckpointLists.of`."""
    memory = _memory()
    command = [sys.executable, "-P", "-m", file_list.__name__, where, str(memory)]
    env = {name: os.environ[name] for name in IMPORT_VARIABLES if name in os.environ}
    try:
        done = subprocess.run(command, input=content, env=env, capture_output=True, timeout=_LIMIT_S, check=True)
    except subprocess.SubprocessError as error:
        lines = (getattr(error, "stderr", None) or b"").decode("utf-8", "replace")
        log.warning("the manifest in %s was not parsed: %s: %s", where, error, lines[-500:])
        raise CheckpointStorageFailed(
            f"The manifest of the checkpoint has {len(content):,} bytes, and {_why(error, lines, memory)}.",
            field="step",
            remedy=f"Copy {where} itself. Operators: the API's log says more.",
        ) from None
    found = json.loads(done.stdout)
    if "corrupt" in found:
        raise CheckpointCorrupt(found["corrupt"])
    if "unusable" in found:
        raise CheckpointError(found["unusable"])
    return Listing(where, found["digest"], {path: tuple(file) for path, file in found["files"].items()})


def _why(error: subprocess.SubprocessError, lines: str, memory: int) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"was not parsed within {_LIMIT_S:g} s"
    if "MemoryError" in lines or getattr(error, "returncode", None) == -signal.SIGKILL:
        return f"the API has {memory >> 20:,} MiB to parse it: too few (the chart's api.resources.limits.memory)"
    return "the process that parses it failed"


def _memory() -> int:
    """Bytes that parsing may take. The process counts against the same limits as this one, such as a pod's."""
    return min([_MOST_MEMORY, *(limit.free // 2 for limit in memory_limits())])
