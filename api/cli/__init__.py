"""The command line. It calls only the public API; only `up`, `down`, `api`, `dispatcher` and `migrate` import the server's code.

Exit codes stand in `exit_codes.py`.
"""

import sys


def main() -> None:
    """The console script."""
    from .main import run

    sys.exit(run(sys.argv[1:]))
