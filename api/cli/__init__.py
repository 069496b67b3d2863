"""The command line. It asks the public API and nothing else; only `up`, `down`, `api`, `dispatcher` and `migrate` touch the house.

Exit codes stand in `exit_codes.py`.
"""

import sys


def main() -> None:
    """The console script."""
    from .main import run

    sys.exit(run(sys.argv[1:]))
