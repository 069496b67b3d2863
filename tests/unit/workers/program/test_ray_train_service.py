"""What ranks' trainer processes do for Ray Train, with a real store and real storage."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from shardyard.workers.checkpoint.retention import complete, folder, pin, step_of
from shardyard.workers.program.checkpoint_service import answering
from shardyard.workers.program.program import Program, RayShare
from shardyard.workers.program.rank_meeting import RankMeeting
from shardyard.workers.program.ray_train_service import UNNAMED, RayTrainService
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.open_folder import folder_at


@dataclass
class Gang:
    """The services of two ranks on one node, what they emitted, and the job's folder in the storage."""

    storage: Folder
    services: list[RayTrainService] = field(default_factory=list)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def ask(self, what: str, rank: int = 0, trainer: int = 1, **facts: Any) -> dict[str, Any]:
        found = self.services[rank].answer({"ray_train": what, "trainer": trainer, **facts}, [])
        assert "error" not in found, found
        return found

    def begins(
        self, name: str = f"{UNNAMED}2", *, own: bool = True, trainer: int = 1, driver: int = 7
    ) -> dict[str, Any]:
        return self.ask("begins", trainer=trainer, driver=driver, name=name, own_retention=own)

    def stores(self, step: int, trainer: int = 1, run: str = f"{UNNAMED}1") -> None:
        place = self.storage / run / f"checkpoint_{step}"
        place.write("weights", memoryview(f"step {step}".encode()))
        self.ask("stored", trainer=trainer, where=place.where, step=step)

    def worker(self, rank: int, trainer: int = 1, *, resumes: bool = True) -> tuple[int | None, str | None]:
        """The step and the text with which a worker beside the rank begins."""
        found = self.ask("worker", rank, trainer, worker=rank + 10, resumes=resumes)
        return found["step"], None if found["step"] is None else Path(found["path"], "weights").read_text()

    def steps(self) -> list[int]:
        return [step_of(path) for path in complete(self.storage)]


@contextmanager
def gang(tmp_path: Path, **changes: Any) -> Iterator[Gang]:
    """A new start of the driver."""
    where = changes.pop("checkpoints", str(tmp_path / "storage/job"))
    share = RayShare(1 << 30, storage=where)
    program = Program("job", ("true",), checkpoints=where, cache=str(tmp_path / "cache"), ray=share, **changes)
    store, made = TCPStore("127.0.0.1", 0, None, is_master=True), Gang(folder_at(where))
    emit = lambda kind, data: made.events.append((kind, data))  # noqa: E731
    with ExitStack() as stack:
        for rank in range(2):
            meeting = RankMeeting(TCPStore("127.0.0.1", store.port, None, is_master=False), rank, 2, lambda: False)
            service = stack.enter_context(answering(program, meeting, emit))
            made.services.append(RayTrainService(program, service, meeting, emit))
        yield made


def test_a_start_continues_from_what_ray_train_stored_in_the_one_before(tmp_path: Path) -> None:
    with gang(tmp_path) as first:
        assert first.begins() == {"step": None, "keep": 2, "trainer": 1}
        assert [first.worker(rank) for rank in (0, 1)] == [(None, None)] * 2
        for step in (1, 5, 9):
            first.stores(step)
        assert first.steps() == [9, 5]
        saved = [data for kind, data in first.events if kind == "checkpoint"]
        assert [(one["step"], one["kept"], one["held_s"]) for one in saved] == [
            (1, [1], 0.0),
            (5, [1, 5], 0.0),
            (9, [5, 9], 0.0),
        ]
    with gang(tmp_path) as second:
        assert second.begins()["step"] == 9
        assert [second.worker(rank) for rank in (0, 1)] == [(9, "step 9")] * 2
        assert second.worker(0, resumes=False) == (None, None)
        assert second.worker(0, trainer=2) == (None, None), "it is another trainer's"
    with gang(tmp_path, checkpoints=str(tmp_path / "other"), resume=str(tmp_path / "storage/job")) as other:
        assert other.begins()["step"] == 9 and other.worker(1) == (9, "step 9")
        assert other.begins(trainer=2)["step"] is None


def test_trainers_of_several_driver_processes_are_several(tmp_path: Path) -> None:
    """As of a command that runs two scripts: the second one does not continue from the model of the first."""
    with gang(tmp_path) as first:
        numbers = [
            first.begins(driver=driver, trainer=own)["trainer"] for driver, own in ((7, 1), (7, 2), (3, 1), (7, 3))
        ]
        assert (numbers[:2], numbers[3]) == ([1, 2], 3) and len({*numbers}) == 4
        assert first.begins(driver=3)["trainer"] == numbers[2], "one that begins again keeps its number"
        first.stores(5, trainer=numbers[0])
    with gang(tmp_path) as second:
        of_first, of_second = (second.begins(driver=driver)["trainer"] for driver in (11, 12))
        assert second.worker(0, trainer=of_second) == (None, None)
        assert second.worker(0, trainer=of_first) == (5, "step 5")
        second.stores(6, trainer=of_second)
    with gang(tmp_path) as third:
        of_first, of_second = (third.begins(driver=driver)["trainer"] for driver in (8, 4))
        assert third.worker(0, trainer=of_first) == (5, "step 5")
        assert third.worker(0, trainer=of_second) == (6, "step 6")


