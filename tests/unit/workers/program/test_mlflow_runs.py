"""The runs of MLflow clients without a client: names, steps, limits, and what is refused. (`test_mlflow_server.py` has real ones.)"""

import json
import math
from typing import Any

import pytest

from shardyard.workers.messages.metric_block import MOST_NAMES, columns
from shardyard.workers.program import mlflow_history, mlflow_runs, mlflow_texts
from shardyard.workers.program.metric_batch import MetricBatch
from shardyard.workers.program.mlflow_fields import MlflowError
from shardyard.workers.program.mlflow_tracking import MlflowTracking


class Logged:
    """A rank's runs, with the metrics and lines that came of them."""

    def __init__(self) -> None:
        self.metrics: dict[str, list[tuple[int, float | None]]] = {}
        self.lines: list[str] = []
        self.batch = MetricBatch(self._take)
        self.runs = MlflowTracking(self.batch, self.lines.append)

    def _take(self, blocks: Any) -> None:
        for name, pairs in (column for block in blocks for column in columns(block)):
            self.metrics.setdefault(name, []).extend(pairs)

    def run(self, name: str = "") -> str:
        made = self.runs.answer("POST", "runs/create", {"experiment_id": "0", "run_name": name})
        return str(made["run"]["info"]["run_id"])

    def log(self, run: str, key: str, value: Any = 1.0, step: Any = 0, **more: Any) -> None:
        body = {"run_id": run, "key": key, "value": value, "step": step, "timestamp": 1, **more}
        self.runs.answer("POST", "runs/log-metric", body)
        self.batch.flush()

    def read(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = self.runs.answer("GET", "runs/get", {"run_id": run})["run"]
        return found


def test_the_metrics_of_later_runs_begin_with_the_runs_name() -> None:
    logged = Logged()
    for name in ("first", "trial", "trial", ""):
        logged.log(logged.run(name), "loss", step=3)
    assert list(logged.metrics) == ["loss", "trial/loss", "trial-3/loss", "run-4/loss"]


def test_no_two_runs_share_a_curve() -> None:
    """Also where a run has the name that another one would get for its number."""
    logged = Logged()
    for name in ("main", "a", "a-4", "a"):
        logged.log(logged.run(name), "loss", step=3)
    assert list(logged.metrics) == ["loss", "a/loss", "a-4/loss", "a-5/loss"]


def test_each_run_counts_values_without_a_step() -> None:
    logged = Logged()
    first, second = logged.run(), logged.run()
    for value in range(3):
        logged.log(first, "a", value)
    logged.log(second, "a", 7.0)
    assert logged.metrics == {"a": [(0, 0.0), (1, 1.0), (2, 2.0)], "run-2/a": [(0, 7.0)]}


def test_a_run_that_is_continued_by_its_id_is_there() -> None:
    """After a restart, or on another rank, clients know an id that this rank has not made."""
    logged = Logged()
    logged.runs.answer("POST", "experiments/create", {"name": "mine"})
    logged.runs.answer("GET", "experiments/get-by-name", {"experiment_name": "mine"})
    logged.log("0123456789abcdef" * 2, "a", step=5)
    assert logged.metrics == {"a": [(5, 1.0)]}
    assert logged.read("0123456789abcdef" * 2)["info"]["experiment_id"] == "1"


def test_numbers_of_all_kinds_come_as_protocol_buffers_write_them() -> None:
    logged = Logged()
    run = logged.run()
    for key, value, step in (("a", "NaN", "3"), ("b", "-Infinity", 4), ("c", 2, None), ("d", "Infinity", 1)):
        logged.log(run, key, value, step)
    assert logged.metrics == {"a": [(3, None)], "b": [(4, None)], "c": [(0, 2.0)], "d": [(1, None)]}
    read = {one["key"]: one["value"] for one in logged.read(run)["data"]["metrics"]}
    assert read == {"a": "NaN", "b": "-Infinity", "c": 2.0, "d": "Infinity"}


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        ({"key": "a" * 201}, "metric 'a{79}: 'a+ is not a name of 1 to 200"),
        ({"key": "a\nb"}, r"metric 'a..b': 'a..b' is not a name of 1 to 200"),
        ({"key": ""}, "key is ''"),
        ({"key": "a", "step": -1}, "step of metric 'a': -1 is not"),
        ({"key": "a", "step": 2**53}, "step of metric 'a': 9007199254740992 is not"),
        ({"key": "a", "step": "x"}, "step is 'x'"),
        ({"key": "a", "step": math.inf}, "step is inf"),
        ({"key": "a", "value": "many"}, "metric 'a': could not convert"),
        ({"key": "a", "value": [1]}, r"metric 'a': float\(\)"),
        ({"key": "a", "timestamp": "now"}, "timestamp is 'now'"),
    ],
)
def test_nothing_of_a_batch_with_an_invalid_metric_is_taken(metric: dict[str, Any], reason: str) -> None:
    logged = Logged()
    good = {"key": "good", "value": 1.0, "step": 1}
    body = {"run_id": logged.run(), "metrics": [good, {"value": 1.0, **metric}], "params": [{"key": "p", "value": "1"}]}
    with pytest.raises(MlflowError, match="^" + reason) as refused:
        logged.runs.answer("POST", "runs/log-batch", body)
    logged.batch.flush()
    assert (refused.value.code, logged.metrics, logged.lines) == ("INVALID_PARAMETER_VALUE", {}, [])


