"""A job's files on a node: pinned when they are first read, fetched once for all ranks and jobs, within a budget."""

import errno
import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.bucket import Buckets
from harness.control_plane import until
from harness.hub import Hub, Repository, running_hub
from harness.patience import PATIENCE_S

from shardyard.workers.messages.mounted_files import MountedFiles
from shardyard.workers.program.files import fetch, interruption
from shardyard.workers.program.files import job_files as module
from shardyard.workers.program.files.errors import NO_ROOM, NOT_FETCHED, FilesNotFetched
from shardyard.workers.program.files.job_files import JobFiles
from shardyard.workers.program.files.listing import Listing
from shardyard.workers.program.files.source import Source
from shardyard.workers.program.program import FilesCache, Mount
from shardyard.workers.program.shared_folder import EndRequested
from shardyard.workers.storage.open_folder import folder_at

OLD, NEW = "a" * 40, "b" * 40


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A model, and datasets of 100 bytes."""
    monkeypatch.setattr(module, "_SPARE_BYTES", 0)
    with running_hub() as found:
        found.repositories["org/model"] = Repository({OLD: {"a": b"old"}, NEW: {"a": b"new"}}, {"main": OLD})
        for name in ("one", "two", "three"):
            content = {OLD: {"a": name.encode() * 20, "b": bytes(100 - 20 * len(name))}}
            found.repositories[f"datasets/org/{name}"] = Repository(content, {"main": OLD})
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        yield found


def never() -> bool:
    return False


def of_job(
    tmp_path: Path, *sources: str, job: str = "job-a", most: int = 1 << 30, stops: Callable[[], bool] = never
) -> JobFiles:
    mounts = [Mount(f"m{number}", source) for number, source in enumerate(sources)]
    return JobFiles(mounts, FilesCache(str(tmp_path / "storage" / job), most), tmp_path / "cache", stops)


def test_a_later_attempt_sees_what_the_first_has_seen(hub: Hub, tmp_path: Path) -> None:
    """Also on another node, although the branch has moved. A new job sees the new commit."""
    files = of_job(tmp_path, "hf://org/model")
    record = files.resolve()
    hub.repositories["org/model"].refs["main"] = NEW
    later = of_job(tmp_path, "hf://org/model")
    assert later.resolve() == later.recorded() == record
    with later.held(record) as found:
        assert (found["m0"] / "a").read_text() == "old"
    digest = record.listings["m0"].digest
    assert later.mounted(record) == [
        MountedFiles(target="m0", source="hf://org/model", revision=OLD, digest=digest, files=1, bytes=3)
    ]
    other = of_job(tmp_path, "hf://org/model/a", job="job-b")
    with other.held(other.resolve()) as found:
        assert found["m0"].read_text() == "new"


def test_two_first_ranks_at_once_have_one_record(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank 0 of an attempt that was given up lists the source before it changes, and writes after its successor."""
    given_up, successor = of_job(tmp_path, "hf://org/model"), of_job(tmp_path, "hf://org/model")
    listing, records = module._listing, list[Any]()

    def listed(source: Source) -> Listing:
        found = listing(source)
        if not records:
            records.append(None)
            hub.repositories["org/model"].refs["main"] = NEW
            records.append(successor.resolve())
        return found

    monkeypatch.setattr(module, "_listing", listed)
    records.append(given_up.resolve())
    _, first, second = records
    assert first == second == successor.recorded() and first.listings["m0"].revision == NEW


def test_what_the_sources_had_is_not_in_memory_while_the_program_runs(hub: Hub, tmp_path: Path) -> None:
    """Of each rank, for as long as a training lasts."""
    files = of_job(tmp_path, "hf://datasets/org/one")
    record = files.resolve()
    known = weakref.ref(record.listings["m0"])

    def is_gone() -> bool:
        gc.collect()  # of a request's objects, some refer to each other
        return known() is None

    with files.held(record):
        del record
        until(is_gone, PATIENCE_S, "the ends of the threads that have read it")


