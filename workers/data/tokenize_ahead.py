"""Tokenises a corpus before its job starts: `python -m shardyard.workers.data.tokenize_ahead CACHE`, `data` on stdin.

It gives way to whatever trains, ends with the process that started it, and may be killed at any line (`token_cache.py`). Imports no torch.
"""

import os
import sys
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from ..parent_death import die_with_parent
from ..spec import DataSpec
from .errors import DataError
from .token_cache import prepare

#: Above Ray's idle workers, so that a gang which comes before the end waits for a process that gets on: its own cores are free meanwhile.
NICENESS: Final = 10


def main() -> None:
    """Raises SystemExit, which says why the corpus cannot be read or kept."""
    die_with_parent(os.getppid())
    os.nice(NICENESS)
    try:
        prepare(DataSpec.model_validate_json(sys.stdin.buffer.read()), Path(sys.argv[1]))
    except (DataError, ValidationError) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
