"""Runs of MLflow clients in a rank's program. Their metrics are the rank's; parameters and tags are lines of its log.

What clients read back is kept in bounded memory: of each metric the newest value. It ends with the trainer process, and after a restart a
run that a client continues by its id is a new one. The answers are those of MLflow's REST API (https://mlflow.org/docs/latest/rest-api.html).
"""

import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..messages.metric_block import MOST_NAMES, check_name, check_step
from .metric_batch import CountedSteps, MetricBatch

#: Maximum characters of the key and of the value of a parameter or tag. MLflow's own limits are lower.
MOST_KEY: Final = 1000
MOST_VALUE: Final = 20_000
#: Characters of a run's name before the names of its metrics.
_MOST_PREFIX: Final = 60
#: Maximum number of experiments, and of runs. Of more runs the oldest is forgotten.
MOST_KEPT: Final = 1000
#: Characters of all parameters and tags that are kept. Further ones are in the log only.
MOST_TEXT: Final = 16 << 20
#: The ids that clients get, and by which they may continue a run.
_RUN_ID: Final = re.compile("[0-9a-f]{32}")

Json = dict[str, Any]


class MlflowError(Exception):
    """What a client is to raise. `code`: one of MLflow's error codes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Run:
    """A run, as far as clients read it."""

    id: str
    name: str
    experiment: str
    prefix: str  # of the names of its metrics
    started_ms: int
    user: str = ""
    ended_ms: int | None = None
    status: str = "RUNNING"
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, Json] = field(default_factory=dict)

    def info(self) -> Json:
        ended = {} if self.ended_ms is None else {"end_time": self.ended_ms}
        return {
            "run_id": self.id,
            "run_uuid": self.id,
            "run_name": self.name,
            "experiment_id": self.experiment,
            "user_id": self.user,
            "status": self.status,
            "start_time": self.started_ms,
            "artifact_uri": f"mlflow-artifacts:/{self.experiment}/{self.id}/artifacts",
            "lifecycle_stage": "active",
        } | ended

    def to_json(self) -> Json:
        data = {"metrics": list(self.metrics.values()), "params": _pairs(self.params), "tags": _pairs(self.tags)}
        return {"info": self.info(), "data": data, "inputs": {}}


class MlflowRuns:
    """The experiments and runs of a rank's clients. Any thread may call it."""

    def __init__(self, batch: MetricBatch, write_line: Callable[[str], None]) -> None:
        """`write_line`: writes a line to the rank's log."""
        self._batch = batch
        self._write_line = write_line
        self._lock = threading.Lock()
        self._experiments: dict[str, str] = {"0": "Default"}  # by id
        self._asked = "0"  # the experiment that a client asked for last
        self._runs: dict[str, Run] = {}
        self._made = 0
        self._steps = CountedSteps()
        self._text = 0  # characters of kept parameters and tags
        self._endpoints: Mapping[tuple[str, str], Callable[[Json], Json]] = {
            ("POST", "experiments/create"): self._create_experiment,
            ("GET", "experiments/get"): self._get_experiment,
            ("GET", "experiments/get-by-name"): self._get_experiment_by_name,
            ("POST", "experiments/search"): self._search_experiments,
            ("POST", "runs/create"): self._create_run,
            ("GET", "runs/get"): self._get_run,
            ("POST", "runs/update"): self._update_run,
            ("POST", "runs/search"): self._search_runs,
            ("POST", "runs/log-metric"): lambda body: self._log(body, metrics=[body]),
            ("POST", "runs/log-parameter"): lambda body: self._log(body, params=[body]),
            ("POST", "runs/set-tag"): lambda body: self._log(body, tags=[body]),
            ("POST", "runs/log-batch"): self._log_batch,
            ("POST", "runs/log-inputs"): self._log_inputs,
            ("GET", "metrics/get-history"): self._metric_history,
            # Clients look for models beside the artifacts of a run.
            ("POST", "logged-models/search"): lambda _: {"models": []},
        }

    def prefix(self, number: str) -> str:
        """What the names of a run's metrics and artifacts begin with. Raises MlflowError."""
        with self._lock:
            return self._run({"run_id": number}).prefix

    def answer(self, method: str, endpoint: str, body: Json) -> Json:
        """The answer of an endpoint, such as `runs/create`. Raises MlflowError."""
        found = self._endpoints.get((method, endpoint))
        if found is None:
            raise not_supported(f"{method} {endpoint}")
        with self._lock:
            return found(body)

    def _create_experiment(self, body: Json) -> Json:
        name = _text(body, "name")
        if name in self._experiments.values():
            raise MlflowError("RESOURCE_ALREADY_EXISTS", f"the experiment {name!r} exists: use it, or another name")
        if len(self._experiments) >= MOST_KEPT:
            raise invalid(f"a rank keeps {MOST_KEPT:,} experiments, and {name!r} is one more: use fewer")
        number = str(len(self._experiments))
        self._experiments[number] = name
        return {"experiment_id": number}

    def _get_experiment(self, body: Json) -> Json:
        number = _text(body, "experiment_id")
        found = self._experiment(number)
        self._asked = number
        return {"experiment": found}

    def _get_experiment_by_name(self, body: Json) -> Json:
        name = _text(body, "experiment_name")
        for number, known in self._experiments.items():
            if known == name:
                self._asked = number
                return {"experiment": self._experiment(number)}
        raise MlflowError("RESOURCE_DOES_NOT_EXIST", f"there is no experiment {name!r}: create it")

    def _search_experiments(self, body: Json) -> Json:
        _refuse_queries(body, "filter", "order_by")
        return {"experiments": [self._experiment(number) for number in self._experiments]}

    def _experiment(self, number: str) -> Json:
        if number not in self._experiments:
            raise MlflowError("RESOURCE_DOES_NOT_EXIST", f"there is no experiment with the id {number!r}: create one")
        return {
            "experiment_id": number,
            "name": self._experiments[number],
            "artifact_location": f"mlflow-artifacts:/{number}",
            "lifecycle_stage": "active",
        }

    def _create_run(self, body: Json) -> Json:
        experiment = str(body.get("experiment_id") or "0")
        self._experiment(experiment)
        tags = _read_pairs(body.get("tags", []), "tag")
        name = str(body.get("run_name") or tags.get("mlflow.runName") or "")
        started_ms = _whole(body.get("start_time") or _now_ms(), "start_time")
        run = self._new_run(secrets.token_hex(16), name, experiment)
        run.user, run.started_ms = str(body.get("user_id") or "")[:MOST_KEY], started_ms
        self._keep(run, run.tags, tags, "tag")
        return {"run": run.to_json()}

    def _new_run(self, number: str, name: str, experiment: str) -> Run:
        """The first run's metrics have their own names, those of others begin with the run's name."""
        self._made += 1
        name = name[:MOST_KEY] or f"run-{self._made}"
        shown = name if name.isprintable() and len(name) <= _MOST_PREFIX else f"run-{self._made}"
        prefix = f"{shown}/" if self._made > 1 else ""
        if any(other.prefix == prefix for other in self._runs.values()):
            prefix = f"{shown}-{self._made}/"
        if len(self._runs) >= MOST_KEPT:
            ended = (one.id for one in self._runs.values() if one.ended_ms is not None)
            gone = self._runs.pop(next(ended, next(iter(self._runs))))
            self._text -= sum(len(key) + len(value) for kept in (gone.params, gone.tags) for key, value in kept.items())
        self._runs[number] = Run(number, name, experiment, prefix, started_ms=_now_ms())
        return self._runs[number]

    def _run(self, body: Json) -> Run:
        number = _text(body, "run_id" if body.get("run_id") else "run_uuid")
        if number in self._runs:
            return self._runs[number]
        if not _RUN_ID.fullmatch(number):
            raise MlflowError("RESOURCE_DOES_NOT_EXIST", f"there is no run with the id {number[:80]!r}: start one")
        return self._new_run(number, "", self._asked)  # from before a restart, or of another rank

    def _get_run(self, body: Json) -> Json:
        return {"run": self._run(body).to_json()}

    def _update_run(self, body: Json) -> Json:
        run = self._run(body)
        run.status = str(body.get("status") or run.status)[:MOST_KEY]
        run.name = str(body.get("run_name") or run.name)[:MOST_KEY]
        if body.get("end_time"):
            run.ended_ms = _whole(body["end_time"], "end_time")
        return {"run_info": run.info()}

    def _search_runs(self, body: Json) -> Json:
        """The newest first."""
        _refuse_queries(body, "filter", "order_by")
        asked = body.get("experiment_ids", [])
        if not isinstance(asked, list):
            raise invalid(f"experiment_ids is {ascii(asked)[:80]}: send a list")
        most = _whole(body.get("max_results") or MOST_KEPT, "max_results")
        found = [run.to_json() for run in reversed(self._runs.values()) if run.experiment in asked]
        return {"runs": found[:most]}

    def _log_batch(self, body: Json) -> Json:
        return self._log(body, body.get("metrics", []), body.get("params", []), body.get("tags", []))

    def _log(self, body: Json, metrics: Any = (), params: Any = (), tags: Any = ()) -> Json:
        """All of a request or, if something in it is invalid, nothing."""
        run = self._run(body)
        read = [_read_metric(run, one) for one in _records(metrics, "metric")]
        texts = _read_pairs(params, "param"), _read_pairs(tags, "tag")
        for one in read:
            self._add(run, one)
        self._keep(run, run.params, texts[0], "parameter")
        self._keep(run, run.tags, texts[1], "tag")
        return {}

    def _log_inputs(self, body: Json) -> Json:
        """Each data set is a line of the log. Clients do not read them back."""
        run = self._run(body)
        sent = [one.get("dataset") for one in _records(body.get("datasets", []), "dataset")]
        texts = [(_text(one, "name"), _text(one, "digest")) for one in _records(sent, "dataset")]
        for name, digest in texts:
            self._write_line(f"MLflow dataset {_shown(run.prefix + name)} = {_shown(digest)}")
        return {}

    def _add(self, run: Run, metric: Json) -> None:
        key, value, name = metric["key"], metric["value"], run.prefix + metric["key"]
        step = self._steps.step(name, metric["step"])
        self._batch.add(name, step, value)
        newest = run.metrics.get(key)
        if newest is None and sum(len(one.metrics) for one in self._runs.values()) >= MOST_NAMES:
            return
        if newest is None or newest["step"] <= step:
            finite = value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
            run.metrics[key] = {"key": key, "value": finite, "step": step, "timestamp": metric["timestamp"]}

    def _metric_history(self, body: Json) -> Json:
        """Only the newest value: the others are the job's curves."""
        newest = self._run(body).metrics.get(_text(body, "metric_key"))
        return {"metrics": [newest] if newest else []}

    def _keep(self, run: Run, kept: dict[str, str], texts: Mapping[str, str], kind: str) -> None:
        """Keep parameters or tags, as far as there is room, and write them to the log; not what clients add by themselves."""
        for key, value in texts.items():
            if not key.startswith("mlflow."):
                self._write_line(f"MLflow {kind} {_shown(run.prefix + key)} = {_shown(value)}")
            size = len(value) - len(kept[key]) if key in kept else len(key) + len(value)
            if self._text + size <= MOST_TEXT:
                kept[key] = value
                self._text += size


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def not_supported(what: str) -> MlflowError:
    return MlflowError(
        "ENDPOINT_NOT_FOUND",
        f"{what}: Shardyard takes only metrics, parameters, tags and artifacts of MLflow clients. Log a model's files with "
        "mlflow.log_artifacts, or set MLFLOW_TRACKING_URI in the job's resources.env to a server of your own",
    )


