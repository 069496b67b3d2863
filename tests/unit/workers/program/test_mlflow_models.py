"""Logged models of MLflow clients without a client: folders, searches, metrics, limits. (`test_mlflow_artifacts.py` has real ones.)"""

import math
import re
from typing import Any

import pytest

from shardyard.workers.program import mlflow_models
from shardyard.workers.program.mlflow_fields import MlflowError

from .test_mlflow_runs import Logged


def create(logged: Logged, name: str, run: str = "", **more: Any) -> str:
    body = {"experiment_id": "0", "name": name, "source_run_id": run, **more}
    return str(logged.runs.answer("POST", "logged-models", body)["model"]["info"]["model_id"])


def read(logged: Logged, model: str) -> dict[str, Any]:
    found: dict[str, Any] = logged.runs.answer("GET", f"logged-models/{model}", {})["model"]
    return found


def search(logged: Logged, **body: Any) -> list[str]:
    found = logged.runs.answer("POST", "logged-models/search", {"experiment_ids": ["0"], **body})["models"]
    return [one["info"]["name"] for one in found]


def metrics(logged: Logged, model: str) -> dict[str, tuple[int, Any]]:
    return {one["key"]: (one["step"], one["value"]) for one in read(logged, model)["data"]["metrics"]}


def test_each_model_has_a_folder_of_its_own() -> None:
    logged = Logged()
    first, second = logged.run("first"), logged.run("trial")
    models = [create(logged, name, run) for name in ("net", "net", "net-2") for run in (first, second)]
    models += [create(logged, "net"), create(logged, "")]
    assert [logged.runs.prefix(model) for model in models] == [
        "models/net/",
        "trial/models/net/",
        "models/net-2/",
        "trial/models/net-2/",
        "models/net-2-2/",
        "trial/models/net-2-2/",
        "models/net-3/",
        "models/model-8/",
    ]
    assert logged.runs.prefix(second) == "trial/"


def test_a_model_has_what_clients_gave_it() -> None:
    logged = Logged()
    run = logged.run()
    logged.runs.answer("POST", "runs/log-parameter", {"run_id": run, "key": "lr", "value": "0.1"})
    params = [{"key": "lr", "value": "0.1"}, {"key": "depth", "value": "3"}]
    tags = [{"key": "mlflow.user", "value": "me"}, {"key": "team", "value": "vision"}]
    model = create(logged, "net", run, params=params, tags=tags, model_type="agent")
    info = read(logged, model)["info"]
    assert (info["status"], info["model_type"], info["source_run_id"]) == ("LOGGED_MODEL_PENDING", "agent", run)
    assert info["artifact_uri"] == f"mlflow-artifacts:/0/models/{model}/artifacts" and re.fullmatch(
        "m-[0-9a-f]{32}", model
    )
    assert read(logged, model)["data"]["params"] == params and info["tags"] == tags
    logged.runs.answer("POST", f"logged-models/{model}/params", {"params": [{"key": "more", "value": "1"}]})
    logged.runs.answer("PATCH", f"logged-models/{model}/tags", {"tags": [{"key": "a/b c", "value": "1"}]})
    logged.runs.answer("DELETE", f"logged-models/{model}/tags/a/b%20c", {})
    logged.runs.answer("DELETE", f"logged-models/{model}/tags/mlflow.user", {})
    answer = logged.runs.answer("PATCH", f"logged-models/{model}", {"status": "LOGGED_MODEL_READY"})["model"]
    assert answer == read(logged, model) and answer["info"]["status"] == "LOGGED_MODEL_READY"
    assert answer["info"]["tags"] == tags[1:] and len(answer["data"]["params"]) == 3
    other = create(logged, "net", run)
    logged.runs.answer("PATCH", f"logged-models/{other}", {"status": "LOGGED_MODEL_UPLOAD_FAILED"})
    assert logged.lines == [
        "MLflow parameter lr = 0.1",
        "MLflow parameter models/net/depth = 3",
        "MLflow tag models/net/team = vision",
        "MLflow parameter models/net/more = 1",
        "MLflow tag models/net/a/b c = 1",
        f"MLflow model models/net is {model}",
        f"MLflow model models/net-2 is incomplete: {other}",
    ]


