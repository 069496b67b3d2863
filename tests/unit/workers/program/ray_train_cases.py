"""What of Ray Train's reports is logged, and that its callback interfaces are as this package needs them."""

import inspect
import json
import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray import cloudpickle
from ray.exceptions import ActorDiedError
from ray.train import BackendConfig, Checkpoint, CheckpointConfig, DataConfig, RunConfig, ScalingConfig
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback, WorkerHealthCheckFailedError
from ray.train.v2._internal.execution.callback import (
    ControllerCallback,
    ReportCallback,
    WorkerCallback,
    WorkerGroupCallback,
)
from ray.train.v2._internal.execution.context import TrainRunContext
from ray.train.v2._internal.execution.controller.state import (
    ErroredState,
    ReschedulingState,
    RestartingState,
    RunningState,
)
from ray.train.v2._internal.execution.failure_handling import FailureDecision
from ray.train.v2._internal.execution.training_report import _TrainingReport
from ray.train.v2._internal.execution.worker_group.poll import WorkerGroupPollStatus, WorkerStatus
from ray.train.v2.api.exceptions import ControllerError

from shardyard.workers.program.python_agent.sitecustomize import TRAIN_CLEANER, TRAIN_REPORTS, TRAIN_THREAD
from shardyard.workers.program.ray_train_reports import (
    AGAIN,
    MOST_MESSAGE,
    MOST_TEXT,
    RUNNING,
    TrainReports,
    address_of,
    beginning,
    failure_of,
    means,
    step_of,
)
from shardyard.workers.rank.secret_mask import SecretMask


def test_a_number_is_the_mean_over_the_workers_that_report_it() -> None:
    reports = [
        {"loss": 1.0, "name": "x", "only": 4},
        {"loss": torch.tensor(2.0), "several": torch.ones(2), "none": None},
    ]
    assert means(reports) == {"loss": 1.5, "only": 4.0}


def test_the_step_is_a_whole_number_that_the_script_reports() -> None:
    assert step_of({"loss": 1.0, "epoch": 3}) is None and step_of({"step": True}) is None
    assert step_of({"step": 7, "global_step": 9}) == 7 and step_of({"step": 7.5, "global_step": 9}) == 9


def test_ray_train_has_the_hooks_with_these_arguments() -> None:
    """Ray Train gives some by their names."""
    for base, name in (
        (ReportCallback, "after_report"),
        (ControllerCallback, "after_controller_start"),
        (ControllerCallback, "before_controller_execute_failure_decision"),
        (ControllerCallback, "after_controller_state_update"),
        (WorkerGroupCallback, "after_worker_group_poll_status"),
        (WorkerCallback, "after_init_train_context"),
    ):
        assert issubclass(TrainReports, base)
        assert [*inspect.signature(getattr(base, name)).parameters] == [
            *inspect.signature(getattr(TrainReports, name)).parameters
        ]


class Asked(TrainReports):
    """It notes what it asks the trainer process, which answers `answers`."""

    def __init__(self, **answers: Any) -> None:
        super().__init__()
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers = answers

    def _send(self, what: str, local: Any = None, **facts: Any) -> dict[str, Any]:
        self.asked.append((what, facts))
        return dict(self.answers.get(what, {}))


def running(storage_path: str, keep: int | None = None) -> TrainRunContext:
    config = RunConfig(storage_path=storage_path, checkpoint_config=CheckpointConfig(num_to_keep=keep))
    return TrainRunContext(
        run_config=config,
        train_loop_config=None,
        scaling_config=ScalingConfig(num_workers=2),
        backend_config=BackendConfig(),
        dataset_config=DataConfig(),
    )


