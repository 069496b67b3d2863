"""Blocks of a stored file, from a folder and from a bucket: any range, never a link, and an error where bytes are missing."""

import hashlib
from pathlib import Path

import pytest

from shardyard.service.model_errors import CheckpointStorageFailed
from shardyard.service.queries import checkpoint_files, stored_file
from shardyard.service.queries.checkpoint_lists import CheckpointLists
from shardyard.service.queries.storage_reads import StorageReads
from shardyard.service.queries.stored_file import StoredFile, blocks
from shardyard.service.settings import Settings
from shardyard.workers.checkpoint.manifest import File, Manifest, write
from shardyard.workers.checkpoint.retention import folder
from shardyard.workers.storage.file_stat import file_stat
from shardyard.workers.storage.open_folder import folder_at

CONTENT = bytes(range(250))


@pytest.fixture(params=["local", "bucket"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder, of either kind."""
    return str(tmp_path / "x") if request.param == "local" else str(request.getfixturevalue("prefix"))


async def read(file: StoredFile, start: int, end: int) -> list[bytes]:
    return [block async for block in await blocks(StorageReads(Settings()), file, start, end)]


async def test_ranges_are_read_in_blocks(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_file, "BLOCK_BYTES", 100)
    folder_at(where).write("a", memoryview(CONTENT))
    file = StoredFile(where, "a", 250, "", CheckpointStorageFailed)
    assert await read(file, 0, 250) == [CONTENT[:100], CONTENT[100:200], CONTENT[200:]]
    assert await read(file, 99, 101) == [CONTENT[99:101]]
    assert await read(file, 7, 7) == []
    for missing, name in ((251, "a"), (5, "b")):
        with pytest.raises(CheckpointStorageFailed):
            await read(StoredFile(where, name, missing, "", CheckpointStorageFailed), 240, 240 + missing)


async def test_a_checkpoint_is_listed_from_either_storage(where: str) -> None:
    path, lists = folder(folder_at(where), 3), CheckpointLists(60.0)
    path.write("rank-00000", memoryview(CONTENT))
    digest = hashlib.sha256(CONTENT).hexdigest()
    write(path, Manifest(3, {}, {}, {"rank-00000": File(250, digest, ())}))
    found = await lists.of(path.where, file_stat(path, "manifest.json"), lambda: checkpoint_files._content(path))
    assert found.files["rank-00000"] == ("rank-00000", 250, digest) and found.folder == path.where
    name, size, own = found.files["manifest.json"]
    assert (name, size, own) == ("manifest.json", len(path.read(name)), hashlib.sha256(path.read(name)).hexdigest())


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"a secret")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(CheckpointStorageFailed):
        await read(StoredFile(str(tmp_path / "x"), "link", 8, "", CheckpointStorageFailed), 0, 8)
