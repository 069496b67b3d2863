"""The list of a checkpoint's files, as its own process prints it. What a forged manifest can name: test_checkpoint_files.py."""

import hashlib
import json
from typing import Any

import pytest

from shardyard.workers.checkpoint import file_list
from shardyard.workers.checkpoint.manifest import File, Manifest, TensorSlice, digest, encoded

SHA256 = hashlib.sha256(b"a").hexdigest()


def answer(content: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file_list.answer(content, "/x/step-3"))
    return found


def test_a_manifest_names_its_files_and_itself() -> None:
    manifest = Manifest(3, {}, {}, {"rank-00000": File(1, SHA256, (TensorSlice("w", (0,), (1,), 0),))})
    content = encoded(manifest)[0]
    own = ["manifest.json", len(content), hashlib.sha256(content).hexdigest()]
    files = {"rank-00000": ["rank-00000", 1, SHA256], "manifest.json": own}
    assert answer(content) == {"digest": manifest.sha256, "files": files}


def test_what_is_no_manifest_of_files_is_corrupt() -> None:
    rank = {"rank": float("inf"), "paths": {}}
    for training, files in (
        ({"program": {"parts": [rank, rank]}}, {}),
        ({"program": {}}, {}),
        ({}, {"a": File(-1, SHA256, ())}),
        ({}, {"../a": File(1, SHA256, ())}),
    ):
        assert "is corrupt" in answer(encoded(Manifest(3, training, {}, files))[0])["corrupt"]
    body = {"format": 4}
    assert "has format 4" in answer(json.dumps({**body, "sha256": digest(body)}).encode())["unusable"]


def test_a_list_that_would_fill_its_reader_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_list, "MOST_BYTES", 100)
    assert "its list of files has" in answer(encoded(Manifest(3, {}, {}, {}))[0])["unusable"]
