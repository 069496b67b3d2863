"""Texts of a given number of words, each of them a token: unlike bytes of a text, all ids of the vocabulary come up."""

import json
from pathlib import Path
from typing import Any

import numpy as np


def write_token_text(root: Path, vocab: int, seq_len: int = 24, count: int = 20_000) -> dict[str, Any]:
    """The `data` of a spec: `count` words drawn evenly out of `vocab`, and the tokenizer that knows them."""
    text, tokenizer = root / f"words-{vocab}.txt", root / f"words-{vocab}.json"
    if not text.exists():
        ids = {f"w{number}": number for number in range(vocab)}
        content = {
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "vocab": ids, "unk_token": "w0"},
        }
        tokenizer.write_text(json.dumps(content))
        text.write_text(" ".join(f"w{number}" for number in np.random.default_rng(0).integers(0, vocab, count)))
    return {"source": "text", "seq_len": seq_len, "files": [str(text)], "tokenizer": str(tokenizer)}
