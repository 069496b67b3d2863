"""A module of ours on all ranks of this machine, whose output is kept instead of printed."""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ..one_thread import ON_CPUS
from .local_ranks import LocalRun, run_locally
from .program import Program
from .rank_output import RankOutput

#: Of what failed ranks printed, the last bytes that an error quotes.
_QUOTED: Final = 2000
_OF_RANK_0: Final = "[rank 0] "
#: Names before a line: that of `RankOutput`, and that of torch before a traceback.
_NAMES: Final = re.compile(r"^(\[rank \d+\] )?(\[rank\d+\]: ?)?")


class RanksFailed(Exception):
    """A rank failed. `status`: its exit status; above 128, 128 + the signal that ended it or this process."""

    def __init__(self, status: int, printed: str) -> None:
        super().__init__(printed)
        self.status = status

    @property
    def cause(self) -> str:
        """The last line that a rank printed itself, without the rank's names before it."""
        lines = [_NAMES.sub("", line) for line in str(self).splitlines()]
        of_ranks = [line for line in lines if line.strip() and not line.startswith("shardyard: ")]
        return of_ranks[-1] if of_ranks else "it printed nothing"


def lines_of_rank_0(
    module: str, arguments: list[str], ranks: int, gpus: str | None = None, env: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run `python -P -m shardyard.MODULE` on each rank, and yield what rank 0 has printed; begin it on the main thread.

    `gpus`: of all ranks, as CUDA_VISIBLE_DEVICES; None: they run on CPUs, each on one thread. `env`: variables beside those of this
    process. Raises RanksFailed, and OSError if no process can be started.
    """
    package = __package__.partition(".")[0]
    program = Program("local", (sys.executable, "-P", "-m", f"{package}.{module}", *arguments))
    env = {**os.environ, **(ON_CPUS if gpus is None else {}), **(env or {})}
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as errors:
        output = RankOutput(ranks, {"stdout": printed.fileno(), "stderr": errors.fileno()})
        status = run_locally(LocalRun(program, ranks, Path.cwd(), env, gpus, piped=True), output)
        if status:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - _QUOTED))
            raise RanksFailed(status, errors.read().decode(errors="replace").strip())
        printed.seek(0)
        for line in printed:
            text = line.decode(errors="replace").rstrip("\n")
            if ranks == 1 or text.startswith(_OF_RANK_0):
                yield text.removeprefix(_OF_RANK_0)
