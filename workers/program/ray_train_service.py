"""What Ray Train asks of a rank's trainer process: to keep its checkpoints as the job's, and to report the failures of its workers.

Its controller asks rank 0, and each of its workers the rank beside which it runs (`ray_train_reports.py`). All other requests of the
program go to `CheckpointService`.
"""

import math
import threading
from collections.abc import Sequence
from typing import Any, Final

from ..messages.event import read, to_json
from ..messages.rank_event import RayWorkersFailedEvent, RayWorkersStartedEvent
from ..storage.errors import StorageError
from ..storage.folder import Folder
from ..storage.open_folder import folder_at
from ..trainer.event_outbox import EmitEvent
from .checkpoint_service import Answer, CheckpointService
from .program import Program
from .rank_meeting import RankMeeting

#: How Ray Train's names begin of runs that the script has not named. They end with the time, so that each start has another.
UNNAMED: Final = "ray_train_run-"
#: More than the trainers of a driver process: trainers are numbered by both.
_TRAINERS: Final = 1 << 20


class RayTrainService:
    """Answers one rank's requests. `emit`: emits events of the rank."""

    def __init__(self, program: Program, checkpoints: CheckpointService, meeting: RankMeeting, emit: EmitEvent) -> None:
        self._program, self._checkpoints, self._meeting, self._emit = program, checkpoints, meeting, emit
        self._drivers: list[int] = []  # the ids of driver processes, in the order in which their first trainers began
        self._lock = threading.Lock()

    def answer(self, request: dict[str, Any], handles: list[int]) -> Answer:
        """Carry out a request. Every failure becomes the answer's `error`."""
        asked = request.get("ray_train")
        if asked is None:
            return self._checkpoints.answer(request, handles)
        try:
            match asked:
                case "begins":
                    trainer = self._number(request["driver"], request["trainer"])
                    return self._begin(trainer, request["name"], own=request["own_retention"])
                case "stored":
                    adopted = {name: request[name] for name in ("where", "step", "trainer")}
                    return self._checkpoints.answer({"adopt": adopted}, [])
                case "worker":
                    return self._resume(request["trainer"], request["worker"], wanted=request["resumes"])
                case "failed":
                    return self._fail(request["trainer"], request["failures"], request["message"])
                case "started":
                    return self._start_again(float(request["seconds"]))
        except RuntimeError as error:  # what torch's store raises
            return {"error": f"rank 0 does not answer: {error}"}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            return {"error": f"the request cannot be read: {error!r}; use one version of Shardyard."}
        return {"error": f"there is no request {asked!r}; use one version of Shardyard."}

    def _number(self, driver: int, trainer: int) -> int:
        """The number of a driver process's trainer in this start of the command: in the first process as it numbers them itself."""
        with self._lock:
            if driver not in self._drivers:
                self._drivers.append(driver)
            return self._drivers.index(driver) * _TRAINERS + trainer

    def _begin(self, trainer: int, name: str, *, own: bool) -> Answer:
        """A trainer begins: its number, the step of the newest checkpoint, and how many the job keeps.

        `own`: the script has set no retention.
        """
        found = self._checkpoints.answer({"newest": {}}, [])
        if self._program.resume is not None and found.get("step", 0) is None:
            found = self._checkpoints.answer({"resume": {"rank": None, "trainer": trainer}}, [])
        if own and trainer == 1 and name.startswith(UNNAMED) and found.get("step") is not None:
            self._remove_runs(name)
        return found | {"keep": self._program.keep, "trainer": trainer}

    def _remove_runs(self, name: str) -> None:
        """Remove what unnamed runs of earlier starts have stored: no script finds them again, and the job has the newest checkpoints."""
        if self._program.ray is None or self._program.ray.storage is None:
            return
        try:
            root = folder_at(self._program.ray.storage)
            for old in root.folders():
                if old.startswith(UNNAMED) and old != name:
                    _remove(root / old)
        except (StorageError, OSError):  # they take room only
            return

    def _resume(self, trainer: int, worker: int, *, wanted: bool) -> Answer:
        """A worker begins. The checkpoint from which it continues, if one is wanted and the trainer of this number has saved it."""
        self._meeting.place(trainer, worker)
        if not wanted:
            return {"step": None}
        return self._checkpoints.answer({"resume": {"rank": None, "trainer": trainer}}, [])

    def _fail(self, trainer: int, failures: Sequence[dict[str, Any]], message: str) -> Answer:
        known = [one | {"rank": self._meeting.rank_of(trainer, int(one["worker"]))} for one in failures]
        self._send(read(RayWorkersFailedEvent, {"failures": known, "message": message}))
        return {}

    def _start_again(self, seconds: float) -> Answer:
        if not math.isfinite(seconds):
            raise ValueError(f"seconds is {seconds}")
        self._send(RayWorkersStartedEvent(seconds=seconds))
        return {}

    def _send(self, event: RayWorkersFailedEvent | RayWorkersStartedEvent) -> None:
        self._emit(event.kind, to_json(event))


def _remove(folder: Folder) -> None:
    """With all folders in it. Those of a bucket are removed one by one."""
    for name in folder.folders():
        _remove(folder / name)
    folder.remove_all()
