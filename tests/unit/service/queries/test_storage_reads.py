"""Storage that does not answer fails downloads, and stops no other work of the process."""

import asyncio
import threading
from pathlib import Path

import pytest

from shardyard.service.model_errors import CheckpointStorageFailed
from shardyard.service.queries import storage_reads, stored_file
from shardyard.service.queries.storage_reads import StorageReads
from shardyard.service.queries.stored_file import StoredFile, blocks
from shardyard.service.settings import Settings


async def test_downloads_from_dead_storage_take_no_threads_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(stored_file, "read_into", lambda *_: answered.wait())
    monkeypatch.setattr(storage_reads, "AT_ONCE", 64)  # asyncio has 32 threads at most
    reads = StorageReads(Settings(data_dir=tmp_path), limit_s=0.2)
    file = StoredFile(str(tmp_path), "a", 8, "", CheckpointStorageFailed)
    try:
        begun = asyncio.gather(*(blocks(reads, file, 0, 8) for _ in range(64)), return_exceptions=True)
        await asyncio.sleep(0)  # all of them begin
        assert await asyncio.to_thread(lambda: 1) == 1
        failed = await begun
    finally:
        answered.set()
    assert {type(error) for error in failed} == {CheckpointStorageFailed}
    assert "No answer" in str(failed[0])
