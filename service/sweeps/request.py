"""A sweep as it is submitted: its own part, the job's spec, and the rules that concern both."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from ...strategies.layout import Refusal
from ..spec import MOST_LABELS, AnySpec, CommandSpec, JobSpec, kind_of
from ..sweep_spec import Sweep, with_values
from . import optuna_search
from .points import Point, points

#: The most values of a parameter that are checked when the sweep is submitted. The others are checked with their trials.
_CHECKED: Final = 100
#: Keys of a spec that cannot vary.
_FIXED: Final = ("name", "apiVersion", "sweep")
#: The checkpoint that all trials continue, whose job is kept until the sweep ends.
_RESUMED: Final = ("resume_from", "train.resume_from")
#: The one key of `code` that has an effect on a trial.
_ARCHIVE: Final = "code.archive"
#: The most characters of a job's name, and of those of it that a trial's job has before its number.
_NAME: Final = 63 - len("-999")
#: The most characters of the values of all trials, which are stored with them and read as a whole.
_CHARACTERS: Final = 4 << 20
#: What every training job reports.
_LOSSES: Final = ("loss", "validation_loss")
#: Labels of a trial's job.
SWEEP_LABEL: Final = "shardyard/sweep"
TRIAL_LABEL: Final = "shardyard/trial"


@dataclass(frozen=True)
class SweepRequest:
    """`spec`: the job's, as plain data. `points`: the parameters of all trials; None if they are decided one by one."""

    spec: dict[str, Any]
    sweep: Sweep
    points: list[Point] | None

    @property
    def first(self) -> dict[str, Any]:
        """The spec of the first trial. Raises Refusal for a path that is not in the spec."""
        return with_values(self.spec, self.points[0] if self.points else self._lowest)

    @property
    def archives(self) -> list[str]:
        """Digests of the archives of code over which the sweep goes."""
        parameter = self.sweep.parameters.get(_ARCHIVE)
        return [] if parameter is None else [str(value) for value in parameter.values or ()]

    @property
    def _lowest(self) -> Point:
        return {path: parameter.at(0.0) for path, parameter in self.sweep.parameters.items()}

    def extremes(self) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        """Path, value and spec: the first trial's spec with another value, for the ends and the listed values of each parameter."""
        for path, parameter in self.sweep.parameters.items():
            for value in parameter.ends()[:_CHECKED]:
                yield path, value, with_values(self.first, {path: value})


def read_request(document: dict[str, Any], sweep: Sweep) -> SweepRequest:
    """The request of a document that has the part `sweep`. Takes a second if the search is `sobol`. Raises Refusal, with its field."""
    spec = {key: value for key, value in document.items() if key != "sweep"}
    for path in sweep.parameters:
        if path.split(".")[0].split("[")[0] in _FIXED:
            remedy = "Name another key of the job's spec; each trial's job gets a name of its own."
            raise Refusal(f"sweep.parameters.{path}", f"{path} cannot vary.", remedy)
        if path in _RESUMED:
            message = f"{path} cannot vary: all trials of a sweep continue one checkpoint."
            raise Refusal(f"sweep.parameters.{path}", message, "Submit a sweep for each checkpoint.")
        if path.split(".")[0] == "code" and path != _ARCHIVE:
            message = f"{path} cannot vary: the code is uploaded before the trials begin."
            remedy = f"Submit a sweep for each version of the code, or name archives that were uploaded: {_ARCHIVE}."
            raise Refusal(f"sweep.parameters.{path}", message, remedy)
    labels = {path.removeprefix("labels.") for path in sweep.parameters if path.startswith("labels.")}
    given = spec.get("labels")
    if isinstance(given, dict) and len({*given, *labels} - {SWEEP_LABEL, TRIAL_LABEL}) > MOST_LABELS - 2:
        remedy = f"Give at most {MOST_LABELS - 2}."
        raise Refusal("labels", "The job of a trial has two labels more, with its sweep and its number.", remedy)
    longest = sum(max(len(str(value)) for value in parameter.ends()) for parameter in sweep.parameters.values())
    if longest * sweep.number_of_trials > _CHARACTERS:
        message = (
            f"The values of {sweep.number_of_trials} trials may have {longest * sweep.number_of_trials} characters."
        )
        remedy = f"Give shorter values, or fewer trials: {_CHARACTERS} characters are stored."
        raise Refusal("sweep.parameters", message, remedy)
    if sweep.search == "optuna" and not optuna_search.installed():
        raise Refusal(
            "sweep.search",
            "Optuna is not installed on the server.",
            "Use sobol or random, or install shardyard[sweeps] there.",
        )
    return SweepRequest(spec, sweep, points(sweep))


