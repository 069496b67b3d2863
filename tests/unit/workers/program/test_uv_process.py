"""What uv says of a failure, as one line. tests/unit/workers/program/test_python_environment.py has the real uv."""

from typing import Any

import pytest

from shardyard.workers.program import cache_disk
from shardyard.workers.program.build_process import NOT_BUILT, NOT_PREPARED, UNREACHABLE, Ended, EnvironmentNotBuilt
from shardyard.workers.program.uv_process import Uv, reason

COMPILER = """Using Python 3.11.7 environment at: e
error: Failed to build `flash==1.0`
  cause: The build backend returned an error
  cause: Call to `own.build_wheel` failed (exit status: 1)

         [stdout]
         compiling

         [stderr]
         flash.c:1:10: fatal error: cuda.h: No such file or directory

         error: command 'gcc' failed with exit code 1

hint: Build failures usually indicate a problem with the package or the build environment
"""
SILENT = """error: Failed to build `flash==1.0`
  cause: Call to `own.build_wheel` failed (exit status: 1)
"""
VERSIONS = """error: No solution found when resolving dependencies
  cause: Because only a==1.0 is available and all versions of b depend on a>=2, we can conclude that all versions of b cannot be
         used.
         And because you require b, we can conclude that your requirements are unsatisfiable.
"""
#: Of uv 0.11, on a file system without room, and on one that was mounted again to be read only.
FULL = """error: Failed to inspect Python interpreter from first executable in the search path at `/usr/bin/python`
  cause: Failed to query Python interpreter
  cause: failed to write to file `/cache/uv/.tmp5iTbzS/python/get_interpreter_info.py`: No space left on device (os error 28)
"""
READ_ONLY = """error: Could not acquire lock
  cause: Could not create temporary file
  cause: Read-only file system (os error 30) at path "/cache/uv/.tmpU2WEvF"
"""
QUOTA = "error: Failed to install: torch\n  cause: failed to copy file: Disk quota exceeded (os error 122)\n"
BACKEND_KILLED = """error: Failed to build `flash==1.0`
  cause: Call to `own.build_wheel` failed (signal: 9 (SIGKILL))
"""
COMPILER_KILLED = """error: Failed to build `flash==1.0`
  cause: Call to `own.build_wheel` failed (exit status: 1)

         [stderr]
         g++: fatal error: Killed signal terminated program cc1plus
         error: command 'g++' failed with exit code 1
"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (COMPILER, "Failed to build `flash==1.0`: error: command 'gcc' failed with exit code 1"),
        (SILENT, "Failed to build `flash==1.0`: Call to `own.build_wheel` failed (exit status: 1)"),
        (
            VERSIONS,
            "No solution found when resolving dependencies: Because only a==1.0 is available and all versions of b depend on a>=2. "
            "And because you require b.",
        ),
        ("a word", ""),
    ],
)
def test_the_last_error_is_one_line(output: str, line: str) -> None:
    assert reason(output) == line


class Ends:
    """A process of uv that ends in this way."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended

    def run(self, *_: str) -> Ended:
        return self._ended


@pytest.mark.parametrize(
    ("status", "output", "cause", "said"),
    [
        (2, FULL, cache_disk.FULL, r"No space left on device \(os error 28\)"),
        (2, QUOTA, cache_disk.FULL, "Disk quota exceeded"),
        (2, READ_ONLY, cache_disk.FAILED, "Read-only file system"),
        (-9, "Resolved 3 packages\n", NOT_PREPARED, "^uv was killed by SIGKILL$"),
        (-63, "", NOT_PREPARED, "^uv was killed by signal 63$"),
        (1, BACKEND_KILLED, NOT_PREPARED, "SIGKILL"),
        (1, COMPILER_KILLED, NOT_PREPARED, "Failed to build `flash==1.0`"),
        (2, "error: Failed to fetch\n  cause: dns error\n", UNREACHABLE, "dns error"),
        (2, COMPILER, NOT_BUILT, "gcc"),
        (2, "", NOT_BUILT, "^uv ended with status 2$"),
    ],
)
def test_what_the_node_lacks_is_no_fault_of_the_packages(status: int, output: str, cause: str, said: str) -> None:
    process: Any = Ends(Ended(status, output))
    with pytest.raises(EnvironmentNotBuilt, match=said) as failed:
        Uv(process).run("pip", "install")
    assert failed.value.cause == cause
