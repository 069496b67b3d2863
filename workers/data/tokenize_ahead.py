"""Tokenizes a corpus before its job starts: `python -m shardyard.workers.data.tokenize_ahead CACHE`, `data` on stdin.

It runs at a lower priority than training, ends with the process that started it, and may be killed at any line (`token_cache.py`).
Imports no torch.
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

#: A higher priority than Ray's idle workers have. A gang that starts before tokenizing ends waits for it, so it must make progress:
#: the gang's own cores are free meanwhile.
NICENESS: Final = 10


def main() -> None:
    """Tokenize the corpus on stdin. Raises SystemExit with the reason if the corpus cannot be read or the cache cannot be written."""
    die_with_parent(os.getppid())
    os.nice(NICENESS)
    try:
        prepare(DataSpec.model_validate_json(sys.stdin.buffer.read()), Path(sys.argv[1]))
    except (DataError, ValidationError) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