def test_each_trainer_of_a_driver_continues_from_its_own_newest_checkpoint(tmp_path: Path) -> None:
    """Also if their steps are the same numbers: as of folds, each of which counts from 0."""
    with gang(tmp_path) as first:
        for step in (50, 100):
            first.stores(step)
        for step in (10, 20):
            first.stores(step, trainer=2)
        assert first.steps() == [100, 20]
    with gang(tmp_path) as second:
        for trainer, newest in ((1, (100, "step 100")), (2, (20, "step 20")), (3, (None, None))):
            assert second.worker(0, trainer) == second.worker(1, trainer) == newest
        second.stores(100, trainer=2)
        for step in (99, 100):
            second.stores(step, trainer=3)
        assert second.steps() == [102, 101, 100], "the newest of each, however many the job keeps"
        assert "error" not in (found := second.services[0].answer({"resume": {"rank": None}}, []))
        assert found["step"] == 102, "the program's own is the newest of all"
    with gang(tmp_path) as third:
        assert [third.worker(0, trainer) for trainer in (1, 2, 3)] == [(step, "step 100") for step in (100, 101, 102)]
    with gang(tmp_path, checkpoints=str(tmp_path / "other"), resume=str(tmp_path / "storage/job")) as other:
        assert other.worker(1, trainer=2) == (101, "step 100")


def test_a_pinned_checkpoint_stays(tmp_path: Path) -> None:
    with gang(tmp_path, keep=1) as only:
        only.stores(1)
        pin(folder(only.storage, 1))
        for step in (2, 3):
            only.stores(step)
        (only.storage / f"{UNNAMED}1" / "checkpoint_1").remove_all()  # as Ray Train does
        assert only.steps() == [3, 1] and only.storage.folders()


def test_the_program_may_save_its_own_between_them(tmp_path: Path) -> None:
    """A worker of Ray Train does not take it for one of Ray Train."""
    file = tmp_path / "mine"
    file.write_text("mine")
    with gang(tmp_path) as first:
        first.stores(1)
        save = {"step": 2, "every": False, "kind": "files", "path": str(file)}
        assert "error" not in first.services[0].answer({"save": save}, [])
    with gang(tmp_path) as second:
        assert second.begins()["step"] == 2 and second.worker(0) == (1, "step 1")


def test_what_an_unnamed_run_left_is_removed_at_the_next_start(root: Folder, tmp_path: Path) -> None:
    """Unless the script has a retention of its own, or may still read it. A named run stays."""
    job = root / "job"
    (job / "named" / "checkpoint_1").write("weights", memoryview(b"named"))
    with gang(tmp_path, checkpoints=job.where) as first:
        first.begins(name=f"{UNNAMED}1")
        first.stores(4)
    others: list[dict[str, Any]] = [
        {"own": False},
        {"trainer": 2},
        {"driver": 8},
        {"name": "mine"},
        {"name": f"{UNNAMED}1"},
    ]
    with gang(tmp_path, checkpoints=job.where) as second:
        for changes in others:
            second.begins(**changes)
            assert (job / f"{UNNAMED}1" / "checkpoint_4").files(), changes
        second.begins()
        assert not (job / f"{UNNAMED}1" / "checkpoint_4").files()
        assert (job / "named" / "checkpoint_1").files() and second.worker(0) == (4, "step 4")


def test_a_failed_worker_is_reported_with_the_rank_beside_which_it_ran(tmp_path: Path) -> None:
    with gang(tmp_path) as only:
        only.worker(1)
        failures = [
            {"worker": 11, "message": "ValueError: once", "traceback": "Traceback"},
            {"worker": 12, "message": "gone", "traceback": None},
        ]
        only.ask("failed", failures=failures, message="again")
        only.ask("started", seconds=2.5)
    (failed, data), started = only.events
    assert failed == "ray_workers_failed" and started == ("ray_workers_started", {"seconds": 2.5})
    assert [(one["worker"], one["rank"]) for one in data["failures"]] == [(11, 1), (12, None)]


@pytest.mark.parametrize(
    "request_",
    [
        {"ray_train": "sings", "trainer": 1},
        {"ray_train": "stored"},
        {"ray_train": "failed", "trainer": 1, "failures": [{}], "message": ""},
        {"ray_train": "failed", "trainer": 1, "failures": [{"worker": 1e400, "message": ""}], "message": ""},
        {"ray_train": "failed", "trainer": 1, "failures": [{"worker": 1, "message": 3}], "message": ""},
        {"ray_train": "failed", "trainer": 1, "failures": [], "message": None},
        {"ray_train": "started", "trainer": 1, "seconds": math.nan},
        {"ray_train": "begins", "trainer": 1, "name": "x", "own_retention": True},
    ],
)
def test_a_request_that_is_not_understood_is_refused(request_: dict[str, Any], tmp_path: Path) -> None:
    with gang(tmp_path) as only:
        assert "one version of Shardyard" in only.services[0].answer(request_, [])["error"]
        assert not only.events
