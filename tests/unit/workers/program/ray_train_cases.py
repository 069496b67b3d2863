"""What of Ray Train's reports is logged, and that its callback interfaces are as this package needs them."""

import inspect

import torch
from ray import cloudpickle
from ray.train.v2._internal.execution.callback import ControllerCallback, ReportCallback

from shardyard.workers.program.python_agent.sitecustomize import TRAIN_CLEANER, TRAIN_REPORTS, TRAIN_THREAD
from shardyard.workers.program.ray_train_reports import TrainReports, means, step_of


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
    """Ray Train gives them by their names."""
    for base, name in (
        (ReportCallback, "after_report"),
        (ControllerCallback, "before_controller_execute_failure_decision"),
        (ControllerCallback, "after_controller_state_update"),
    ):
        assert issubclass(TrainReports, base)
        assert [*inspect.signature(getattr(base, name)).parameters] == [
            *inspect.signature(getattr(TrainReports, name)).parameters
        ]


def test_it_goes_to_a_process_without_this_package() -> None:
    """By value: only the modules that it needs to log are looked for there, and a process without them logs nothing."""
    assert b"step_of" in cloudpickle.dumps(TrainReports()) and len(cloudpickle.dumps(TrainReports())) > 1000


def test_the_agent_names_what_is_there() -> None:
    from ray.train.v2._internal.execution.controller import placement_group_cleaner
    from ray.train.v2._internal.execution.worker_group.thread_runner import ThreadRunner

    assert TRAIN_THREAD in inspect.getsource(ThreadRunner)
    assert f"{TrainReports.__module__}.{TrainReports.__name__}" == TRAIN_REPORTS
    assert placement_group_cleaner.logger.name == TRAIN_CLEANER
