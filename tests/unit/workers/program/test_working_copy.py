"""A job's working copy on a node: unpacked once for all ranks, kept while one uses it, never half there."""

import fcntl
import io
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.code_archive import MANIFEST, PART_BYTES, InvalidArchive, deflated, manifest_of, pack, part_name
from shardyard.workers.messages import json_codec
from shardyard.workers.program import working_copy as copies
from shardyard.workers.program.program import Code
from shardyard.workers.program.shared_folder import EndRequested
from shardyard.workers.program.working_copy import CodeUnusable, working_copy


@pytest.fixture
def code(tmp_path: Path) -> Code:
    """An archive in storage, of a script and a file of more than one part."""
    source, archive = tmp_path / "source", tmp_path / "archive"
    source.mkdir()
    archive.mkdir()
    (source / "train.py").write_text("print(1)")
    (source / "big").write_bytes(os.urandom(PART_BYTES + 1))
    file = io.BytesIO()
    pack(source, ["train.py", "big"], file)
    manifest = manifest_of(file, 2)
    for number in range(len(manifest.parts)):
        part = file.getvalue()[number * PART_BYTES : (number + 1) * PART_BYTES]
        (archive / part_name(number)).write_bytes(deflated(part))
    (archive / MANIFEST).write_bytes(json_codec.dumps(manifest))
    return Code(str(archive), manifest.digest)


def never() -> bool:
    return False


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _rank(code: Code, cache: Path, found: Any, go_on: Any) -> None:
    with working_copy(code, "job-a", cache, never) as copy:
        found.put((copy.stat().st_ino, names(copy)))
        go_on.wait(PATIENCE_S)


def test_each_part_is_a_heartbeat_and_unpacking_ends_when_the_rank_is_to_end(code: Code, tmp_path: Path) -> None:
    asked: list[bool] = []

    def is_to_stop() -> bool:
        asked.append(len(asked) == 1)
        return asked[-1]

    with pytest.raises(EndRequested), working_copy(code, "job-a", tmp_path / "cache", is_to_stop):
        pass
    assert asked == [False, True] and names(tmp_path / "cache/code") == ["job-a.lock"]
    with working_copy(code, "job-a", tmp_path / "cache", is_to_stop) as copy:
        assert names(copy) == ["big", "train.py"]


def test_ranks_of_a_node_share_one_copy(code: Code, tmp_path: Path) -> None:
    """Four processes begin at once; one unpacks, and all see the same complete folder."""
    context = multiprocessing.get_context("fork")
    found, go_on = context.Queue(), context.Event()
    ranks = [context.Process(target=_rank, args=(code, tmp_path / "cache", found, go_on)) for _ in range(4)]
    for rank in ranks:
        rank.start()
    try:
        seen = [found.get(timeout=PATIENCE_S) for _ in ranks]
        assert len({inode for inode, _ in seen}) == 1 and all(there == ["big", "train.py"] for _, there in seen)
    finally:
        go_on.set()
        for rank in ranks:
            rank.join(PATIENCE_S)
    assert names(tmp_path / "cache/code") == ["job-a", "job-a.lock"]


def test_what_a_program_wrote_is_there_when_it_starts_again(code: Code, tmp_path: Path) -> None:
    with working_copy(code, "job-a", tmp_path, never) as copy:
        (copy / "out").write_text("saved")
    with working_copy(code, "job-a", tmp_path, never) as copy:
        assert (copy / "out").read_text() == "saved"


def test_a_damaged_archive_leaves_nothing(code: Code, tmp_path: Path) -> None:
    last = Path(code.archive) / part_name(1)
    last.write_bytes(deflated(b"other"))
    with pytest.raises(InvalidArchive, match="part 1"), working_copy(code, "job-a", tmp_path, never):
        pass
    assert names(tmp_path / "code") == ["job-a.lock"]
    with (
        pytest.raises(CodeUnusable, match="not that of"),
        working_copy(Code(code.archive, "0" * 64), "job-a", tmp_path, never),
    ):
        pass


def test_a_part_that_has_grown_in_storage_is_not_read(code: Code, tmp_path: Path) -> None:
    os.truncate(Path(code.archive) / part_name(1), 1 << 30)
    refused = pytest.raises(InvalidArchive, match="part 1 in storage has 1,073,741,824 bytes")
    with refused, working_copy(code, "job-a", tmp_path, never):
        pass
    (Path(code.archive) / part_name(1)).unlink()
    lost = pytest.raises(CodeUnusable, match=r"part-0001 in .* cannot be read: .*No such file")
    with lost, working_copy(code, "job-a", tmp_path, never):
        pass


def test_what_a_killed_process_left_does_not_count(code: Code, tmp_path: Path) -> None:
    partial = tmp_path / "code" / ".job-a.partial"
    partial.mkdir(parents=True)
    (partial / "train.py").write_text("half")
    with working_copy(code, "job-a", tmp_path, never) as copy:
        assert (copy / "train.py").read_text() == "print(1)" and not partial.exists()


def test_old_copies_go_and_those_in_use_stay(code: Code, tmp_path: Path) -> None:
    old = time.time() - copies.KEPT_S - 60
    with working_copy(code, "job-used", tmp_path, never) as used:
        for job in ("job-old", "job-new"):
            with working_copy(code, job, tmp_path, never):
                pass
        for job in ("job-used", "job-old"):
            os.utime(tmp_path / "code" / f"{job}.lock", (old, old))
        with working_copy(code, "job-next", tmp_path, never):
            there = {path.name for path in (tmp_path / "code").iterdir()}
        assert {"job-used", "job-new", "job-next"} <= there and not {"job-old", "job-old.lock"} & there
        assert (used / "train.py").exists()


def test_copies_without_a_user_make_room(code: Code, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with working_copy(code, "job-a", tmp_path, never):
        pass
    monkeypatch.setattr(copies, "_SPARE_BYTES", 1 << 60)
    with working_copy(code, "job-b", tmp_path, never):
        assert not (tmp_path / "code/job-a").exists()


def test_a_rank_that_is_to_stop_does_not_wait(code: Code, tmp_path: Path) -> None:
    """Another process holds the lock as if it unpacked."""
    (tmp_path / "code").mkdir()
    with (tmp_path / "code/job-a.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(EndRequested), working_copy(code, "job-a", tmp_path, lambda: True):
            pass
