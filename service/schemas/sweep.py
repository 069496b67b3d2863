"""Sweeps and their trials."""

from typing import Any, Literal

from pydantic import Field

from ..sweep_spec import Sweep
from . import dataframes
from .base import Timestamp, Value

SweepState = Literal["running", "cancelling", "succeeded", "failed", "cancelled"]
#: A trial's state: that of its job while it has one that runs or waits.
TrialState = Literal["waiting", "active", "paused", "succeeded", "failed", "cancelled", "stopped", "refused"]


class SweepTrial(Value):
    """One trial of a sweep."""

    number: int
    state: TrialState = Field(
        description="`waiting`: it has no job yet. `active`: its job runs or waits in the queue. `paused`: stopped at a rung, and may "
        "continue. `stopped`: given up at a rung. `refused`: its spec was refused. Otherwise as its job ended."
    )
    parameters: dict[str, Any] | None = Field(None, description="Values by path; null: not decided yet.")
    job: str | None = Field(None, description="Id of its job.")
    job_state: str | None = Field(None, description="State of its job; null: it has none, or the job was deleted.")
    step: int | None = Field(None, description="Newest step that the job reported.")
    rungs: list[float | None] = Field(
        default_factory=list, description="The metric at each rung that it reached; null where it was not finite."
    )
    value: float | None = Field(None, description="The metric at its end, or else at its last rung.")
    message: str | None = Field(
        None,
        description="Why it failed or was refused; or that it continued after a rung without a checkpoint of its program.",
    )
    device_s: float = Field(0.0, description="Device-seconds that its job has held, up to now.")


class SweepDetail(Value):
    """A sweep, without its trials."""

    id: str
    name: str
    state: SweepState
    message: str | None = None
    sweep: Sweep = Field(title="Submitted sweep")
    metric: str
    rungs: list[int] = Field(
        default_factory=list, description="Steps at which trials are compared; empty without `asha`."
    )
    trials: int
    counts: dict[str, int] = Field(default_factory=dict, description="Number of trials by state.")
    best: SweepTrial | None = Field(
        None,
        description="The trial with the best metric among those that ran to their end; without such, of the highest rung.",
    )
    device_s: float = Field(0.0, description="Device-seconds of all trials, up to now.")
    spec: dict[str, Any] = Field(default_factory=dict, title="Spec of the jobs without the parameters' values")
    actor: str
    created_at: Timestamp
    finished_at: Timestamp | None = None


class Sweeps(Value):
    """One page of sweeps, newest first. `next` is the cursor of the following page, null on the last one."""

    items: list[SweepDetail]
    next: str | None = None


class SweepTrials(Value):
    """Trials of a sweep, by number: all, or those that changed since an earlier answer."""

    items: list[SweepTrial]
    as_of: float = Field(
        0.0,
        description="Unix seconds by the database's clock; as `since` of the next request it leaves out what did not change.",
    )

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`: a row for each trial, with its state, value and parameters. Needs the extra `pandas`."""
        return dataframes.of_trials([one.model_dump() for one in self.items])
