"""What two ranks of a node need before their program starts: code, files, and each other. Real archives, a real store."""

import errno
import fcntl
import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from harness.hub import Hub, Repository, running_hub
from harness.patience import PATIENCE_S
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from shardyard.service.policies.retry import INFRASTRUCTURE
from shardyard.workers.code_archive import MANIFEST, deflated, manifest_of, pack, part_name
from shardyard.workers.messages import json_codec
from shardyard.workers.messages.rendezvous import RankAssignment
from shardyard.workers.program import cache_disk, environment_folder, preparation, working_copy
from shardyard.workers.program.build_process import NOT_PREPARED
from shardyard.workers.program.files import interruption, job_files
from shardyard.workers.program.files.links import VARIABLE
from shardyard.workers.program.preparation import ProgramFailed, Ranks, prepared, wait_for_others
from shardyard.workers.program.program import Code, FilesCache, Mount, Program, PythonEnvironment
from shardyard.workers.program.shared_folder import EndRequested

COMMIT = "c" * 40


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(interruption, "BACKOFF_S", ())
    with running_hub() as found:
        found.repositories["org/model"] = Repository({COMMIT: {"a": b"weights"}}, {"main": COMMIT})
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        yield found


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A program with code, and with a model of the Hub at a path in it."""
    source, archive, file = tmp_path / "source", tmp_path / "archive", io.BytesIO()
    source.mkdir()
    archive.mkdir()
    (source / "train.py").write_text("print(1)")
    pack(source, ["train.py"], file)
    manifest = manifest_of(file, 1)
    (archive / part_name(0)).write_bytes(deflated(file.getvalue()))
    (archive / MANIFEST).write_bytes(json_codec.dumps(manifest))
    return Program(
        "job-a",
        ("true",),
        code=Code(str(archive), manifest.digest),
        mounts=(Mount("models/base", "hf://org/model"), Mount("shared", str(source))),
        files=FilesCache(str(tmp_path / "record"), 1 << 30),
        cache=str(tmp_path / "cache"),
    )


class Rank:
    """One of two ranks."""

    def __init__(self, store: TCPStore, rank: int, *, stops: bool = False) -> None:
        self.events: list[tuple[str, Any]] = []
        coords = RankAssignment(
            rank=rank, world_size=2, local_rank=rank, local_world_size=2, master_host="127.0.0.1", master_port=1
        )
        self.ranks = Ranks(store, coords, lambda kind, data: self.events.append((kind, data)), lambda: stops)

    def run(self, program: Program) -> tuple[str, str, str]:
        """The model in the working copy and by the variable, and the shared script."""
        with prepared(program, {"MINE": "1"}, self.ranks) as start:
            wait_for_others(program, self.ranks)
            assert (start.folder / "train.py").exists() and start.env["MINE"] == "1"
            by_variable = Path(start.env[VARIABLE])
            found = (start.folder / "models/base/a", by_variable / "models/base/a", by_variable / "shared/train.py")
            return tuple(path.read_text() for path in found)  # type: ignore[return-value]


@pytest.fixture
def store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=PATIENCE_S))


def test_both_ranks_find_the_files_and_one_says_what_they_are(hub: Hub, program: Program, store: TCPStore) -> None:
    pair = [Rank(store, 0), Rank(store, 1)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda rank: rank.run(program), pair))
    assert found == [("weights", "weights", "print(1)")] * 2 and hub.asked["resolve a"] == 1
    assert pair[1].events == []
    ((kind, data),) = pair[0].events
    first, second = data["files"]
    assert kind == "files" and second == {"target": "shared", "source": program.mounts[1].source}
    assert {**first, "digest": ""} == {
        "target": "models/base", "source": "hf://org/model", "revision": COMMIT, "digest": "", "files": 1, "bytes": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("source", "cause", "said"),
    [
        (
            "hf://org/lost",
            "files_not_fetched",
            "the files cannot be fetched: hf://org/lost: there is no such repository",
        ),
        ("/no/such/path", "files_not_fetched", "the files cannot be fetched: /no/such/path is not on this node"),
        ("hf://org/model", "files_unreachable", "hf://org/model: the Hub answers with status 503"),
    ],
)
def test_a_source_that_fails_is_the_cause(
    hub: Hub, program: Program, store: TCPStore, source: str, cause: str, said: str
) -> None:
    hub.failing = 100 if cause == "files_unreachable" else 0
    changed = replace(program, mounts=(Mount("models/base", source),))
    with pytest.raises(ProgramFailed) as failed:
        Rank(store, 0).run(changed)
    assert failed.value.failed.facts.cause == cause and said in failed.value.failed.message


def test_code_at_the_path_of_files_is_not_replaced(hub: Hub, program: Program, store: TCPStore) -> None:
    changed = replace(program, mounts=(Mount("train.py", "hf://org/model"),))
    with pytest.raises(ProgramFailed, match=r"files\[train.py\]: the code has something at this path"):
        Rank(store, 0).run(changed)


def test_a_rank_that_is_to_end_does_not_wait_for_rank_0(hub: Hub, program: Program, store: TCPStore) -> None:
    with pytest.raises(EndRequested):
        Rank(store, 1, stops=True).run(program)
    assert hub.asked.total() == 0


@pytest.mark.parametrize(
    ("code", "cause"),
    [(errno.ENOSPC, cache_disk.FULL), (errno.EROFS, cache_disk.FAILED), (errno.EIO, cache_disk.FAILED)],
)
def test_a_cache_that_cannot_be_written_is_no_fault_of_the_program(
    program: Program, store: TCPStore, monkeypatch: pytest.MonkeyPatch, code: int, cause: str
) -> None:
    def unpack(*_: Any) -> None:
        raise OSError(code, os.strerror(code), "/cache/code/job-a")

    monkeypatch.setattr(working_copy, "unpack", unpack)
    with pytest.raises(ProgramFailed, match=os.strerror(code)) as failed:
        Rank(store, 0).run(program)
    found = failed.value.failed.facts
    assert found.cause == cause and found.cause in INFRASTRUCTURE and not found.unattributed


def test_an_archive_that_is_gone_is_no_fault_of_the_node(program: Program, store: TCPStore) -> None:
    """Each node would fail in the same way, and be cordoned."""
    assert program.code is not None
    (Path(program.code.archive) / part_name(0)).unlink()
    with pytest.raises(ProgramFailed, match=r"part-0000 in .* cannot be read") as failed:
        Rank(store, 0).run(program)
    assert failed.value.failed.facts.cause == "exception"


def test_a_path_that_is_too_long_for_the_cache_is_no_fault_of_the_node(
    program: Program, store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpack(*_: Any) -> None:
        raise OSError(errno.ENAMETOOLONG, "File name too long", "/cache/code/job-a")

    monkeypatch.setattr(working_copy, "unpack", unpack)
    with pytest.raises(OSError, match="too long"):
        Rank(store, 0).run(program)


def test_ranks_wait_as_long_as_one_may_rightly_take(
    program: Program, store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job may build the same environment, in vain, and then the rank does; its code was unpacked before."""
    limits: list[float] = []
    monkeypatch.setattr(preparation, "wait_for_all", lambda *arguments: limits.append(arguments[-1]))
    ranks = Rank(store, 0).ranks
    wait_for_others(replace(program, files=None, python=PythonEnvironment(requirements=("alpha",))), ranks)
    wait_for_others(replace(program, files=None, code=None, conda="environment.yml"), ranks)
    wait_for_others(replace(program, conda="environment.yml"), ranks)
    build_s = environment_folder.WAIT_S + environment_folder.BUILD_S
    code_s, files_s = 2 * working_copy.WAIT_S, 2 * job_files.WAIT_S
    assert len(limits) == 3 and limits[0] >= code_s + build_s
    assert limits[1] >= build_s and limits[2] >= code_s + files_s + build_s


def test_ranks_that_come_late_are_a_fault_of_machines_and_not_of_the_rank_that_waits(
    program: Program, store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CODE_S", "FILES_S"):
        monkeypatch.setattr(preparation, name, 0.01)
    with pytest.raises(ProgramFailed, match=r"other ranks have not prepared the program within 0\.04 s") as failed:
        wait_for_others(program, Rank(store, 0).ranks)
    found = failed.value.failed.facts
    assert found.cause == NOT_PREPARED and found.cause in INFRASTRUCTURE and found.unattributed


def test_a_folder_that_another_process_makes_for_too_long_is_a_fault_of_machines(
    program: Program, store: TCPStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_copy, "WAIT_S", 0.0)
    (tmp_path / "cache/code").mkdir(parents=True)
    with (tmp_path / "cache/code/job-a.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ProgramFailed, match="another process has not made") as failed:
            Rank(store, 0).run(program)
    assert failed.value.failed.facts.cause == NOT_PREPARED