def test_four_ranks_of_two_jobs_fetch_once(hub: Hub, tmp_path: Path) -> None:
    jobs = [of_job(tmp_path, "hf://datasets/org/one", job=name) for name in ("job-a", "job-b")]
    records = [job.resolve() for job in jobs]
    together = threading.Barrier(4)

    def rank(number: int) -> Path:
        together.wait(PATIENCE_S)
        with jobs[number % 2].held(records[number % 2]) as found:
            return found["m0"]

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(rank, range(4)))) == 1
    assert (hub.asked["resolve a"], hub.asked["resolve b"]) == (1, 1)


def test_the_least_recently_used_goes_and_what_a_job_holds_stays(hub: Hub, tmp_path: Path) -> None:
    cache = tmp_path / "cache/files"
    held = of_job(tmp_path, "hf://datasets/org/one", job="one", most=250)
    with held.held(held.resolve()) as found:
        for job in ("two", "three"):
            other = of_job(tmp_path, f"hf://datasets/org/{job}", job=job, most=250)
            with other.held(other.resolve()) as theirs:
                there = {path.name for path in cache.iterdir() if path.is_dir()}
                assert there == {found["m0"].name, theirs["m0"].name}
            os.utime(cache / f"{found['m0'].name}.lock", (1, 1))  # it is the oldest, but in use
        tight = of_job(tmp_path, "hf://datasets/org/two", job="four", most=150)
        record = tight.resolve()
        with (
            pytest.raises(FilesNotFetched, match=r"running jobs hold 100 of the 150 bytes .*wait for their") as full,
            tight.held(record),
        ):
            pass
        assert full.value.cause == NO_ROOM
    with tight.held(record) as theirs:
        assert {path.name for path in cache.iterdir() if path.is_dir()} == {theirs["m0"].name}
    small = of_job(tmp_path, "hf://datasets/org/one", job="five", most=99)
    with (
        pytest.raises(FilesNotFetched, match="its 100 bytes exceed the 99 that a node keeps") as large,
        small.held(small.resolve()),
    ):
        pass
    assert large.value.cause == NOT_FETCHED


def test_a_job_whose_sources_together_exceed_the_budget_is_not_tried_again(hub: Hub, tmp_path: Path) -> None:
    """It would wait for the end of a running job: of itself. The same source at two paths counts once."""
    names = ("one", "one", "two")
    files = of_job(tmp_path, *(f"hf://datasets/org/{name}" for name in names), most=199)
    record = files.resolve()
    with pytest.raises(FilesNotFetched, match=r"org/two: 200 bytes, with the job's other") as large, files.held(record):
        pass
    assert large.value.cause == NOT_FETCHED
    enough = of_job(tmp_path, *(f"hf://datasets/org/{name}" for name in names), most=200)
    with enough.held(record) as found:
        assert len(set(found.values())) == 2


def test_a_disk_is_not_filled(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SPARE_BYTES", 1 << 60)
    files = of_job(tmp_path, "hf://datasets/org/one")
    record = files.resolve()
    with (
        pytest.raises(FilesNotFetched, match=r"org/one: it needs 100 bytes more.* make room") as full,
        files.held(record),
    ):
        pass
    assert full.value.cause == NO_ROOM and hub.asked["resolve a"] == 0


@pytest.mark.parametrize("clears", [True, False])
def test_a_full_disk_loses_what_no_rank_uses_before_a_job_fails(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clears: bool
) -> None:
    """It has no room for the note in the lock file, either."""
    old = of_job(tmp_path, "hf://datasets/org/one")
    with old.held(old.resolve()) as found:
        place = found["m0"]
    usual = module.reserve

    def reserve(lock: int, size: int) -> None:
        if place.exists() or not clears:
            raise OSError(errno.ENOSPC, "No space left on device")
        usual(lock, size)

    monkeypatch.setattr(module, "reserve", reserve)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=0 if place.exists() else 1 << 40))
    new = of_job(tmp_path, "hf://datasets/org/two", job="job-b")
    record = new.resolve()
    if clears:
        with new.held(record) as found:
            assert (found["m0"] / "a").is_file()
    else:
        with pytest.raises(FilesNotFetched, match="No space left on device; make room") as raised, new.held(record):
            pass
        assert raised.value.cause == NO_ROOM
    assert not place.exists()


