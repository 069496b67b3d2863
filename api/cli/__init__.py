"""The command line. It calls only the public API; only `up`, `down`, `api`, `dispatcher` and `migrate` import the server's code.

Exit codes stand in `exit_codes.py`.
"""

import sys

from .exit_codes import ExitCode


def main() -> None:
    """The console script."""
    try:
        from .main import run  # takes most of a second

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
