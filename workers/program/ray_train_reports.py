"""What a script reports to Ray Train, as metrics and checkpoints of its job. Ray Train's controller calls it; the script is unchanged.

The agent names `TrainReports` in RAY_TRAIN_CALLBACKS of the driver. The class goes to the controller and to Ray Train's workers by value,
because this package may not be importable there. No error of it reaches the controller, which would end the training. A worker that
cannot read the checkpoint from which it is to continue fails.
"""

import contextlib
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, ClassVar, Final

from ray import cloudpickle
from ray.train import Checkpoint, UserCallback

try:
    from ray.train.v2._internal.execution.callback import (
        ControllerCallback,
        ReportCallback,
        WorkerCallback,
        WorkerGroupCallback,
    )
except ImportError:  # another version: it is not called, and the script runs without it

    class ControllerCallback(UserCallback):  # type: ignore[no-redef, misc, unused-ignore]
        """In the place of Ray Train's."""

    class ReportCallback(UserCallback):  # type: ignore[no-redef, misc, unused-ignore]
        """In the place of Ray Train's."""

    class WorkerCallback(UserCallback):  # type: ignore[no-redef, misc, unused-ignore]
        """In the place of Ray Train's."""

    class WorkerGroupCallback(UserCallback):  # type: ignore[no-redef, misc, unused-ignore]
        """In the place of Ray Train's."""


#: Metrics that are the step of a report, if they are whole numbers. Without them reports are counted.
STEPS: Final = ("step", "global_step")
#: Variable with the address of the job's folder in the storage.
STORAGE: Final = "SHARDYARD_JOB_STORAGE"
#: Ray's name of a local file system, and how addresses begin in others that the job can read.
LOCAL: Final = "local"
SCHEMES: Final = {LOCAL: "", "s3": "s3://"}
#: States of Ray Train's controller: its workers are to start again, and they train.
AGAIN: Final = ("RestartingState", "ReschedulingState")
RUNNING: Final = "RunningState"
#: Maximum characters of a failure's message, and of its traceback, whose end is kept. Secrets are masked later, where they are whole.
MOST_MESSAGE: Final = 500
MOST_TEXT: Final = 16 << 10
#: What precedes the guesses of Ray at why an actor's process has ended.
GUESSES: Final = "There are some potential root causes"