@pytest.mark.parametrize(("where", "keep", "kept"), [("/job", None, 3), ("/job", 7, 7), ("/jobs", None, None)])
def test_ray_train_keeps_as_many_as_the_job_unless_the_script_says_otherwise(
    where: str, keep: int | None, kept: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDYARD_JOB_STORAGE", "/job")
    context, own = running(where, keep), Asked(begins={"step": None, "keep": 3})
    own.after_controller_start(context)
    assert context.run_config.checkpoint_config.num_to_keep == kept
    assert own.asked[0][1]["own_retention"] == (kept == 3)


def test_reports_without_a_step_are_counted_on_from_the_newest_checkpoint() -> None:
    own = Asked(begins={"step": 6, "keep": 2})
    own.after_controller_start(running("/job"))
    reports = [({}, True), ({}, False), ({"step": 20}, True), ({}, True)]
    for metrics, saves in reports:
        checkpoint = Checkpoint("/job/run/x") if saves else None
        own.after_report(_TrainingReport(checkpoint, metrics, False), [metrics])
    assert [facts["step"] for what, facts in own.asked if what == "stored"] == [7, 20, 21]


def test_where_ray_train_has_stored_a_checkpoint() -> None:
    assert address_of(Checkpoint("/job/run/x")) == "/job/run/x"
    assert address_of(Checkpoint("s3://bucket/run/x?region=eu-west-1")) == "s3://bucket/run/x"
    other = SimpleNamespace(filesystem=SimpleNamespace(type_name="py::fsspec+gcs"), path="bucket/run/x")
    assert address_of(other) is None


def test_failures_of_workers_are_reported_if_ray_train_starts_them_again() -> None:
    wrapped = UserExceptionWithTraceback(ValueError("once"), "Traceback (most recent call last):\n  train.py")
    died = WorkerHealthCheckFailedError("A worker health check failed.", failure=ActorDiedError())
    status = WorkerGroupPollStatus(
        {0: WorkerStatus(running=True), 1: WorkerStatus(False, wrapped), 2: WorkerStatus(False, died)}
    )
    own = Asked()
    own.after_worker_group_poll_status(status)
    own.before_controller_execute_failure_decision(FailureDecision.RETRY)
    own.after_controller_state_update(None, RestartingState(status.get_worker_group_error()))
    own.after_controller_state_update(None, ReschedulingState(ControllerError(TimeoutError("no room"))))
    for _ in range(2):
        own.after_controller_state_update(None, RunningState())
    assert [what for what, _ in own.asked] == ["failed", "failed", "started"]
    first, second = own.asked[0][1]["failures"]
    assert (first["worker"], first["message"]) == (1, "ValueError: once") and "train.py" in first["traceback"]
    assert second["worker"] == 2 and second["message"].startswith("its process has died: ") and not second["traceback"]
    assert own.asked[1][1]["failures"] == [] and own.asked[1][1]["message"].endswith("no room")
    assert own.asked[2][1]["seconds"] >= 0
    own.after_worker_group_poll_status(status)
    own.before_controller_execute_failure_decision(FailureDecision.RAISE)
    own.after_controller_state_update(None, ErroredState(status.get_worker_group_error()))
    assert len(own.asked) == 3, "it is the driver's exception"


SECRET = "hf_0123456789abcdefghijABCDEFGHIJ01234"


def test_what_is_cut_keeps_secrets_whole_for_the_mask() -> None:
    """In the message, in the traceback, and where Ray Train itself has failed."""
    message = f"{'x' * 450} token={SECRET} was refused"
    text = f'Traceback (most recent call last):\n  login("{SECRET}")\n  {"y" * (MOST_TEXT - 20)}\nValueError: no'
    died = SimpleNamespace(health_check_failure=f"{'z' * 460} {SECRET}")
    own = Asked()
    own._failures = [failure_of(1, ValueError(message), text), failure_of(2, died, "")]  # type: ignore[arg-type]
    own.after_controller_state_update(None, ReschedulingState(ControllerError(TimeoutError(message))))
    own.after_controller_state_update(None, ReschedulingState(ControllerError(TimeoutError(f"{'x' * 450}{SECRET}"))))
    sent = json.dumps([facts for _, facts in own.asked])
    shown = SecretMask([SECRET]).hide_in_json(sent.encode()).decode()
    assert not [at for at in range(len(SECRET) - 7) if SECRET[at : at + 8] in shown]
    first = own.asked[0][1]["failures"][0]
    assert first["message"] == f"ValueError: {'x' * 450}" and len(first["message"]) <= MOST_MESSAGE
    assert first["traceback"].endswith("y\nValueError: no") and len(first["traceback"]) <= MOST_TEXT


def test_a_message_without_a_space_is_described() -> None:
    assert beginning("x" * 501) == "a line of 501 characters"
    assert beginning("x" * 500) == "x" * 500 and beginning(f" a\n{'b' * 600}") == "a" and beginning("") == ""


def test_the_states_have_these_names() -> None:
    assert (RestartingState.__name__, ReschedulingState.__name__) == AGAIN and RunningState.__name__ == RUNNING


@pytest.mark.parametrize(("own", "found", "step"), [(None, 5, 5), (None, None, None), ("/ray", 5, None)])
def test_a_worker_continues_from_the_jobs_checkpoint_unless_ray_train_has_one(
    own: str | None, found: int | None, step: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(checkpoint=own and Checkpoint(own), get_world_rank=lambda: 1, get_local_rank=lambda: 1)
    monkeypatch.setattr("ray.train.v2._internal.execution.context.get_train_context", lambda: context)
    reports = Asked(worker={"step": found, "path": "/cache/x"})
    reports.after_init_train_context()
    assert reports.asked == [("worker", {"worker": 1, "resumes": own is None})]
    assert (context.checkpoint and context.checkpoint.path) == (own or (step and "/cache/x"))
    with pytest.raises(RuntimeError, match="it is torn"):
        context.checkpoint = None
        Asked(worker={"error": "it is torn"}).after_init_train_context()


def test_each_trainer_of_a_driver_has_a_number_that_goes_with_it() -> None:
    first, second = TrainReports(), TrainReports()
    assert second._trainer == first._trainer + 1
    assert cloudpickle.loads(cloudpickle.dumps(second))._trainer == second._trainer


def test_workers_and_checkpoints_have_the_number_that_the_trainer_process_gives() -> None:
    own = Asked(begins={"step": None, "keep": 2, "trainer": 70})
    own.after_controller_start(running("/job"))
    assert own.asked[0][1]["driver"] == os.getpid()
    assert cloudpickle.loads(cloudpickle.dumps(own))._trainer == own._trainer == 70
    unknown = Asked(begins={"error": "it may be ending"})
    unknown.after_controller_start(running("/job"))
    assert unknown._trainer == TrainReports.made


def test_it_goes_to_a_process_without_this_package() -> None:
    """By value: only the modules that it needs to log are looked for there, and a process without them logs nothing."""
    assert b"step_of" in cloudpickle.dumps(TrainReports()) and len(cloudpickle.dumps(TrainReports())) > 1000


def test_the_agent_names_what_is_there() -> None:
    from ray.train.v2._internal.execution.controller import placement_group_cleaner
    from ray.train.v2._internal.execution.worker_group.thread_runner import ThreadRunner

    assert TRAIN_THREAD in inspect.getsource(ThreadRunner)
    assert f"{TrainReports.__module__}.{TrainReports.__name__}" == TRAIN_REPORTS
    assert placement_group_cleaner.logger.name == TRAIN_CLEANER
