"""The runs of MLflow clients without a client: names, steps, limits, and what is refused. (`test_mlflow_server.py` has real ones.)"""

import math
from typing import Any

import pytest

from shardyard.workers.messages.metric_block import MOST_NAMES, columns
from shardyard.workers.program import mlflow_runs
from shardyard.workers.program.metric_batch import MetricBatch
from shardyard.workers.program.mlflow_runs import MlflowError, MlflowRuns


class Logged:
    """A rank's runs, with the metrics and lines that came of them."""

    def __init__(self) -> None:
        self.metrics: dict[str, list[tuple[int, float | None]]] = {}
        self.lines: list[str] = []
        self.batch = MetricBatch(self._take)
        self.runs = MlflowRuns(self.batch, self.lines.append)

    def _take(self, blocks: Any) -> None:
        for name, pairs in (column for block in blocks for column in columns(block)):
            self.metrics.setdefault(name, []).extend(pairs)

    def run(self, name: str = "") -> str:
        made = self.runs.answer("POST", "runs/create", {"experiment_id": "0", "run_name": name})
        return str(made["run"]["info"]["run_id"])

    def log(self, run: str, key: str, value: Any = 1.0, step: Any = 0) -> None:
        body = {"run_id": run, "key": key, "value": value, "step": step, "timestamp": 1}
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
        ("POST", "runs/search", {"experiment_ids": ["0"], "filter": "metrics.a > 1"}, "INVALID_PARAMETER_VALUE"),
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
    monkeypatch.setattr(mlflow_runs, "MOST_TEXT", 100)
    logged = Logged()
    first = logged.run()
    for step in range(50):
        logged.log(first, "a", step, step)
    history = logged.runs.answer("GET", "metrics/get-history", {"run_id": first, "metric_key": "a"})["metrics"]
    assert [(one["step"], one["value"]) for one in history] == [(49, 49.0)] and len(logged.metrics["a"]) == 50
    second = logged.run()
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