class TrainReports(ControllerCallback, ReportCallback, WorkerGroupCallback, WorkerCallback):  # type: ignore[misc, unused-ignore]
    """Logs the mean over the workers of each number that they report, and keeps the checkpoints. One object for each trainer's `fit`."""

    made: ClassVar[int] = 0  # in the driver

    def __init__(self) -> None:
        TrainReports.made += 1
        self._trainer = TrainReports.made  # until the trainer process numbers it among those of all driver processes
        self._driver = os.getpid()
        self._next = 0  # step of a report that names none
        self._failures: list[dict[str, Any]] = []  # of the workers, at the last look that found any
        self._failed_at: float | None = None  # while the workers start again

    def after_controller_start(self, train_run_context: Any) -> None:
        """Before the workers start. Reports are counted on from the job's newest checkpoint. Ray Train keeps as many as the job does."""
        with contextlib.suppress(AttributeError, TypeError):
            config = train_run_context.run_config
            own = in_job_storage(config.storage_path) and config.checkpoint_config.num_to_keep is None
            found = self._send("begins", driver=self._driver, name=config.name, own_retention=own)
            self._trainer = found.get("trainer", self._trainer)  # workers get a copy later
            if found.get("step") is not None:
                self._next = found["step"] + 1
            if own and "keep" in found:
                config.checkpoint_config.num_to_keep = found["keep"]

    def after_init_train_context(self) -> None:
        """In each worker, before it trains: without a checkpoint of Ray Train's own it continues from the job's. Raises RuntimeError."""
        try:
            from ray.train.v2._internal.execution.context import get_train_context
        except ImportError:
            return
        context = get_train_context()
        if not hasattr(context, "checkpoint"):  # another version
            return
        local = {"LOCAL_RANK": str(context.get_local_rank())}
        own = context.checkpoint is not None
        found = self._send("worker", local, worker=context.get_world_rank(), resumes=not own)
        if own:
            return
        if "error" in found:
            raise RuntimeError(f"the checkpoint of the job cannot be read: {found['error']}")
        if found.get("step") is not None:
            context.checkpoint = Checkpoint.from_directory(found["path"])

    def after_report(self, training_report: Any, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Ray Train has the report of all workers. `metrics`: one mapping per worker, in the order of their ranks."""
        step = step_of(metrics[0])
        step = self._next if step is None else step
        self._next = step + 1
        with contextlib.suppress(ImportError, ValueError, TypeError, OverflowError):
            from .metric_log import log

            if values := means(metrics):
                log(values, step)
        checkpoint = getattr(training_report, "checkpoint", None)
        if checkpoint is not None:
            self._keep(checkpoint, step)

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        """Ray Train has looked at its workers. Its decision on failures follows."""
        with contextlib.suppress(AttributeError, TypeError):
            errors = worker_group_status.errors
            if errors:
                texts = {rank: str(worker_group_status.worker_statuses[rank].error) for rank in errors}
                self._failures = [failure_of(rank, error, texts[rank]) for rank, error in sorted(errors.items())]

    def before_controller_execute_failure_decision(self, failure_decision: Any) -> None:
        """A worker has failed, and Ray Train has decided what follows: RETRY starts the workers again."""
        decision = getattr(failure_decision, "value", failure_decision)
        again = ": its workers start again" if decision == "RETRY" else ""
        _print(f"a worker of Ray Train has failed, and Ray Train decides {decision}{again}")

    def after_controller_state_update(self, previous_state: Any, current_state: Any) -> None:  # noqa: ARG002
        """The controller has another state. After the last one Ray kills its process, which has sent its last values by then."""
        state = type(current_state).__name__
        if state in AGAIN:
            failures, self._failures = self._failures, []
            self._failed_at = self._failed_at or time.monotonic()
            error = str(getattr(current_state, "training_failed_error", "")).strip()
            self._send("failed", failures=failures, message=beginning(error) or "Ray Train names no cause")
        elif state == RUNNING and self._failed_at is not None:
            self._send("started", seconds=time.monotonic() - self._failed_at)
            self._failed_at = None
        with contextlib.suppress(ImportError, AttributeError):
            from .metric_log import end

            if current_state.is_terminal():
                end()

    def _keep(self, checkpoint: Any, step: int) -> None:
        """Make a checkpoint that Ray Train has stored one of the job, which takes one reading of its files."""
        where = address_of(checkpoint)
        if where is None:
            kind = getattr(checkpoint.filesystem, "type_name", "?")
            _print(
                f"the checkpoint of step {step} is Ray Train's alone: the job cannot read a storage of the kind {kind}"
            )
            return
        found = self._send("stored", where=where, step=step)
        if "error" in found:
            _print(f"the checkpoint of step {step} is Ray Train's alone: {found['error']}")

    def _send(self, what: str, local: Mapping[str, str] | None = None, **facts: Any) -> dict[str, Any]:
        """The answer of the trainer process of the node's first rank, or of the one in `local`; empty outside a job."""
        try:
            from . import rank_request, report_socket
        except ImportError:
            return {}
        name = report_socket.socket_name({**os.environ, **(local or {})})
        if name is None or report_socket.LOCAL in os.environ:
            return {}
        try:
            return rank_request.answer(name, {"ray_train": what, "trainer": self._trainer, **facts})
        except (OSError, ValueError, TypeError) as error:
            return {"error": f"the rank's own process does not answer ({error!r}); it may be ending"}


def in_job_storage(path: str) -> bool:
    """Whether Ray Train stores below the folder of the job."""
    own = os.environ.get(STORAGE, "").rstrip("/")
    return bool(own) and f"{path}/".startswith(f"{own}/")


def address_of(checkpoint: Any) -> str | None:
    """The address of a checkpoint that Ray Train has stored. None: in a storage that the job cannot read."""
    scheme = SCHEMES.get(getattr(checkpoint.filesystem, "type_name", ""))
    return None if scheme is None else f"{scheme}{checkpoint.path}"


def failure_of(rank: int, error: BaseException, text: str) -> dict[str, Any]:
    """The failure of a worker: its exception with the traceback, or why its process is gone. `text`: the error as Ray shows it."""
    died = getattr(error, "health_check_failure", None)
    if died is not None:
        lines = [line.strip() for line in str(died).partition(GUESSES)[0].splitlines() if line.strip()]
        why = next((line for line in lines if line.startswith("The actor is dead")), lines[0] if lines else "")
        return {"worker": rank, "message": beginning(f"its process has died: {why}"), "traceback": None}
    trace = last_lines(text) if "Traceback (most recent call last)" in text else None
    return {"worker": rank, "message": beginning(f"{type(error).__name__}: {error}"), "traceback": trace}


def beginning(text: str) -> str:
    """At most `MOST_MESSAGE` characters of a text, in whole words: as `build_process.shortened`, which this process may lack."""
    words = re.match(rf".{{0,{MOST_MESSAGE}}}(?!\S)", text, re.DOTALL)
    return words[0].strip() if words else f"a line of {len(text)} characters"


def last_lines(text: str) -> str:
    """At most `MOST_TEXT` characters at the end of a text, in whole lines."""
    return text if len(text) <= MOST_TEXT else text[-MOST_TEXT:].partition("\n")[2]


def means(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """For each name whose values are numbers, their mean over the workers that report it."""
    found: dict[str, list[float]] = {}
    for one in metrics:
        for name, value in one.items():
            with contextlib.suppress(TypeError, ValueError, RuntimeError):  # of a tensor with several elements
                if not isinstance(value, str | bytes):
                    found.setdefault(str(name), []).append(float(value))
    return {name: fmean(values) for name, values in found.items() if values}


def step_of(metrics: Mapping[str, Any]) -> int | None:
    """The step that a worker reports; None if it reports none."""
    found = (metrics.get(name) for name in STEPS)
    return next((one for one in found if isinstance(one, int) and not isinstance(one, bool) and one >= 0), None)


def _print(text: str) -> None:
    sys.stdout.write(f"shardyard: {text}\n")
    sys.stdout.flush()


cloudpickle.register_pickle_by_value(sys.modules[__name__])