@pytest.mark.parametrize(
    ("method", "endpoint", "body", "code"),
    [
        ("GET", "runs/get", {"run_id": "mine"}, "RESOURCE_DOES_NOT_EXIST"),
        ("GET", "runs/get", {}, "INVALID_PARAMETER_VALUE"),
        ("GET", "experiments/get", {"experiment_id": "7"}, "RESOURCE_DOES_NOT_EXIST"),
        ("GET", "experiments/get-by-name", {"experiment_name": "no"}, "RESOURCE_DOES_NOT_EXIST"),
        ("POST", "experiments/create", {"name": "Default"}, "RESOURCE_ALREADY_EXISTS"),
        ("POST", "runs/create", {"experiment_id": "7"}, "RESOURCE_DOES_NOT_EXIST"),
        ("POST", "runs/create", {"tags": "x"}, "INVALID_PARAMETER_VALUE"),
        ("POST", "runs/create", {"start_time": "now"}, "INVALID_PARAMETER_VALUE"),
        ("POST", "runs/search", {"experiment_ids": ["0"], "filter": "metrics.a > 'x'"}, "INVALID_PARAMETER_VALUE"),
        ("POST", "runs/search", {"experiment_ids": ["0"], "order_by": ["metrics.a UP"]}, "INVALID_PARAMETER_VALUE"),
        ("POST", "runs/search", {"experiment_ids": ["0"], "order_by": "metrics.a"}, "INVALID_PARAMETER_VALUE"),
        ("POST", "runs/search", {"experiment_ids": ["0"], "page_token": "x"}, "INVALID_PARAMETER_VALUE"),
        ("POST", "experiments/search", {"filter": "name = 'a'"}, "INVALID_PARAMETER_VALUE"),
        ("GET", "metrics/get-history", {"run_id": "0" * 32}, "INVALID_PARAMETER_VALUE"),
        ("GET", "metrics/get-history", {"run_id": "no", "metric_key": "a"}, "RESOURCE_DOES_NOT_EXIST"),
        ("POST", "runs/log-metric", {"run_id": "0" * 32, "key": "a", "timestamp": 2**63}, "INVALID_PARAMETER_VALUE"),
        ("POST", "runs/log-metric", {"run_id": "0" * 32, "key": "a", "model_id": "m-0"}, "RESOURCE_DOES_NOT_EXIST"),
        ("POST", "runs/log-model", {"run_id": "0" * 32, "model_json": "[]"}, "INVALID_PARAMETER_VALUE"),
        ("POST", "runs/outputs", {"run_id": "0" * 32, "models": [{"model_id": "m-0"}]}, "RESOURCE_DOES_NOT_EXIST"),
        ("POST", "runs/delete-tag", {"run_id": "0" * 32, "key": "no"}, "RESOURCE_DOES_NOT_EXIST"),
        ("POST", "runs/search", {"experiment_ids": 3}, "INVALID_PARAMETER_VALUE"),
        ("POST", "runs/delete", {"run_id": "0" * 32}, "ENDPOINT_NOT_FOUND"),
        ("POST", "runs/set-tag", {"run_id": "0" * 32, "key": "k", "value": 3}, "INVALID_PARAMETER_VALUE"),
        ("POST", "runs/log-parameter", {"run_id": "0" * 32, "key": "k" * 1001}, "INVALID_PARAMETER_VALUE"),
    ],
)
def test_what_is_refused_has_mlflows_code(method: str, endpoint: str, body: dict[str, Any], code: str) -> None:
    with pytest.raises(MlflowError) as refused:
        Logged().runs.answer(method, endpoint, body)
    assert refused.value.code == code