def test_a_run_has_the_models_that_it_logged_and_used() -> None:
    logged = Logged()
    run = logged.run()
    first, second = create(logged, "a", run), create(logged, "b", run)
    outputs = [{"model_id": first, "step": "3"}, {"model_id": second}]
    logged.runs.answer("POST", "runs/outputs", {"run_id": run, "models": outputs})
    logged.runs.answer("POST", "runs/log-inputs", {"run_id": run, "models": [{"model_id": second}]})
    found = logged.read(run)
    assert found["outputs"] == {"model_outputs": [{"model_id": first, "step": 3}, {"model_id": second, "step": 0}]}
    assert found["inputs"] == {"model_inputs": [{"model_id": second}]}


def test_a_metric_of_a_model_is_one_of_its_run_once() -> None:
    """Clients repeat a value for each model of a step, and what they read when they log a model."""
    logged = Logged()
    run = logged.run()
    for value in (1.0, 2.0):
        logged.log(run, "loss", value)
    model, other = create(logged, "net", run), create(logged, "other", run)
    read_back = logged.runs.answer("GET", "metrics/get-history", {"run_id": run, "metric_key": "loss"})["metrics"]
    again = [one | {"model_id": model} for one in read_back if one["step"] == 1]
    logged.runs.answer("POST", "runs/log-batch", {"run_id": run, "metrics": again})
    both = [{"key": "loss", "value": 3.0, "timestamp": 5, "model_id": one} for one in (model, other)]
    logged.runs.answer("POST", "runs/log-batch", {"run_id": run, "metrics": both})
    logged.log(run, "loss", 4.0)
    logged.log(run, "acc", math.nan, step=7, model_id=other, dataset_name="test", dataset_digest="ab")
    assert logged.metrics == {"loss": [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0)], "acc": [(7, None)]}
    assert metrics(logged, model) == {"loss": (2, 3.0)} and metrics(logged, other) == {
        "loss": (2, 3.0),
        "acc": (7, "NaN"),
    }
    (acc,) = [one for one in read(logged, other)["data"]["metrics"] if one["key"] == "acc"]
    assert (acc["dataset_name"], acc["dataset_digest"], acc["run_id"], acc["model_id"]) == ("test", "ab", run, other)


def test_nothing_of_a_batch_about_a_model_that_is_not_there_is_taken() -> None:
    logged = Logged()
    sent = [{"key": "a", "value": 1.0}, {"key": "a", "value": 2.0, "model_id": f"m-{'0' * 32}"}]
    with pytest.raises(MlflowError, match=r"^there is no logged model with the id 'm-000.+ since the rank's start"):
        logged.runs.answer("POST", "runs/log-batch", {"run_id": logged.run(), "metrics": sent})
    logged.batch.flush()
    assert logged.metrics == {}


def test_models_are_searched_and_ordered() -> None:
    logged = Logged()
    run = logged.run()
    models = [create(logged, name, run, params=[{"key": "lr", "value": name}]) for name in ("a", "b", "c")]
    for model, on_train, on_test in zip(models, (0.1, 0.2, 0.3), (0.9, 0.7, 0.8), strict=True):
        logged.log(run, "acc", on_train, 1, model_id=model, timestamp=1, dataset_name="train", dataset_digest="x")
        if model != models[1]:
            logged.log(run, "acc", on_test, 2, model_id=model, timestamp=2, dataset_name="test", dataset_digest="y")
    logged.runs.answer("PATCH", f"logged-models/{models[2]}", {"status": "LOGGED_MODEL_READY"})
    assert search(logged) == ["c", "b", "a"] and search(logged, experiment_ids=["1"]) == []
    assert search(logged, filter=f"name = 'a' AND source_run_id = '{run}'") == ["a"]
    assert search(logged, filter="params.lr != 'b' AND status = 'PENDING'") == ["a"]
    assert search(logged, filter="metrics.acc > 0.5") == ["c", "a"]
    train, test = {"dataset_name": "train"}, {"dataset_name": "test", "dataset_digest": "y"}
    assert search(logged, filter="metrics.acc > 0.15", datasets=[train]) == ["c", "b"]
    assert (
        search(logged, datasets=[test]) == ["c", "a"]
        and search(logged, datasets=[{**test, "dataset_digest": "z"}]) == []
    )
    assert search(logged, order_by=[{"field_name": "name"}]) == ["a", "b", "c"]
    descending = {"field_name": "metrics.acc", "ascending": False}
    assert search(logged, order_by=[descending]) == ["a", "c", "b"]
    assert search(logged, order_by=[descending | train]) == ["c", "b", "a"]
    assert search(logged, order_by=[{"field_name": "metrics.acc", **test}]) == ["c", "a", "b"]
    body = {"experiment_ids": ["0"], "max_results": 2, "order_by": [{"field_name": "creation_time"}]}
    page = logged.runs.answer("POST", "logged-models/search", body)
    assert len(page["models"]) == 2
    assert len(search(logged, page_token=page["next_page_token"], order_by=body["order_by"])) == 1


