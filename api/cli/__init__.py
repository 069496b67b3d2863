"""The command line. It asks the public API and nothing else; only `up`, `down`, `api`, `dispatcher` and `migrate` touch the house.

Exit codes: 0 succeeded, 1 usage or connection, 100 the job failed, 103 the job was cancelled, 130 interrupted.
"""

import sys


def main() -> None:
    """The console script."""
    from .commands import run

    sys.exit(run(sys.argv[1:]))
