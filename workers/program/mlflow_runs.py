"""Runs of MLflow clients in a rank's program. Their metrics are the rank's; parameters and tags are lines of its log.

What clients read back is kept in bounded memory. It ends with the trainer process, and after a restart a run that a client continues by its
id is a new one.
"""

import json
import math
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..messages.metric_block import check_name, check_step
from .metric_batch import CountedSteps, MetricBatch
from .mlflow_experiments import MlflowExperiments
from .mlflow_fields import (
    MOST_KEY,
    MOST_VALUE,
    Json,
    invalid,
    missing,
    now_ms,
    number,
    pairs,
    read_page,
    read_pairs,
    records,
    shown,
    text,
    texts,
    whole,
)
from .mlflow_filter import Attributes, read_filter, read_order
from .mlflow_history import MOST_VALUES, MetricHistories, MetricHistory, Value
from .mlflow_models import Dataset, MlflowModels
from .mlflow_search import Searched, matching, ordered, paged
from .mlflow_texts import MlflowTexts

#: Characters of a run's name before the names of its metrics.
_MOST_PREFIX: Final = 60
#: Maximum number of runs. Of more the oldest is forgotten.
MOST_KEPT: Final = 1000
#: Maximum number of values of a metric in one answer.
MOST_PAGE: Final = 25_000
#: The ids that clients get, and by which they may continue a run.
_RUN_ID: Final = re.compile("[0-9a-f]{32}")
#: Tags that are more than tags: a run's name, and the models that clients before MLflow 3 logged.
_NAME: Final = "mlflow.runName"
_MODELS: Final = "mlflow.log-model.history"
_ATTRIBUTES: Final = Attributes(
    numbers={"start_time": "start_time", "created": "start_time", "Created": "start_time", "end_time": "end_time"},
    texts={name: name for name in ("run_id", "run_name", "user_id", "status", "artifact_uri", "experiment_id")}
    | dict.fromkeys(("run name", "Run name", "Run Name"), "run_name"),
)


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
    used_models: dict[str, None] = field(default_factory=dict)  # by their ids
    logged_models: dict[str, int] = field(default_factory=dict)  # with the steps

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

    def all_tags(self) -> dict[str, str]:
        """With that of its name."""
        return self.tags | {_NAME: self.name}

    def to_json(self, histories: Mapping[str, MetricHistory]) -> Json:
        metrics = [_metric(key, one.newest) for key, one in histories.items()]
        return {
            "info": self.info(),
            "data": {"metrics": metrics, "params": pairs(self.params), "tags": pairs(self.all_tags())},
            "inputs": {"model_inputs": [{"model_id": one} for one in self.used_models]},
            "outputs": {"model_outputs": [{"model_id": one, "step": step} for one, step in self.logged_models.items()]},
        }

    def searched(self, histories: Mapping[str, MetricHistory]) -> Searched["Run"]:
        info = self.info()
        attributes = {name: info.get(name) for name in {*_ATTRIBUTES.numbers.values(), *_ATTRIBUTES.texts.values()}}
        metrics = {key: one.newest.value for key, one in histories.items()}
        return Searched(self, attributes, metrics, self.params, self.all_tags())


@dataclass(frozen=True)
class _Sent:
    """A value of a metric, as a client sends it."""

    key: str
    value: Value
    model: str  # the id of the model that it is about, or empty
    dataset: Dataset