def test_parameters_and_tags_are_lines_of_the_log() -> None:
    logged = Logged()
    run = logged.run()
    for key, value in (("lr", "0.1"), ("text", "a\nb"), ("long", "x" * 2000)):
        logged.runs.answer("POST", "runs/log-parameter", {"run_id": run, "key": key, "value": value})
    logged.runs.answer("POST", "runs/set-tag", {"run_id": run, "key": "mlflow.note", "value": "by the client"})
    logged.runs.answer("POST", "runs/set-tag", {"run_id": logged.run("b"), "key": "team", "value": "vision"})
    assert logged.lines == [
        "MLflow parameter lr = 0.1",
        r"MLflow parameter text = 'a\nb'",
        f"MLflow parameter long = {'x' * 2000}",
        "MLflow tag b/team = vision",
    ]
    assert {one["key"]: len(one["value"]) for one in logged.read(run)["data"]["params"]} == {
        "lr": 3,
        "text": 3,
        "long": 2000,
    }


def test_memory_does_not_grow_with_steps_runs_or_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_runs, "MOST_KEPT", 3)
    monkeypatch.setattr(mlflow_texts, "MOST_TEXT", 100)
    monkeypatch.setattr(mlflow_history, "MOST_VALUES", 20)
    logged = Logged()
    first = logged.run("a")
    for step in range(50):
        logged.log(first, "a", step, step)
    found = logged.runs.answer("GET", "metrics/get-history", {"run_id": first, "metric_key": "a"})
    assert [one["step"] for one in found["metrics"]] == [*range(0, 49, 4), 49] and found["kept_every"] == 4
    assert len(logged.metrics["a"]) == 50
    assert [line.split(" because ")[0] for line in logged.lines] == [
        "MLflow metric a: get_metric_history has only every second value from now on, and later fewer,"
    ]
    logged.lines.clear()
    second = logged.run("b")
    texts = {"params": [{"key": f"p{number}", "value": "x" * 40} for number in range(3)]}
    logged.runs.answer("POST", "runs/log-batch", {"run_id": second, **texts})
    assert (len(logged.lines), len(logged.read(second)["data"]["params"])) == (3, 2)
    logged.runs.answer("POST", "runs/update", {"run_id": second, "status": "FINISHED", "end_time": 5})
    third, fourth = logged.run(), logged.run()
    found = logged.runs.answer("POST", "runs/search", {"experiment_ids": ["0"]})["runs"]
    assert [one["info"]["run_id"] for one in found] == [fourth, third, first]
    logged.runs.answer("POST", "runs/log-batch", {"run_id": third, **texts})
    assert len(logged.read(third)["data"]["params"]) == 2


def test_the_newest_values_of_a_thousand_metrics_can_be_read() -> None:
    logged = Logged()
    run = logged.run()
    for number in range(MOST_NAMES + 1):
        logged.log(run, f"m{number}", step=1)
    assert len(logged.read(run)["data"]["metrics"]) == MOST_NAMES and len(logged.metrics) == MOST_NAMES + 1