def test_a_path_that_all_nodes_see_is_not_copied(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    files = of_job(tmp_path, str(shared))
    record = files.resolve()
    with files.held(record) as found:
        assert found == {"m0": shared}
    assert files.mounted(record) == [MountedFiles(target="m0", source=str(shared))]
    shared.rmdir()
    with (
        pytest.raises(FilesNotFetched, match="is not on this node, or cannot be read; name a path"),
        files.held(record),
    ):
        pass


def test_a_rank_that_is_to_end_waits_for_nothing(hub: Hub, tmp_path: Path) -> None:
    """Neither for an answer, nor for another process that fetches."""
    hub.gates["a"] = threading.Event()
    record = of_job(tmp_path, "hf://datasets/org/one").resolve()
    go_on = threading.Event()

    def fetcher() -> None:
        files = of_job(tmp_path, "hf://datasets/org/one", stops=go_on.is_set)
        with pytest.raises(EndRequested), files.held(record):
            pass

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(fetcher)
        assert hub.held.wait(PATIENCE_S)
        second = of_job(tmp_path, "hf://datasets/org/one", stops=lambda: True)
        with pytest.raises(EndRequested), second.held(record):
            pass
        go_on.set()
        first.result(PATIENCE_S)
    hub.gates.pop("a").set()


def test_a_record_that_was_changed_is_refused(hub: Hub, tmp_path: Path) -> None:
    files = of_job(tmp_path, "hf://datasets/org/one")
    record = files.resolve()
    path = tmp_path / "storage/job-a/files.json"
    path.write_text(path.read_text().replace('"path":"a"', '"path":"../a"'))
    with pytest.raises(FilesNotFetched, match="unfit as the name of a file"):
        files.recorded()
    path.write_text("{")
    with pytest.raises(FilesNotFetched, match="cannot be read"):
        files.recorded()
    path.unlink()
    with pytest.raises(FilesNotFetched, match="says what the job's sources had, is gone"):
        files.recorded()
    assert files.resolve() == record


@pytest.mark.full
def test_a_bucket_whose_server_dies_in_the_middle(
    buckets: Buckets, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fetch goes on when the server is back. An object that changed is named, where it is not cached."""
    monkeypatch.setattr(fetch, "BLOCK_BYTES", 1 << 20)
    monkeypatch.setattr(fetch, "AT_ONCE", 1)
    large = os.urandom((6 << 20) + 1)
    for name, value in {"a": b"first", "large": large}.items():
        folder_at(prefix).write(name, memoryview(value))
    record = of_job(tmp_path, prefix).resolve()
    key = prefix.removeprefix("s3:/")
    killed, down = threading.Event(), threading.Event()

    def stops() -> bool:
        """Once some blocks are there the server is killed, and started again when the fetch has noticed."""
        if buckets.asked[f"GET {key}/large"] >= 2 and not killed.is_set():
            killed.set()
            buckets.kill()
            threading.Thread(target=back).start()
        return False

    def back() -> None:
        assert down.wait(PATIENCE_S)
        buckets.start()

    tried = interruption.tried

    def noticed(do: Callable[[], bytes], is_to_stop: Callable[[], bool]) -> bytes:
        try:
            return do()
        except FilesNotFetched:
            down.set()
            return tried(do, is_to_stop)

    monkeypatch.setattr(fetch, "tried", noticed)
    files = of_job(tmp_path, prefix, stops=stops)
    with files.held(record) as found:
        assert killed.is_set() and (found["m0"] / "large").read_bytes() == large
    assert buckets.asked[f"GET {key}/a"] == 1
    folder_at(prefix).write("a", memoryview(b"second"))
    with of_job(tmp_path, prefix).held(record) as found:  # this node has what the record says
        assert (found["m0"] / "a").read_bytes() == b"first"
    elsewhere = JobFiles([Mount("m0", prefix)], replace(FilesCache("", 1 << 30)), tmp_path / "other", never)
    with (
        pytest.raises(FilesNotFetched, match=f"{prefix}: .*/a has changed since this job first"),
        elsewhere.held(record),
    ):
        pass
    again = of_job(tmp_path, prefix, job="job-b")
    with again.held(again.resolve()) as found:
        assert (found["m0"] / "a").read_bytes() == b"second"
