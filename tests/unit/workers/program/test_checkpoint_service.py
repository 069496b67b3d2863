"""What ranks' trainer processes do for `shardyard.checkpoint` and `shardyard.resume`, with a real store and real storage."""

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harness.bad_disk import BadDisk
from harness.checkpoint_services import content, gang, save
from harness.control_plane import until
from harness.full_disk import FullDisk
from harness.patience import PATIENCE_S
from torch.distributed import DistNetworkError  # type: ignore[attr-defined]

from shardyard.workers.checkpoint.manifest import MANIFEST
from shardyard.workers.checkpoint.program_files import read_program
from shardyard.workers.checkpoint.retention import complete, folder, step_of
from shardyard.workers.program import checkpoint_service, storage_tries
from shardyard.workers.program.program import RayShare
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.open_folder import folder_at
from shardyard.workers.supervisor.policies.failures import Failure


def locks(tmp_path: Path) -> int:
    """Descriptors of this process by which copies of checkpoints are locked."""
    links = (file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink())
    return sum(link.parent == tmp_path / "cache/checkpoints" for link in links)


@pytest.mark.parametrize("where", ["folder", pytest.param("bucket", marks=pytest.mark.full)])
def test_a_generation_continues_from_what_the_one_before_saved(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    at = {} if where == "folder" else {"checkpoints": f"{request.getfixturevalue('prefix')}/job"}
    with gang(tmp_path, **at) as first:
        assert first.resume() == [(None, None)] * 2
        for step in (10, 20, 30):
            assert "error" not in first.save(step, f"step {step}")[0]
        assert first.kinds() == [("checkpoint", 10), ("checkpoint", 20), ("checkpoint", 30)]
        assert first.events[-1][1]["kept"] == [20, 30]
        assert first.resume() == [(None, None)] * 2  # a process has one answer
    with gang(tmp_path, **at) as second:
        assert second.resume() == [(30, "step 30")] * 2
        assert second.resume() == [(30, "step 30")] * 2
        assert locks(tmp_path) == 2, "each call keeps a descriptor"
        assert len(list((tmp_path / "cache/checkpoints").glob("job-*[0-9]"))) == 1  # once per node


def test_a_step_of_all_ranks_is_complete_with_the_last_part(tmp_path: Path) -> None:
    with gang(tmp_path) as first:
        first.save(1, "old", rank=None)
        assert "error" not in save(first.services[0], 2, "torn", every=True)  # rank 1 dies
        assert first.kinds() == [("checkpoint", 1)]
    with gang(tmp_path) as second:
        assert second.resume() == [(1, "old 0"), (1, "old 1")]
        second.save(2, "new", rank=None)
        assert save(second.services[1], 2, "new 1", every=True).keys() == {"path"}  # the same once more
        assert "other content as step 2" in save(second.services[1], 2, "changed", every=True)["error"]
        assert second.kinds() == [("checkpoint", 2)]
        assert len(folder(folder_at(str(tmp_path / "storage/job")), 2).files()) == 3
    with gang(tmp_path) as third:
        assert third.resume() == [(2, "new 0"), (2, "new 1")]
        asked = third.services[0].answer({"resume": {"rank": 1}}, [])
        assert (content(asked), asked["ranks"]) == ((2, "new 1"), [0, 1])
    with gang(tmp_path, world=3) as fourth:
        found = fourth.on_all(lambda service, _: service.answer({"resume": {"rank": None}}, []))
        assert ["error" in one for one in found] == [False, False, True] and "resume(rank=…)" in found[2]["error"]


def test_ranks_that_the_launcher_starts_again_continue_from_what_they_have_saved(tmp_path: Path) -> None:
    with gang(tmp_path) as only:
        assert only.resume() == [(None, None)] * 2
        only.save(1, "one", rank=None)
        assert "error" not in only.save_part(only.services[0], 2, "torn")
        for restarts, newest in enumerate(("one", "two"), 1):
            only.restarts = restarts
            assert only.resume() == [(restarts, f"{newest} 0"), (restarts, f"{newest} 1")]
            assert locks(tmp_path) == 2, "copies of the start before are still locked"
            only.save_part(only.services[1], 2, "two 1")
            assert only.kinds()[1:] == [("checkpoint", 2)] * (restarts - 1), "a part of the start before counts"
            only.save_part(only.services[0], 2, "two 0")
            assert only.kinds()[1:] == [("checkpoint", 2)] * restarts


def test_a_resume_that_failed_may_be_tried_again(tmp_path: Path) -> None:
    """On all ranks: also one that asks when the storage is back fails first, as the others did."""
    storage = tmp_path / "storage/job"
    with gang(tmp_path) as first:
        first.save(1, "one")
    storage.rename(tmp_path / "away")
    storage.symlink_to(storage)
    with gang(tmp_path) as second:
        assert "repair the storage" in second.services[0].answer({"resume": {"rank": None}}, [])["error"]
        storage.unlink()
        (tmp_path / "away").rename(storage)
        assert "symbolic links" in second.services[1].answer({"resume": {"rank": None}}, [])["error"]
        assert second.resume() == [(1, "one")] * 2


@pytest.mark.parametrize("missing", [False, True])
def test_a_damaged_part_of_a_rank_that_there_is_no_longer_is_found(missing: bool, tmp_path: Path) -> None:
    with gang(tmp_path, world=4) as larger:
        for step in (1, 2):
            larger.save(step, f"step {step}", rank=None)
    newest = complete(folder_at(str(tmp_path / "storage/job")))[0]
    name = read_program(newest).parts[3]["weights"]
    newest.remove(name) if missing else newest.write(name, memoryview(b"damaged"))
    with gang(tmp_path) as smaller:
        assert smaller.resume() == [(1, "step 1 0"), (1, "step 1 1")]
        assert smaller.kinds() == [("incident", 2)]
        asked = smaller.services[0].answer({"resume": {"rank": 3}}, [])
        assert content(asked) == (1, "step 1 3")


def test_a_manifest_that_could_not_be_written_is_written_by_the_next_try(tmp_path: Path) -> None:
    in_the_way = tmp_path / "storage/job/step-00000001/manifest.json"
    with gang(tmp_path) as first:
        in_the_way.mkdir(parents=True)
        assert ["error" in one for one in first.save(1, "same", rank=None)].count(True) == 1
        assert first.kinds() == []
        in_the_way.rmdir()
        again = first.save(1, "same", rank=None)
        assert not any("error" in one for one in again), again
        assert first.kinds() == [("checkpoint", 1)]
    with gang(tmp_path) as second:
        assert second.resume() == [(1, "same 0"), (1, "same 1")]


@pytest.mark.parametrize("every", [False, True])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_used(every: bool, tmp_path: Path) -> None:
    with gang(tmp_path) as first:
        for step in (1, 2):
            first.save(step, f"step {step}", rank=None if every else 0)
    newest = complete(folder_at(str(tmp_path / "storage/job")))[0]
    saved = read_program(newest)
    newest.write(saved.parts[max(saved.parts)]["weights"], memoryview(b"damaged"))
    with gang(tmp_path) as second:
        assert [step for step, _ in second.resume()] == [1, 1]
        assert second.kinds() == [("incident", 2)]
        assert second.events[0][1]["cause"] == "checkpoint_corrupt"
        second.save(3, "step 3", rank=None if every else 0)
        kept = [event["kept"] for kind, event in second.events if kind == "checkpoint"]
        assert kept == [[1, 3]], "of two checkpoints the valid one is kept"


def test_ranks_that_the_launcher_starts_again_do_not_wait_for_the_processes_before(tmp_path: Path) -> None:
    """One of those had asked, and another had died before it did."""
    with gang(tmp_path) as first:
        first.save(1, "one", rank=None)
    with gang(tmp_path) as only, ThreadPoolExecutor(1) as pool:
        before = pool.submit(only.services[0].answer, {"resume": {"rank": None}}, [])
        until(only.services[0]._lock.locked, PATIENCE_S, "the request of the processes before")
        only.restarts = 1
        assert only.resume() == [(1, "one 0"), (1, "one 1")]
        assert "error" in before.result(PATIENCE_S)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> BadDisk:
    monkeypatch.setattr(storage_tries, "BACKOFF_S", (0.0,))
    return BadDisk(monkeypatch)


def save_steps(tmp_path: Path, *steps: int, rank: int | None = 0) -> None:
    with gang(tmp_path) as first:
        for step in steps:
            first.save(step, f"step {step}", rank)


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize("every", [False, True])
def test_the_one_before_a_checkpoint_that_cannot_be_read_is_used(
    every: bool, part: bool, tmp_path: Path, disk: BadDisk
) -> None:
    save_steps(tmp_path, 1, 2, rank=None if every else 0)
    older, newest = (folder(folder_at(str(tmp_path / "storage/job")), step) for step in (1, 2))
    parts = read_program(newest).parts
    disk.files = {f"{newest}/{parts[max(parts)]['weights'] if part else MANIFEST}"}
    with gang(tmp_path) as second:
        assert second.resume() == ([(1, "step 1 0"), (1, "step 1 1")] if every else [(1, "step 1")] * 2)
        assert [(data["cause"], data["step"]) for _, data in second.events] == [("storage_unreachable", 2)]
    # Then it is the only one, or the other one is damaged: the program does not begin afresh.
    for damage in (
        lambda: older.write(read_program(older).parts[0]["weights"], memoryview(b"damaged")),
        older.remove_all,
    ):
        damage()
        with gang(tmp_path, cache=str(tmp_path / "cold")) as third:
            answers = third.on_all(lambda service, _: service.answer({"resume": {"rank": None}}, []))
            assert all("no other checkpoint is valid" in one["error"] for one in answers), answers
    assert not newest.has("corrupt")


def test_a_driver_saves_beside_a_checkpoint_that_cannot_be_read(tmp_path: Path, disk: BadDisk) -> None:
    """It may be the newest of another trainer, and stays."""
    save_steps(tmp_path, 1, 2)
    disk.files = {f"{folder(folder_at(str(tmp_path / 'storage/job')), 2)}/{MANIFEST}"}
    with gang(tmp_path, ray=RayShare(1 << 20)) as second:
        second.save(3, "step 3")
        assert [event["kept"] for kind, event in second.events if kind == "checkpoint"] == [[2, 3]]


@pytest.mark.parametrize(("file", "number"), [("*-weights", errno.EIO), (f"{MANIFEST}.*", errno.ESTALE)])
def test_a_save_outlives_a_file_system_that_does_not_answer_once(
    file: str, number: int, tmp_path: Path, disk: BadDisk
) -> None:
    disk.files, disk.number, disk.tries = {f"{tmp_path}/storage/job/step-00000001/{file}"}, number, 1
    with gang(tmp_path) as first:
        answers = first.save(1, "one", rank=None)
        assert disk.tries == 0 and not any("error" in one for one in answers), answers
    with gang(tmp_path) as second:
        assert second.resume() == [(1, "one 0"), (1, "one 1")]


def test_a_job_continues_another_one_until_it_has_its_own(tmp_path: Path) -> None:
    with gang(tmp_path) as other:
        other.save(5, "theirs")
    own = {"checkpoints": str(tmp_path / "storage/own"), "resume": str(tmp_path / "storage/job")}
    with gang(tmp_path, **own) as first:
        assert first.resume() == [(5, "theirs")] * 2
        first.save(6, "mine")
    with gang(tmp_path, **own) as second:
        assert second.resume() == [(6, "mine")] * 2
    assert [step_of(path) for path in complete(folder_at(str(tmp_path / "storage/job")))] == [5]


def test_ranks_that_all_save_alone_get_a_remedy(tmp_path: Path) -> None:
    with gang(tmp_path) as first:
        first.save(1, "one", rank=0)
        (refused,) = first.save(1, "two", rank=1)
        assert "rank 1 saves step 1 alone, which rank 0 saves, too. Call it on one rank only" in refused["error"]
        assert first.kinds() == [("checkpoint", 1)]
        (again,) = first.save(1, "three", rank=0)
        assert "error" not in again


def test_a_store_that_is_gone_is_a_lost_peer(tmp_path: Path) -> None:
    """The program's exception has no frame of torch: the supervisor knows it by the name of torch's error."""

    class Gone:
        def compare_set(self, *_: str) -> bytes:
            raise DistNetworkError("Failed to recv, got 0 bytes. Connection was likely closed.")

    with gang(tmp_path) as first:
        first.services[1]._meeting._store = Gone()  # type: ignore[assignment]
        error = save(first.services[1], 1, "x")["error"]
    trace = f'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\nCheckpointFailed: {error}\n'
    assert Failure("exception", 1, f"CheckpointFailed: {error}", "node", trace).is_lost_connection, error


def test_what_cannot_be_done_is_an_answer(tmp_path: Path) -> None:
    with gang(tmp_path, world=1) as alone:
        (service,) = alone.services
        assert "between 0 and" in save(service, -1, "x")["error"]
        assert (
            "does not exist"
            in service.answer(
                {"save": {"step": 1, "every": False, "kind": "files", "path": str(tmp_path / "none")}}, []
            )["error"]
        )
        assert "cannot be read" in service.answer({"save": {}}, [])["error"]
    (tmp_path / "file").touch()
    with gang(tmp_path, world=1, checkpoints=str(tmp_path / "file" / "below")) as full:
        assert "repair the storage" in save(full.services[0], 1, "x")["error"]


def test_a_checkpoint_that_a_rank_still_reads_is_not_removed(tmp_path: Path) -> None:
    with gang(tmp_path) as first:
        first.save(1, "one")
    with gang(tmp_path, keep=1) as second:
        assert content(second.services[0].answer({"resume": {"rank": None}}, [])) == (1, "one")
        second.save(2, "two")
        second.save(3, "three")
        assert second.events[-1][1]["kept"] == [1, 3]
        assert content(second.services[1].answer({"resume": {"rank": None}}, [])) == (1, "one")
        second.save(4, "four")
        assert second.events[-1][1]["kept"] == [4]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch, tmp_path / "storage", 1 << 20)