class MlflowRuns:
    """The runs of a rank's clients."""

    def __init__(
        self, experiments: MlflowExperiments, models: MlflowModels, kept: MlflowTexts, batch: MetricBatch
    ) -> None:
        self._experiments, self._models, self._texts, self._batch = experiments, models, kept, batch
        self._runs: dict[str, Run] = {}
        self._made = 0
        self._steps = CountedSteps()
        self._histories = MetricHistories(self._on_thinned)

    def found(self, run_id: str) -> Run:
        """A run, which is made if it is one from before a restart or of another rank. Raises MlflowError."""
        if run_id in self._runs:
            return self._runs[run_id]
        if not _RUN_ID.fullmatch(run_id):
            raise missing(f"there is no run with the id {run_id[:80]!r}: start one")
        return self._new_run(run_id, "", self._experiments.asked)

    def _run(self, body: Json) -> Run:
        return self.found(text(body, "run_id" if body.get("run_id") else "run_uuid"))

    def create(self, body: Json) -> Json:
        """Raises MlflowError."""
        experiment = str(body.get("experiment_id") or "0")
        self._experiments.found(experiment)
        tags = read_pairs(body.get("tags", []), "tag")
        name = str(body.get("run_name") or tags.get(_NAME) or "")
        started_ms = whole(body.get("start_time") or now_ms(), "start_time")
        run = self._new_run(secrets.token_hex(16), name, experiment)
        run.user, run.started_ms = str(body.get("user_id") or "")[:MOST_KEY], started_ms
        self._tag(run, tags | {_NAME: run.name})
        return {"run": self._json(run)}

    def _new_run(self, run_id: str, name: str, experiment: str) -> Run:
        """The first run's metrics have their own names, those of others begin with the run's name."""
        self._made += 1
        name = name[:MOST_KEY] or f"run-{self._made}"
        given = name if name.isprintable() and len(name) <= _MOST_PREFIX else f"run-{self._made}"
        prefix = f"{given}/" if self._made > 1 else ""
        taken, count = {one.prefix for one in self._runs.values()}, self._made
        while prefix in taken:
            prefix = f"{given}-{count}/"
            count += 1
        if len(self._runs) >= MOST_KEPT:
            ended = (one.id for one in self._runs.values() if one.ended_ms is not None)
            gone = self._runs.pop(next(ended, next(iter(self._runs))))
            self._texts.forget(gone.params, gone.tags)
            self._histories.forget(gone.id)
        self._runs[run_id] = Run(run_id, name, experiment, prefix, started_ms=now_ms())
        return self._runs[run_id]

    def _json(self, run: Run) -> Json:
        return run.to_json(self._histories.of(run.id))

    def get(self, body: Json) -> Json:
        """Raises MlflowError."""
        return {"run": self._json(self._run(body))}

    def update(self, body: Json) -> Json:
        """Raises MlflowError."""
        run = self._run(body)
        run.status = str(body.get("status") or run.status)[:MOST_KEY]
        run.name = str(body.get("run_name") or run.name)[:MOST_KEY]
        if body.get("end_time"):
            run.ended_ms = whole(body["end_time"], "end_time")
        return {"run_info": run.info()}

    def search(self, body: Json) -> Json:
        """The newest first, or as `order_by` says. Raises MlflowError."""
        experiments = texts(body, "experiment_ids")
        comparisons = read_filter(str(body.get("filter") or ""), _ATTRIBUTES)
        orders = [read_order(one, _ATTRIBUTES) for one in texts(body, "order_by")]
        runs = [one for one in reversed(self._runs.values()) if one.experiment in experiments]
        runs.sort(key=lambda run: -run.started_ms)
        if body.get("run_view_type") == "DELETED_ONLY":
            runs = []
        found = matching((run.searched(self._histories.of(run.id)) for run in runs), comparisons)
        page, token = paged(ordered(found, orders), body, MOST_KEPT)
        return {"runs": [self._json(run) for run in page]} | token

    def log_batch(self, body: Json) -> Json:
        """Raises MlflowError."""
        return self.log(body, body.get("metrics", []), body.get("params", []), body.get("tags", []))

    def log(self, body: Json, metrics: Any = (), params: Any = (), tags: Any = ()) -> Json:
        """All of a request or, if something in it is invalid, nothing. Raises MlflowError."""
        run = self._run(body)
        sent = [_read_metric(run, one) for one in records(metrics, "metric")]
        found = read_pairs(params, "param"), read_pairs(tags, "tag")
        for one in sent:
            if one.model:
                self._models.found(one.model)
        self._add(run, sent)
        self._texts.log("parameter", run.prefix, found[0])
        self._texts.keep(run.params, found[0])
        self._tag(run, found[1])
        return {}

    def _tag(self, run: Run, tags: Mapping[str, str]) -> None:
        run.name = tags.get(_NAME, "")[:MOST_KEY] or run.name
        others = {key: value for key, value in tags.items() if key != _NAME}
        self._texts.log("tag", run.prefix, others)
        self._texts.keep(run.tags, others)

    def delete_tag(self, body: Json) -> Json:
        """Raises MlflowError."""
        run, key = self._run(body), text(body, "key")
        if not self._texts.drop(run.tags, key):
            raise missing(f"the run {run.id} has no tag {key[:80]!r}")
        return {}

    def _add(self, run: Run, sent: list[_Sent]) -> None:
        """A client repeats a value for each model that it is about, and those of a model's step when it logs the model.

        Such a value is the run's already, with its step if that was counted.
        """
        stored: dict[tuple[str, str], Value] = {}
        for one in sent:
            name, same = run.prefix + one.key, (one.key, repr(one.value))
            history = self._histories.of(run.id).get(one.key)
            value = stored.get(same) if one.model else None
            if value is None and one.model and history is not None and history.has(one.value):
                value = one.value
            if value is None:
                value = one.value._replace(step=self._steps.step(name, one.value.step))
                self._batch.add(name, value.step, value.value)
                self._histories.add(run.id, one.key, value)
            stored[same] = value
            if one.model:
                self._models.add_metric(one.model, one.key, one.dataset, run.id, value)

    def _on_thinned(self, run_id: str, key: str) -> None:
        """MLflow's clients would not show it."""
        name = shown(self._runs[run_id].prefix + key)
        self._texts.write_line(
            f"MLflow metric {name}: get_metric_history has only every second value from now on, and later fewer, because a rank keeps "
            f"{MOST_VALUES:,} values for it. The job's curve has all of them"
        )

    def metric_history(self, body: Json) -> Json:
        """A page of all values of a metric, in the order in which they were logged. Raises MlflowError.

        `kept_every`, which clients ignore, is there if the history is thinned: how many logged values there are for each one that is kept.
        """
        run, key = self._run(body), text(body, "metric_key")
        start, size = read_page(body, MOST_PAGE)
        history = self._histories.of(run.id).get(key)
        if history is None:
            return {"metrics": []}
        found, following = history.page(start, size)
        token = {} if following is None else {"next_page_token": str(following)}
        thinned = {"kept_every": history.every} if history.every > 1 else {}
        return {"metrics": [_metric(key, one) | {"run_id": run.id} for one in found]} | token | thinned

    def log_inputs(self, body: Json) -> Json:
        """Each data set is a line of the log, and clients do not read it back. Raises MlflowError."""
        run = self._run(body)
        sent = [one.get("dataset") for one in records(body.get("datasets", []), "dataset")]
        names = [(text(one, "name"), text(one, "digest")) for one in records(sent, "dataset")]
        models = [self._model(one) for one in records(body.get("models", []), "model")]
        for name, digest in names:
            self._texts.write_line(f"MLflow dataset {shown(run.prefix + name)} = {shown(digest)}")
        run.used_models.update(dict.fromkeys(models))
        return {}

    def log_outputs(self, body: Json) -> Json:
        """The models that a run has logged. Raises MlflowError."""
        run, sent = self._run(body), records(body.get("models", []), "model")
        run.logged_models.update({self._model(one): whole(one.get("step") or 0, "step") for one in sent})
        return {}

    def _model(self, sent: Json) -> str:
        return self._models.found(text(sent, "model_id")).id

    def log_model(self, body: Json) -> Json:
        """A model that a client before MLflow 3 logged: its files are artifacts of the run. Raises MlflowError."""
        run = self._run(body)
        known, model = _read_json(run.tags.get(_MODELS, "[]")), _read_json(body.get("model_json"))
        if not isinstance(model, dict):
            raise invalid("model_json is no JSON object: send that of the model")
        models = [*(known if isinstance(known, list) else []), model]
        while len(value := json.dumps(models)) > MOST_VALUE and models:
            models = models[1:]
        self._texts.keep(run.tags, {_MODELS: value})
        return {}


