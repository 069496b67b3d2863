"""What a rank keeps for its MLflow clients, and the endpoints of MLflow's REST API by which they reach it."""

import threading
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote

from .metric_batch import MetricBatch
from .mlflow_experiments import MlflowExperiments
from .mlflow_fields import Json, not_supported
from .mlflow_models import MlflowModels
from .mlflow_runs import MlflowRuns
from .mlflow_texts import MlflowTexts

#: What is followed by the id of a model, and by what is asked of it.
_MODEL: Final = "logged-models/"


class MlflowTracking:
    """Experiments, runs and logged models of a rank's clients. Any thread may call it."""

    def __init__(self, batch: MetricBatch, write_line: Callable[[str], None]) -> None:
        """`write_line`: writes a line to the rank's log."""
        self._lock = threading.Lock()
        texts = MlflowTexts(write_line)
        experiments = MlflowExperiments()
        self._models = models = MlflowModels(experiments, texts)
        self._runs = runs = MlflowRuns(experiments, models, texts, batch)
        self._endpoints: Mapping[tuple[str, str], Callable[[Json], Json]] = {
            ("POST", "experiments/create"): experiments.create,
            ("GET", "experiments/get"): experiments.get,
            ("GET", "experiments/get-by-name"): experiments.get_by_name,
            ("POST", "experiments/search"): experiments.search,
            ("POST", "runs/create"): runs.create,
            ("GET", "runs/get"): runs.get,
            ("POST", "runs/update"): runs.update,
            ("POST", "runs/search"): runs.search,
            ("POST", "runs/log-metric"): lambda body: runs.log(body, metrics=[body]),
            ("POST", "runs/log-parameter"): lambda body: runs.log(body, params=[body]),
            ("POST", "runs/set-tag"): lambda body: runs.log(body, tags=[body]),
            ("POST", "runs/delete-tag"): runs.delete_tag,
            ("POST", "runs/log-batch"): runs.log_batch,
            ("POST", "runs/log-inputs"): runs.log_inputs,
            ("POST", "runs/outputs"): runs.log_outputs,
            ("POST", "runs/log-model"): runs.log_model,
            ("GET", "metrics/get-history"): runs.metric_history,
            ("POST", "logged-models"): self._create_model,
            ("POST", "logged-models/search"): models.search,
        }

    def answer(self, method: str, endpoint: str, body: Json) -> Json:
        """The answer of an endpoint, such as `runs/create`. Raises MlflowError."""
        found = self._endpoints.get((method, endpoint))
        answer: Json | None = None
        with self._lock:
            if found is not None:
                answer = found(body)
            elif endpoint.startswith(_MODEL):
                answer = self._models.answer(method, unquote(endpoint.removeprefix(_MODEL)), body)
        if answer is None:
            raise not_supported(f"{method} {endpoint}"[:200])
        return answer

    def prefix(self, owner: str) -> str:
        """What the names of the artifacts of a run or logged model begin with. Raises MlflowError."""
        with self._lock:
            return self._models.found(owner).folder if owner.startswith("m-") else self._runs.found(owner).prefix

    def _create_model(self, body: Json) -> Json:
        run = self._runs.found(str(body["source_run_id"])) if body.get("source_run_id") else None
        return self._models.create(body, "" if run is None else run.prefix, {} if run is None else run.params)
