"""Logged models of MLflow clients: what `log_model` makes before it stores a model's files, which are files of the job.

A model of the first run is in the folder `models/NAME`, one of another run below the run's name. A further model of a name has a number.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .mlflow_experiments import MlflowExperiments
from .mlflow_fields import (
    MOST_KEY,
    Json,
    invalid,
    missing,
    now_ms,
    number,
    pairs,
    read_pairs,
    records,
    shown,
    text,
    texts,
)
from .mlflow_filter import Attributes, Field, Order, read_filter
from .mlflow_history import Value
from .mlflow_search import Searched, matching, ordered, paged
from .mlflow_texts import MlflowTexts

#: Maximum number of models, of their newest metrics, and of models in one answer.
MOST_MODELS: Final = 1000
MOST_METRICS: Final = 10_000
_MOST_PAGE: Final = 100
#: What no name of a model has, as in MLflow.
_FORBIDDEN: Final = frozenset("/:.%\"'")
_STATUS: Final = {
    "LOGGED_MODEL_STATUS_UNSPECIFIED": "UNSPECIFIED",
    "LOGGED_MODEL_PENDING": "PENDING",
    "LOGGED_MODEL_READY": "READY",
    "LOGGED_MODEL_UPLOAD_FAILED": "FAILED",
}
_ATTRIBUTES: Final = Attributes(
    numbers={
        "creation_timestamp": "creation_timestamp",
        "creation_time": "creation_timestamp",
        "last_updated_timestamp": "last_updated_timestamp",
        "last_updated_time": "last_updated_timestamp",
    },
    texts={name: name for name in ("name", "model_id", "model_type", "status", "source_run_id", "experiment_id")},
)

#: Name and digest of a data set; both are empty for values that have none.
Dataset = tuple[str, str]


@dataclass
class LoggedModel:
    """A model, as far as clients read it."""

    id: str
    name: str
    experiment: str
    source_run: str
    type: str
    folder: str  # of its files in the job
    created_ms: int = field(default_factory=now_ms)
    updated_ms: int = 0
    status: str = "LOGGED_MODEL_PENDING"
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[tuple[str, Dataset], tuple[str, Value]] = field(default_factory=dict)  # with the run that logged it

    def to_json(self) -> Json:
        info = {
            "model_id": self.id,
            "name": self.name,
            "experiment_id": self.experiment,
            "source_run_id": self.source_run,
            "model_type": self.type,
            "artifact_uri": f"mlflow-artifacts:/{self.experiment}/models/{self.id}/artifacts",
            "creation_timestamp_ms": self.created_ms,
            "last_updated_timestamp_ms": self.updated_ms or self.created_ms,
            "status": self.status,
            "tags": pairs(self.tags),
        }
        metrics = [self._metric(*one) for one in self.metrics]
        return {"info": info, "data": {"params": pairs(self.params), "metrics": metrics}}

    def _metric(self, key: str, dataset: Dataset) -> Json:
        run, value = self.metrics[key, dataset]
        names = dict(zip(("dataset_name", "dataset_digest"), dataset, strict=True)) if any(dataset) else {}
        found = {"key": key, "value": number(value.value), "step": value.step, "timestamp": value.time_ms}
        return found | {"model_id": self.id, "run_id": run} | names

    def searched(self, datasets: Sequence[Dataset]) -> Searched["LoggedModel"]:
        """Its metrics on these data sets, if there are some, and under a name of its own each metric on one data set."""
        attributes: dict[str, float | str | None] = {
            "creation_timestamp": self.created_ms,
            "last_updated_timestamp": self.updated_ms or self.created_ms,
            "name": self.name,
            "model_id": self.id,
            "model_type": self.type,
            "status": _STATUS[self.status],
            "source_run_id": self.source_run,
            "experiment_id": self.experiment,
        }
        newest: dict[str, Value] = {}
        for (key, dataset), (_, value) in self.metrics.items():
            names = [_on_dataset(key, (dataset[0], "")), _on_dataset(key, dataset)] if any(dataset) else []
            for name in [key, *names] if _is_on(dataset, datasets) else names:
                if name not in newest or newest[name].time_ms <= value.time_ms:
                    newest[name] = value
        return Searched(self, attributes, {name: one.value for name, one in newest.items()}, self.params, self.tags)


class MlflowModels:
    """The logged models of a rank's clients, in bounded memory."""

    def __init__(self, experiments: MlflowExperiments, kept: MlflowTexts) -> None:
        self._experiments, self._texts = experiments, kept
        self._models: dict[str, LoggedModel] = {}
        self._metrics = 0

    def found(self, model_id: str) -> LoggedModel:
        """The model with this id. Raises MlflowError."""
        if model_id not in self._models:
            raise missing(
                f"there is no logged model with the id {model_id[:80]!r}: this rank's clients have not logged it since the rank's start"
            )
        return self._models[model_id]

    def create(self, body: Json, prefix: str, known: Mapping[str, str]) -> Json:
        """A new model without files. Raises MlflowError.

        `prefix`, `known`: what the names of its run begin with, and the run's parameters, which clients repeat as the model's.
        """
        experiment = str(body.get("experiment_id") or "0")
        self._experiments.found(experiment)
        name = str(body.get("name") or "") or f"model-{len(self._models) + 1}"
        if len(name) > MOST_KEY or _FORBIDDEN & set(name):
            raise invalid(f"name is {ascii(name)[:80]}: send a name without any of {' '.join(sorted(_FORBIDDEN))}")
        if len(self._models) >= MOST_MODELS:
            raise invalid(f"a rank keeps {MOST_MODELS:,} logged models, and {name!r} is one more: log fewer")
        source, kind = str(body.get("source_run_id") or "")[:MOST_KEY], str(body.get("model_type") or "")[:MOST_KEY]
        params, tags = read_pairs(body.get("params", []), "param"), read_pairs(body.get("tags", []), "tag")
        folder = self._folder(f"{prefix}models/{name}")
        model = LoggedModel(f"m-{secrets.token_hex(16)}", name, experiment, source, kind, folder)
        self._models[model.id] = model
        self._texts.log("parameter", folder, {key: value for key, value in params.items() if known.get(key) != value})
        self._keep(model, params, tags)
        return {"model": model.to_json()}

    def _folder(self, wanted: str) -> str:
        """One that no other model has."""
        taken, count, folder = {one.folder for one in self._models.values()}, 1, f"{wanted}/"
        while folder in taken:
            count += 1
            folder = f"{wanted}-{count}/"
        return folder

    def _keep(self, model: LoggedModel, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        self._texts.log("tag", model.folder, tags)
        self._texts.keep(model.params, params)
        self._texts.keep(model.tags, tags)

    def answer(self, method: str, path: str, body: Json) -> Json | None:
        """The answer about one model, such as of `PATCH m-1/tags`; None if there is no such endpoint. Raises MlflowError."""
        model_id, _, rest = path.partition("/")
        match method, *rest.split("/", 1):
            case "GET", "":
                return {"model": self.found(model_id).to_json()}
            case "PATCH", "":
                return self._finalize(self.found(model_id), body)
            case "POST", "params":
                return self._add(self.found(model_id), body)
            case "PATCH", "tags":
                return self._add(self.found(model_id), body)
            case "DELETE", "tags", key:
                if not self._texts.drop(self.found(model_id).tags, key):
                    raise missing(f"the logged model {model_id} has no tag {key[:80]!r}")
                return {}
        return None

    def _add(self, model: LoggedModel, body: Json) -> Json:
        params, tags = read_pairs(body.get("params", []), "param"), read_pairs(body.get("tags", []), "tag")
        self._texts.log("parameter", model.folder, params)
        self._keep(model, params, tags)
        model.updated_ms = now_ms()
        return {"model": model.to_json()}

    def _finalize(self, model: LoggedModel, body: Json) -> Json:
        status = text(body, "status")
        if status not in ("LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED"):
            raise invalid(f"status is {status[:80]!r}: send LOGGED_MODEL_READY or LOGGED_MODEL_UPLOAD_FAILED")
        model.status, model.updated_ms = status, now_ms()
        how = "is" if status == "LOGGED_MODEL_READY" else "is incomplete:"
        self._texts.write_line(f"MLflow model {shown(model.folder.rstrip('/'))} {how} {model.id}")
        return {"model": model.to_json()}

    def search(self, body: Json) -> Json:
        """The newest first, or as `order_by` says. Raises MlflowError."""
        experiments, datasets = texts(body, "experiment_ids"), _datasets(body.get("datasets") or [])
        comparisons = read_filter(str(body.get("filter") or ""), _ATTRIBUTES)
        models = [one for one in reversed(self._models.values()) if one.experiment in experiments]
        if datasets and not any(one.field.kind == "metric" for one in comparisons):
            models = [one for one in models if any(_is_on(dataset, datasets) for _, dataset in one.metrics)]
        orders = [_order(one) for one in records(body.get("order_by") or [], "order_by field")]
        found = ordered(matching([one.searched(datasets) for one in models], comparisons), orders)
        page, token = paged(found, body, _MOST_PAGE)
        return {"models": [one.to_json() for one in page]} | token

    def add_metric(self, model_id: str, key: str, dataset: Dataset, run: str, value: Value) -> None:
        """A value that is about a model. Raises MlflowError."""
        model = self.found(model_id)
        known = model.metrics.get((key, dataset))
        if known is None:
            if self._metrics >= MOST_METRICS:
                return
            self._metrics += 1
        if known is None or known[1].step <= value.step:
            model.metrics[key, dataset] = run, value


def _is_on(dataset: Dataset, wanted: Sequence[Dataset]) -> bool:
    """Whether a metric on this data set counts. Any does if none is wanted."""
    return not wanted or any(name == dataset[0] and digest in ("", dataset[1]) for name, digest in wanted)


def _on_dataset(key: str, dataset: Dataset) -> str:
    """The name of a metric on a data set, which no metric has: names are printable."""
    return "\0".join((key, *dataset))


def _datasets(sent: Any) -> list[Dataset]:
    return [(text(one, "dataset_name"), str(one.get("dataset_digest") or "")) for one in records(sent, "dataset")]


def _order(sent: Json) -> Order:
    """Raises MlflowError."""
    name, ascending = text(sent, "field_name"), sent.get("ascending", True)
    if not isinstance(ascending, bool):
        raise invalid(f"ascending of order_by {name[:80]!r} is {ascii(ascending)[:80]}: send true or false")
    kind, dot, key = name.partition(".")
    if dot and kind == "metrics":
        dataset = str(sent.get("dataset_name") or ""), str(sent.get("dataset_digest") or "")
        return Order(Field("metric", _on_dataset(key, dataset) if any(dataset) else key, is_number=True), not ascending)
    known = {**_ATTRIBUTES.numbers, **_ATTRIBUTES.texts}
    if name not in known:
        raise invalid(f"field_name of order_by is {name[:80]!r}: send metrics.NAME or one of {', '.join(known)}")
    return Order(Field("attribute", known[name], is_number=name in _ATTRIBUTES.numbers), not ascending)
