"""What a script reports to Ray Train, as logged metrics of its job. Ray Train's controller calls it; the script is unchanged.

The agent names `TrainReports` in RAY_TRAIN_CALLBACKS of the driver. The class goes to the controller by value, because this package may
not be importable there. No error of it reaches the controller, which would end the training.
"""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from ray import cloudpickle
from ray.train import UserCallback

try:
    from ray.train.v2._internal.execution.callback import ControllerCallback, ReportCallback
except ImportError:  # another version: it is not called, and the script runs without it

    class ControllerCallback(UserCallback):  # type: ignore[no-redef, misc, unused-ignore]
        """In the place of Ray Train's."""

    class ReportCallback(UserCallback):  # type: ignore[no-redef, misc, unused-ignore]
        """In the place of Ray Train's."""


#: Metrics that are the step of a report, if they are whole numbers. Without them reports are counted.
STEPS: Final = ("step", "global_step")


class TrainReports(ControllerCallback, ReportCallback):  # type: ignore[misc, unused-ignore]
    """Logs the mean over the workers of each number that they report."""

    def after_report(self, training_report: Any, metrics: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002  (given by its name)
        """Ray Train has the report of all workers. `metrics`: one mapping per worker, in the order of their ranks."""
        with contextlib.suppress(ImportError, ValueError, TypeError, OverflowError):
            from .metric_log import log

            if values := means(metrics):
                log(values, step_of(metrics[0]))

    def before_controller_execute_failure_decision(self, failure_decision: Any) -> None:
        """A worker has failed, and Ray Train has decided what follows: RETRY starts the workers again."""
        decision = getattr(failure_decision, "value", failure_decision)
        again = ": its workers start again" if decision == "RETRY" else ""
        sys.stdout.write(f"shardyard: a worker of Ray Train has failed, and Ray Train decides {decision}{again}\n")
        sys.stdout.flush()

    def after_controller_state_update(self, previous_state: Any, current_state: Any) -> None:  # noqa: ARG002
        """The controller has another state. After the last one Ray kills its process, which has sent its last values by then."""
        with contextlib.suppress(ImportError, AttributeError):
            from .metric_log import end

            if current_state.is_terminal():
                end()


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


cloudpickle.register_pickle_by_value(sys.modules[__name__])