def metric_of(spec: AnySpec, sweep: Sweep) -> str:
    """The name of what is compared. Raises Refusal for a command that names none, and for a name that its jobs never report."""
    if sweep.metric is not None:
        if isinstance(spec, JobSpec) and sweep.metric not in _LOSSES and not _logs(spec, sweep):
            message = f"A model of family {spec.train.model.family} logs no {sweep.metric!r}."
            remedy = "Name loss or validation_loss; other metrics are those that a model of your own logs (train.model.import)."
            raise Refusal("sweep.metric", message, remedy)
        return sweep.metric
    if isinstance(spec, CommandSpec):
        raise Refusal(
            "sweep.metric", "This key is missing.", "Name the metric that the program logs, such as accuracy."
        )
    return "loss"


def _logs(spec: JobSpec, sweep: Sweep) -> bool:
    """Whether trials may report values by name: of a model of the user's own, or about the disk of their training state."""
    own = spec.train.model.import_ is not None or spec.train.offload.to == "disk"
    return own or not {"train.model.import", "train.offload.to"}.isdisjoint(sweep.parameters)


def rungs_of(spec: AnySpec, sweep: Sweep) -> list[int]:
    """The steps at which trials are compared; none without `asha`. Raises Refusal if there is no such step."""
    if sweep.asha is None:
        return []
    steps = sweep.asha.max_steps
    if steps is None:
        if isinstance(spec, CommandSpec):
            remedy = "Give the number of steps that a trial takes if it is not stopped."
            raise Refusal(
                "sweep.asha.max_steps", "This key is missing: a command says nowhere how many steps it takes.", remedy
            )
        steps = spec.train.steps
    if "train.steps" in sweep.parameters:
        raise Refusal(
            "sweep.parameters.train.steps",
            "With asha all trials have the same number of steps.",
            "Leave it out, or asha.",
        )
    found = sweep.asha.rungs(steps)
    if isinstance(spec, JobSpec) and sweep.metric == "validation_loss":
        every = spec.train.eval.every
        if every is None or every >= steps:
            remedy = f"Validate more often, such as train.eval: {{every: {sweep.asha.min_steps}}}, or compare the loss."
            raise Refusal(
                "train.eval.every", "Trials that are validated only at their end cannot be compared before.", remedy
            )
    if not found:
        remedy = f"Give a lower one: it is the first step at which trials of {steps} steps are compared."
        raise Refusal(
            "sweep.asha.min_steps", f"{sweep.asha.min_steps} is not below the {steps} steps of a trial.", remedy
        )
    return found


def trial_document(spec: dict[str, Any], sweep_id: str, number: int, values: Point) -> dict[str, Any]:
    """The spec of a trial's job, named and labelled after sweep and number."""
    document = with_values(spec, values)
    labels = {**(document.get("labels") or {}), SWEEP_LABEL: sweep_id, TRIAL_LABEL: str(number)}
    name = f"{str(document['name'])[:_NAME].rstrip('-')}-{number}"
    return {**document, "name": name, "labels": labels}


def spec_of(document: dict[str, Any]) -> tuple[AnySpec, str]:
    """The checked spec of a trial's job, and its digest. Raises pydantic's ValidationError."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return kind_of(document).model_validate(document, strict=True), sha256(canonical.encode()).hexdigest()
