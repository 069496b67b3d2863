"""Checks that a corpus is long enough: each of its two splits has at least one window of tokens.

Imports no torch: the API uses it, too.
"""

from collections.abc import Sequence
from typing import Final

from ..spec import DataSpec
from .corpus import Source
from .errors import DataError
from .token_cache import token_ids
from .tokenizer import ByteTokenizer, Tokenizer

#: A corpus of at most this number of bytes is encoded to be measured. For a larger one its bytes are counted.
EXACT_BYTES: Final = 1 << 20


def windows(tokens: int, seq_len: int) -> int:
    """Windows of `seq_len` inputs, each of which has a token after it."""
    return max(0, tokens - 1) // seq_len


def training_tokens(tokens: int, spec: DataSpec) -> int:
    """The number of tokens before the validation split."""
    return tokens - round(tokens * spec.validation)


def check(tokens: int, spec: DataSpec, *, at_most: bool = False) -> None:
    """Raises `DataError` if a split has no window. `at_most`: the corpus has no more tokens than this."""
    train, about = training_tokens(tokens, spec), "at most " if at_most else ""
    for split, count in (("train", train), ("validation", tokens - train)):
        if not windows(count, spec.seq_len):
            raise DataError(
                "corpus_too_short",
                f"The {split} split has {about}{count} of the corpus' {about}{tokens} tokens, and one window of "
                f"{spec.seq_len} needs {spec.seq_len + 1}.",
                "Use more text, a smaller data.seq_len, or another data.validation.",
                "data.seq_len",
            )


def measure(files: Sequence[Source], tokenizer: Tokenizer, spec: DataSpec) -> None:
    """`check`, exact for a small corpus; for a large one from its size in bytes.

    Raises `DataError`, also for a small one's invalid text.
    """
    size = sum(source.path.stat().st_size for source in files)
    if size <= EXACT_BYTES:
        check(sum(len(ids) for ids in token_ids(files, tokenizer)), spec)
    else:
        # A token stands for at least one byte. A normalizer may make a text longer, though hardly twice as long.
        longer = 1 if isinstance(tokenizer, ByteTokenizer) else 2
        check(longer * size + len(files) * len(tokenizer.separator), spec, at_most=True)