def test_not_every_rank_looks_for_room_on_a_full_disk(
    tmp_path: Path, small: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They write to the same folder. A second one looks if the first did so before all had begun the step."""
    small.size, usual, asked = 0, checkpoint_service.make_room, list[int]()

    def make_room(root: Folder, step: int, *more: Any) -> bool:
        asked.append(step)
        return usual(root, step, *more)

    monkeypatch.setattr(checkpoint_service, "make_room", make_room)
    with gang(tmp_path, world=6) as full:
        answers = full.save(1, "x", rank=None)
    assert all("No space left" in one["error"] for one in answers), answers
    assert len(asked) in (1, 2)


#: Of a part. A manifest has fewer bytes.
WEIGHTS = "w" * 10_000


@pytest.mark.parametrize("step", [3, 4])
@pytest.mark.parametrize("every", [False, True])
def test_a_full_disk_has_room_again_for_the_save_after_one_that_was_killed(
    every: bool, step: int, tmp_path: Path, small: FullDisk
) -> None:
    with gang(tmp_path, world=3) as first:
        for older in (1, 2):
            first.save(older, WEIGHTS, None if every else 0)
        for one in first.services[1:]:
            save(one, 3, WEIGHTS, every=True)  # rank 0 dies
    small.size = small.used() + (15_000 if every else 5_000)
    with gang(tmp_path) as second:
        answers = second.save(step, WEIGHTS, None if every else 0)
        assert not any("error" in one for one in answers), answers
        assert second.kinds() == [("checkpoint", step)]
    root = folder_at(str(tmp_path / "storage/job"))
    assert sorted(root.folders()) == ["step-00000002", f"step-{step:08d}"]
    assert len(folder(root, step).files()) == (3 if every else 2)


def test_parts_of_a_save_of_which_one_failed_make_room_once_all_ranks_save_a_later_step(
    tmp_path: Path, small: FullDisk
) -> None:
    with gang(tmp_path) as only:
        first, second = only.services
        only.save(1, WEIGHTS, rank=None)
        assert "error" not in only.save_part(first, 2, WEIGHTS)
        usual, small.size = small.size, small.used()
        assert "No space left" in only.save_part(second, 2, WEIGHTS)["error"]
        assert (
            "No space left" in only.save_part(first, 3, WEIGHTS)["error"]
        )  # the second may yet save its part of step 2
        small.size = usual
        assert "error" not in only.save_part(second, 2, WEIGHTS)
        assert only.kinds() == [("checkpoint", 1), ("checkpoint", 2)]
        assert "error" not in only.save_part(second, 3, WEIGHTS)  # and the first goes on
        small.size = small.used() + 15_000
        assert "error" not in only.save_part(first, 4, WEIGHTS)
        assert "error" not in only.save_part(second, 4, WEIGHTS)
        assert only.kinds()[2:] == [("checkpoint", 4)]
    assert sorted(path.name for path in (tmp_path / "storage/job").iterdir()) == ["step-00000002", "step-00000004"]