@pytest.mark.parametrize(
    ("method", "endpoint", "body", "code", "why"),
    [
        (
            "POST",
            "logged-models",
            {"name": "a/b"},
            "INVALID_PARAMETER_VALUE",
            "name is 'a/b': send a name without any of",
        ),
        ("POST", "logged-models", {"experiment_id": "7"}, "RESOURCE_DOES_NOT_EXIST", "there is no experiment"),
        ("POST", "logged-models", {"source_run_id": "x"}, "RESOURCE_DOES_NOT_EXIST", "there is no run"),
        ("POST", "logged-models", {"params": [{"key": "a", "value": 3}]}, "INVALID_PARAMETER_VALUE", "value of param"),
        ("GET", "logged-models/m-0", {}, "RESOURCE_DOES_NOT_EXIST", "there is no logged model with the id 'm-0'"),
        (
            "PATCH",
            "logged-models/MODEL",
            {"status": "READY"},
            "INVALID_PARAMETER_VALUE",
            "status is 'READY': send LOGGED_MODEL_READY",
        ),
        ("DELETE", "logged-models/MODEL/tags/no", {}, "RESOURCE_DOES_NOT_EXIST", "has no tag 'no'"),
        ("DELETE", "logged-models/MODEL", {}, "ENDPOINT_NOT_FOUND", "DELETE logged-models/m-"),
        ("GET", "logged-models/MODEL/else", {}, "ENDPOINT_NOT_FOUND", "GET logged-models/m-"),
        (
            "POST",
            "logged-models/search",
            {"filter": "color = 'a'"},
            "INVALID_PARAMETER_VALUE",
            "use one of creation_timestamp",
        ),
        ("POST", "logged-models/search", {"order_by": ["name"]}, "INVALID_PARAMETER_VALUE", "send a list of objects"),
        ("POST", "logged-models/search", {"order_by": [{}]}, "INVALID_PARAMETER_VALUE", "field_name is None"),
        (
            "POST",
            "logged-models/search",
            {"order_by": [{"field_name": "params.a"}]},
            "INVALID_PARAMETER_VALUE",
            "send metrics.NAME",
        ),
        (
            "POST",
            "logged-models/search",
            {"order_by": [{"field_name": "name", "ascending": "no"}]},
            "INVALID_PARAMETER_VALUE",
            "ascending of order_by 'name' is 'no'",
        ),
        ("POST", "logged-models/search", {"datasets": [{}]}, "INVALID_PARAMETER_VALUE", "dataset_name is None"),
        ("POST", "registered-models/create", {"name": "a"}, "ENDPOINT_NOT_FOUND", "registered_model_name"),
    ],
)
def test_what_is_refused_says_why(method: str, endpoint: str, body: dict[str, Any], code: str, why: str) -> None:
    logged = Logged()
    with pytest.raises(MlflowError) as refused:
        logged.runs.answer(method, endpoint.replace("MODEL", create(logged, "net")), body)
    assert refused.value.code == code and why in str(refused.value)


def test_memory_does_not_grow_with_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_models, "MOST_MODELS", 2)
    monkeypatch.setattr(mlflow_models, "MOST_METRICS", 3)
    logged = Logged()
    run, models = logged.run(), [create(logged, "a"), create(logged, "b")]
    with pytest.raises(MlflowError, match=r"^a rank keeps 2 logged models, and 'c' is one more"):
        create(logged, "c")
    for step in range(5):
        for model in models:
            for key in ("loss", "acc"):
                logged.log(run, key, float(step), step, model_id=model)
    assert metrics(logged, models[0]) == {"loss": (4, 4.0), "acc": (4, 4.0)}
    assert metrics(logged, models[1]) == {"loss": (4, 4.0)} and len(logged.metrics["acc"]) == 5
