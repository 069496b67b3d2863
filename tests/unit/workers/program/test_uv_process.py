"""What uv says of a failure, as one line. tests/unit/workers/program/test_python_environment.py has the real uv."""

import pytest

from shardyard.workers.program.uv_process import reason

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