def test_all_values_of_a_metric_are_read_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_runs, "MOST_PAGE", 4)
    logged = Logged()
    run = logged.run()
    for value in (*range(5), math.nan):
        logged.log(run, "a", value)
    body: dict[str, Any] = {"run_id": run, "metric_key": "a"}
    first = logged.runs.answer("GET", "metrics/get-history", body | {"max_results": "25000"})
    second = logged.runs.answer("GET", "metrics/get-history", body | {"page_token": first["next_page_token"]})
    found = [*first["metrics"], *second["metrics"]]
    assert [(one["step"], one["value"]) for one in found] == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, "NaN")]
    assert len(first["metrics"]) == 4 and second.keys() == {"metrics"} and {one["run_id"] for one in found} == {run}
    assert logged.runs.answer("GET", "metrics/get-history", {"run_id": run, "metric_key": "no"}) == {"metrics": []}


def test_runs_are_searched_and_ordered() -> None:
    logged = Logged()
    for number, name in enumerate(("a", "b", "c")):
        run = logged.run(name)
        logged.log(run, "loss", [0.3, math.nan, 0.1][number], step=3)
        logged.log(run, "loss", 9.0, step=2)
        logged.runs.answer("POST", "runs/log-parameter", {"run_id": run, "key": "lr", "value": f"0.{number}"})

    def search(**body: Any) -> list[str]:
        found = logged.runs.answer("POST", "runs/search", {"experiment_ids": ["0"], **body})["runs"]
        return [one["info"]["run_name"] for one in found]

    assert search() == ["c", "b", "a"]
    assert search(filter="metrics.loss < 0.2 AND params.lr = '0.2'") == ["c"]
    assert search(filter="metrics.loss != 0.1", order_by=["metrics.loss DESC"]) == ["a", "b"]
    assert search(filter="attributes.run_name IN ('a', 'b')", order_by=["params.lr"]) == ["a", "b"]
    assert search(filter="tags.mlflow.runName = 'b' AND status = 'RUNNING' AND end_time > 0") == []
    assert search(filter="tags.mlflow.runName = 'b' AND status = 'RUNNING' AND start_time > 0") == ["b"]
    assert search(run_view_type="DELETED_ONLY") == [] and search(experiment_ids=["1"]) == []
    page = logged.runs.answer("POST", "runs/search", {"experiment_ids": ["0"], "max_results": 2})
    assert page["next_page_token"] and search(page_token=page["next_page_token"]) == ["a"]


def test_a_run_can_be_renamed_and_loses_tags() -> None:
    logged = Logged()
    run = logged.run("first")
    logged.runs.answer("POST", "runs/set-tag", {"run_id": run, "key": "mlflow.runName", "value": "second"})
    logged.runs.answer("POST", "runs/set-tag", {"run_id": run, "key": "team", "value": "vision"})
    read = logged.read(run)
    assert read["info"]["run_name"] == "second"
    assert {one["key"]: one["value"] for one in read["data"]["tags"]} == {"mlflow.runName": "second", "team": "vision"}
    logged.runs.answer("POST", "runs/delete-tag", {"run_id": run, "key": "team"})
    logged.runs.answer("POST", "runs/update", {"run_id": run, "run_name": "third"})
    assert logged.read(run)["data"]["tags"] == [{"key": "mlflow.runName", "value": "third"}]


def test_models_of_older_clients_are_a_bounded_tag() -> None:
    logged = Logged()
    run = logged.run()
    for number in range(50):
        model = json.dumps({"artifact_path": f"model-{number}", "flavors": {"text": "x" * 1000}})
        logged.runs.answer("POST", "runs/log-model", {"run_id": run, "model_json": model})
    (tag,) = [one for one in logged.read(run)["data"]["tags"] if one["key"] == "mlflow.log-model.history"]
    known = json.loads(tag["value"])
    assert known[-1]["artifact_path"] == "model-49" and 1 < len(known) < 20 and len(tag["value"]) <= 20_000
