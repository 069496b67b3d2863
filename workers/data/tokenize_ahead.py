"""Tokenizes a corpus before its job starts, and measures its unigram loss.

`python -m shardyard.workers.data.tokenize_ahead CACHE`, with a spec's `data` on stdin.

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
from .split_lengths import training_tokens
from .token_cache import prepare
from .unigram_baseline import unigram_loss

#: A higher priority than Ray's idle workers have. A gang that starts before tokenizing ends waits for it, so it must make progress:
#: the gang's own cores are free meanwhile.
NICENESS: Final = 10


def main() -> None:
    """Tokenize the corpus on stdin. Raises SystemExit with the reason if the corpus cannot be read or the cache cannot be written."""
    die_with_parent(os.getppid())
    os.nice(NICENESS)
    try:
        prepare_all(DataSpec.model_validate_json(sys.stdin.buffer.read()), Path(sys.argv[1]))
    except (DataError, ValidationError) as error:
        raise SystemExit(str(error)) from None


def prepare_all(spec: DataSpec, cache: Path) -> None:
    """Everything that a start reads from the cache. Raises `DataError`."""
    file = prepare(spec, cache)
    train = training_tokens(file.tokens, spec)
    if 0 < train < file.tokens:  # else the job reports that a split has no text
        unigram_loss(file, train, cache)


if __name__ == "__main__":
    main()