def invalid(message: str) -> MlflowError:
    return MlflowError("INVALID_PARAMETER_VALUE", message)


def _text(body: Mapping[str, Any], name: str) -> str:
    found = body.get(name)
    if not isinstance(found, str) or not 0 < len(found) <= MOST_KEY:
        raise invalid(f"{name} is {ascii(found)[:80]}: send a text of 1 to {MOST_KEY:,} characters")
    return found


def _whole(found: Any, name: str) -> int:
    """A whole number, which JSON of protocol buffers may have as text."""
    try:
        return int(found)
    except (ValueError, TypeError, OverflowError):
        raise invalid(f"{name} is {ascii(found)[:80]}: send a whole number") from None


def _records(found: Any, kind: str) -> Sequence[Json]:
    if not isinstance(found, list | tuple) or not all(isinstance(one, dict) for one in found):
        raise invalid(f"{kind}s are {ascii(found)[:80]}: send a list of objects")
    return found


def _read_metric(run: Run, sent: Json) -> Json:
    """Key, value, step and timestamp of a metric. Raises MlflowError for what no metric of a job can be."""
    key = _text(sent, "key")
    try:
        check_name(run.prefix + key)
        value = float(sent.get("value", math.nan))
    except (ValueError, TypeError, OverflowError) as error:
        raise invalid(f"metric {ascii(key)[:80]}: {error}") from None
    step = _whole(sent.get("step") or 0, "step")
    try:
        check_step(step)
    except ValueError as error:
        raise invalid(f"step of metric {key!r}: {error}") from None
    return {"key": key, "value": value, "step": step, "timestamp": _whole(sent.get("timestamp") or 0, "timestamp")}


def _read_pairs(found: Any, kind: str) -> dict[str, str]:
    return {_text(one, "key"): _value(one, kind) for one in _records(found, kind)}


def _value(sent: Json, kind: str) -> str:
    value = sent.get("value", "")
    if not isinstance(value, str) or len(value) > MOST_VALUE:
        raise invalid(f"value of {kind} {ascii(sent['key'])[:80]}: send a text of at most {MOST_VALUE:,} characters")
    return value


def _refuse_queries(body: Json, *names: str) -> None:
    for name in names:
        if body.get(name):
            raise invalid(f"{name} is not supported: leave it out, and choose among all that are returned")


def _pairs(texts: Mapping[str, str]) -> list[Json]:
    return [{"key": key, "value": value} for key, value in texts.items()]


def _shown(text: str) -> str:
    """Whole, so that the rank's actor recognises secrets in it."""
    return text if text.isprintable() else ascii(text)
