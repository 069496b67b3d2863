"""A manifest is accepted only as it was written."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from shardyard.workers import atomic_files
from shardyard.workers.checkpoint.errors import CheckpointCorrupt, CheckpointError
from shardyard.workers.checkpoint.inspect import inspect_checkpoint
from shardyard.workers.checkpoint.manifest import (
    MANIFEST,
    File,
    Manifest,
    Tensor,
    TensorSlice,
    digest,
    encoded,
    read,
    write,
)
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.local_folder import LocalFolder

PIECE = TensorSlice("weight", (2, 0), (2, 3), 8)
MADE = Manifest(
    7,
    {"loss_scale": [65536.0, 1e-07], "tokenizer": "ä\n"},
    {"weight": Tensor("BF16", (4, 3))},
    {"rank-00000": File(20, "ab", (PIECE,))},
)
#: Names that are fields of a manifest, are sorted as text, and are not ASCII.
OTHER = Manifest(
    8,
    {"step": {"sha256": None}, "rank": [True, 1.5]},
    {name: Tensor("F32", (4,)) for name in ("step", "sha256", 'a"b', "ü")},
    {name: File(4, "cd", (PIECE, PIECE)) for name in ("sha256", "rank-2", "step", "rank-10", "ß", "files")},
)


def test_what_is_written_is_read(root: Folder) -> None:
    write(root, MADE)
    assert read(root) == MADE
    assert list(root.files()) == [MANIFEST]


@pytest.mark.parametrize("made", [MADE, OTHER, Manifest(0, {}, {}, {})], ids=["made", "other", "empty"])
def test_the_stored_text_is_the_canonical_json_of_every_field(made: Manifest) -> None:
    """`asdict` copies each slice, and one call encodes the whole. The text is made without both."""
    body = {"format": 3, **asdict(made)}
    assert (
        encoded(made)[0] == json.dumps(body | {"sha256": digest(body)}, sort_keys=True, separators=(",", ":")).encode()
    )
    assert made.sha256 == digest(body)


def test_earlier_versions_stored_the_same_text() -> None:
    assert MADE.sha256 == "fc49c75945a41be4c3122d8b42b804806917876775f6bbeb96428e83a9c701ba"
    assert (
        hashlib.sha256(encoded(MADE)[0]).hexdigest()
        == "d18781c03b0c193a07eed3e613bf25665b24d318462294ca05cbeaaec239f341"
    )


def test_two_writers_at_once_leave_one_whole_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, write_synced = LocalFolder(str(tmp_path)), atomic_files.write_synced

    def write_beside_a_successor(path: Path, blocks: Iterable[Any]) -> None:
        write_synced(path, blocks)
        monkeypatch.setattr(atomic_files, "write_synced", write_synced)
        write(root, replace(MADE, training={}))

    monkeypatch.setattr(atomic_files, "write_synced", write_beside_a_successor)
    write(root, MADE)
    assert read(root) == MADE
    assert list(root.files()) == [MANIFEST]


def test_every_change_of_every_byte_is_seen_or_means_the_same(tmp_path: Path) -> None:
    content = encoded(MADE)[0]
    for at, byte in enumerate(content):
        for other in {byte ^ 1, byte ^ 0x20, ord(" "), ord("0")} - {byte}:
            (tmp_path / MANIFEST).write_bytes(content[:at] + bytes([other]) + content[at + 1 :])
            assert seen_or_same(tmp_path)
        (tmp_path / MANIFEST).write_bytes(content[:at])
        with pytest.raises(CheckpointCorrupt):
            read(LocalFolder(str(tmp_path)))


def seen_or_same(path: Path) -> bool:
    try:
        return read(LocalFolder(str(path))) == MADE
    except CheckpointCorrupt:
        return True


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"format": 1, "step": 5, "files": {}}, "format 1, of an older version"),
        ({"format": 2, "sha256": digest({"format": 2})}, "format 2, of an older version, and this version reads 3"),
        ({"format": 4, "sha256": digest({"format": 4})}, "format 4, of another version, and this version reads 3"),
    ],
)
def test_other_formats_are_no_damage(tmp_path: Path, body: dict[str, Any], said: str) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps(body))
    with pytest.raises(CheckpointError, match=said) as caught:
        read(LocalFolder(str(tmp_path)))
    assert not isinstance(caught.value, CheckpointCorrupt)


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"[" * 100_000, b"\xff"])
def test_what_is_no_manifest_is_corrupt(root: Folder, content: bytes) -> None:
    root.publish(MANIFEST, content)
    with pytest.raises(CheckpointCorrupt):
        read(root)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"tensors": {}, "files": []},
        {"tensors": {"a": 1}, "files": {}},
        {"tensors": {}, "files": {}, "step": "1"},
        {"tensors": {}, "files": {}, "training": []},
    ],
)
def test_a_signed_manifest_of_another_form_is_corrupt(tmp_path: Path, body: dict[str, Any]) -> None:
    whole = {"format": 3, "step": 1, "training": {}, **body}
    (tmp_path / MANIFEST).write_text(json.dumps({**whole, "sha256": digest(whole)}))
    with pytest.raises(CheckpointCorrupt, match="has no"):
        read(LocalFolder(str(tmp_path)))
    assert inspect_checkpoint(str(tmp_path), verify=True).verdict == "corrupt"


def test_a_folder_without_one_is_not_complete(root: Folder) -> None:
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        read(root)