def _metric(key: str, value: Value) -> Json:
    return {"key": key, "value": number(value.value), "step": value.step, "timestamp": value.time_ms}


def _read_metric(run: Run, sent: Json) -> _Sent:
    """Raises MlflowError for what no metric of a job can be."""
    key = text(sent, "key")
    try:
        check_name(run.prefix + key)
        value = float(sent.get("value", math.nan))
    except (ValueError, TypeError, OverflowError) as error:
        raise invalid(f"metric {ascii(key)[:80]}: {error}") from None
    step = whole(sent.get("step") or 0, "step")
    try:
        check_step(step)
    except ValueError as error:
        raise invalid(f"step of metric {key!r}: {error}") from None
    time_ms = whole(sent.get("timestamp") or 0, "timestamp")
    if abs(time_ms) >= 2**63:
        raise invalid(f"timestamp of metric {key!r} is {time_ms}: send milliseconds since 1970")
    dataset = str(sent.get("dataset_name") or "")[:MOST_KEY], str(sent.get("dataset_digest") or "")[:MOST_KEY]
    return _Sent(key, Value(step, time_ms, value), str(sent.get("model_id") or ""), dataset)


def _read_json(found: Any) -> Any:
    try:
        return json.loads(found)
    except (ValueError, TypeError, RecursionError):
        return None
