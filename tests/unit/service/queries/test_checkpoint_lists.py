"""Lists of checkpoints' files: each is made once, one at a time, and in bounded memory."""

import asyncio
import subprocess
import threading
from pathlib import Path

import pytest

from shardyard.service.model_errors import CheckpointStorageFailed
from shardyard.service.queries import checkpoint_lists
from shardyard.service.queries.checkpoint_lists import CheckpointLists, Listing
from shardyard.workers.checkpoint.errors import CheckpointCorrupt, CheckpointError
from shardyard.workers.checkpoint.manifest import FORMAT, Manifest, digest, encoded
from shardyard.workers.host_memory import MemoryLimit
from shardyard.workers.storage.file_stat import FileStat

STAT = FileStat(1, "a")


async def test_requests_at_once_read_and_parse_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lists, reads = CheckpointLists(60.0), list[str]()
    content = encoded(Manifest(3, {}, {}, {}))[0]

    def read() -> bytes:
        reads.append("x")
        return content

    found = await asyncio.gather(*(lists.of("/x", STAT, read) for _ in range(8)))
    assert reads == ["x"] and all(one is found[0] for one in found) and list(found[0].files) == ["manifest.json"]
    assert await lists.of("/x", FileStat(1, "b"), read) == found[0] and len(reads) == 2
    monkeypatch.setattr(checkpoint_lists, "listed", lambda where, _: Listing(where, "", {}))
    for where in "abc":
        await lists.of(where, STAT, lambda: b"")
    await lists.of("/x", FileStat(1, "b"), read)
    assert len(reads) == 2 and len(lists._kept) == 4, "the latest four are kept"
    await lists.of("d", STAT, lambda: b"")
    await lists.of("a", STAT, read)
    assert len(reads) == 3, "the one whose use is longest ago is not"


async def test_one_is_parsed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, most, lock = 0, 0, threading.Lock()

    def listed(where: str, _: bytes) -> Listing:
        nonlocal at_once, most
        with lock:
            at_once, most = at_once + 1, max(most, at_once + 1)
        threading.Event().wait(0.01)
        with lock:
            at_once -= 1
        return Listing(where, "", {})

    monkeypatch.setattr(checkpoint_lists, "listed", listed)
    lists = CheckpointLists(60.0)
    await asyncio.gather(*(lists.of(f"/{number}", STAT, lambda: b"") for number in range(6)))
    assert most == 1


def test_memory_and_time_that_do_not_suffice_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded(Manifest(3, {"x": [[]] * 500_000}, {}, {}))[0]
    monkeypatch.setattr(checkpoint_lists, "memory_limits", lambda: (MemoryLimit("", "", 512 << 20, 96 << 20),))
    with pytest.raises(CheckpointStorageFailed, match="48 MiB to parse it") as refused:
        checkpoint_lists.listed("/x", content)
    assert "Copy /x itself" in (refused.value.remedy or "")
    monkeypatch.undo()
    assert checkpoint_lists.listed("/x", content).files.keys() == {"manifest.json"}
    monkeypatch.setattr(checkpoint_lists, "_LIMIT_S", 0.001)
    with pytest.raises(CheckpointStorageFailed):
        checkpoint_lists.listed("/x", content)


def test_what_the_process_says_of_a_manifest_is_passed_on() -> None:
    with pytest.raises(CheckpointCorrupt, match="/x is corrupt"):
        checkpoint_lists.listed("/x", b"{}")
    body = {"format": FORMAT + 1}
    with pytest.raises(CheckpointError, match="has format 4"):
        checkpoint_lists.listed("/x", f'{{"format":{FORMAT + 1},"sha256":"{digest(body)}"}}'.encode())


def test_the_process_gets_no_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = []

    def run(*_: object, env: dict[str, str], **__: object) -> "subprocess.CompletedProcess[bytes]":
        given.append(env)
        return subprocess.CompletedProcess([], 0, b'{"digest":"","files":{}}', b"")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("SHARDYARD_TOKEN", "x" * 40)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    checkpoint_lists.listed("/x", b"")
    assert "SHARDYARD_TOKEN" not in given[0] and given[0]["LD_LIBRARY_PATH"] == str(tmp_path)
