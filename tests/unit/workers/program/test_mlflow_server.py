"""Real MLflow clients against the server of a rank, and what else may come over its port."""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.messages.metric_block import MetricBlock, columns
from shardyard.workers.program import mlflow_server
from shardyard.workers.program.artifact_uploads import ArtifactUploads
from shardyard.workers.program.mlflow_server import MOST_BYTES, serving

#: Without variables of the machine that runs the tests.
ENV = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW")}


def logged(
    script: str, env: dict[str, str] = ENV, uploads: ArtifactUploads | None = None
) -> tuple[dict[str, list[tuple[int, float | None]]], str]:
    """The metrics that came of a program, and what it printed."""
    found: dict[str, list[tuple[int, float | None]]] = {}

    def take(blocks: list[MetricBlock]) -> None:
        for name, pairs in (column for block in blocks for column in columns(block)):
            found.setdefault(name, []).extend(pairs)

    with serving({**env, "MLFLOW_DISABLE_TELEMETRY": "true"}, take, uploads) as served:
        done = subprocess.run(
            [sys.executable, "-c", script], env=served, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    assert done.returncode == 0, done.stderr
    return found, done.stdout


def test_a_client_logs_into_the_job_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    script = """
import mlflow
from mlflow.entities import Dataset, DatasetInput, Metric, Param, RunTag
mlflow.set_experiment("mine")
with mlflow.start_run(run_name="first") as run:
    mlflow.log_params({"lr": 0.1})
    mlflow.set_tags({"team": "vision"})
    for value in range(3):
        mlflow.log_metric("counted", value)
    mlflow.log_metrics({"a": 1.0, "b": float("nan")}, step=5)
    mlflow.log_metric("later", 2.0, step=9, synchronous=False)
    mlflow.MlflowClient().log_batch(
        run.info.run_id, metrics=[Metric("c", 1.5, 1, 7)], params=[Param("p", "q")], tags=[RunTag("t", "u")]
    )
    mlflow.MlflowClient().log_inputs(run.info.run_id, datasets=[DatasetInput(Dataset("texts", "ab12", "local", "{}"))])
    with mlflow.start_run(nested=True):
        mlflow.log_metric("loss", 3.0, step=1)
mlflow.flush_async_logging()
read = mlflow.get_run(run.info.run_id)
print(read.info.status, read.data.params, read.data.metrics["a"], read.data.tags["team"])
client = mlflow.MlflowClient()
print([one.value for one in client.get_metric_history(run.info.run_id, "counted")])
print([one.info.run_name for one in client.search_runs([run.info.experiment_id])])
found = mlflow.search_runs(filter_string="metrics.a >= 1 AND params.`p` = 'q'", order_by=["metrics.a DESC"])
print(list(found["tags.mlflow.runName"]), list(found["metrics.later"]))
pages = client.search_runs([run.info.experiment_id], max_results=1, order_by=["attributes.run_name"])
print([one.info.run_name for one in pages], [one.info.run_name for one in client.search_runs(
    [run.info.experiment_id], max_results=1, order_by=["attributes.run_name"], page_token=pages.token)])
print([one.name for one in client.search_experiments()])
with mlflow.start_run(run_id=run.info.run_id):
    mlflow.log_metric("counted", 3)
with mlflow.start_run(run_id="ab" * 16, nested=True):
    mlflow.log_metric("continued", 4, step=2)
"""
    metrics, printed = logged(script)
    assert metrics == {
        "counted": [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0)],
        "a": [(5, 1.0)],
        "b": [(5, None)],
        "later": [(9, 2.0)],
        "c": [(7, 1.5)],
        "run-2/loss": [(1, 3.0)],
        "run-3/continued": [(2, 4.0)],
    }
    assert printed.splitlines() == [
        "FINISHED {'lr': '0.1', 'p': 'q'} 1.0 vision",
        "[0.0, 1.0, 2.0]",
        "['run-2', 'first']",
        "['first'] [2.0]",
        "['first'] ['run-2']",
        "['Default', 'mine']",
    ]
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "MLflow parameter lr = 0.1",
        "MLflow tag team = vision",
        "MLflow parameter p = q",
        "MLflow tag t = u",
        "MLflow dataset texts = ab12",
    ]


def test_what_is_not_kept_is_an_error_that_says_what_to_do() -> None:
    """Also a file of a job without storage that is larger than the sockets' buffers: clients send all of it before they read the answer."""
    script = """
import mlflow, pathlib, tempfile
mlflow.start_run()
with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "model.bin")
    file.write_bytes(bytes(20 << 20))
    for call in (
        lambda: mlflow.log_artifact(str(file)),
        lambda: mlflow.log_text("text", "a.txt"),
        lambda: mlflow.MlflowClient().create_registered_model("m"),
        lambda: mlflow.log_metric("a" * 240, 1.0),
        lambda: mlflow.log_metric("a", 1.0, step=-1),
        lambda: mlflow.search_runs(filter_string="metrics.a > 'x'"),
    ):
        try:
            call()
        except Exception as error:
            print(str(error).replace(chr(10), " "))
"""
    metrics, printed = logged(script)
    assert metrics == {}
    *artifacts, model, name, step, query = printed.splitlines()
    assert len(artifacts) == 2
    for line in artifacts:
        assert "INVALID_PARAMETER_VALUE" in line and "this job stores no artifacts" in line
    assert "ENDPOINT_NOT_FOUND" in model and "Leave this call or registered_model_name out" in model
    assert name.startswith("INVALID_PARAMETER_VALUE: metric 'aaa") and "1 to 200 printable characters" in name
    assert step.startswith("INVALID_PARAMETER_VALUE: step of metric 'a': -1 is not a whole number")
    assert query == (
        "INVALID_PARAMETER_VALUE: filter \"metrics.a > 'x'\", at \"'x'\": compare metric 'a' with a number"
    )


def test_all_steps_of_a_metric_are_read_back_in_pages() -> None:
    """More than a page of a client has."""
    script = """
import mlflow
from mlflow.entities import Metric
client = mlflow.MlflowClient()
run = mlflow.start_run().info.run_id
for first in range(0, 26_000, 1000):
    client.log_batch(run, metrics=[Metric("loss", float(-step), step, step) for step in range(first, first + 1000)])
found = client.get_metric_history(run, "loss")
print([(one.step, one.timestamp, one.value) for one in found] == [(step, step, -step) for step in range(26_000)])
"""
    metrics, printed = logged(script)
    assert printed == "True\n" and len(metrics["loss"]) == 26_000


@pytest.mark.full
def test_metrics_of_the_system_are_metrics() -> None:
    script = """
import mlflow, time
mlflow.set_system_metrics_sampling_interval(0.1)
mlflow.set_system_metrics_samples_before_logging(1)
with mlflow.start_run(log_system_metrics=True):
    time.sleep(1)
"""
    metrics, _ = logged(script)
    steps = [step for step, _ in metrics["system/cpu_utilization_percentage"]]
    assert len(steps) > 1 and steps == list(range(len(steps)))


@pytest.mark.parametrize("name", ["MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME"])
def test_a_program_with_a_server_of_its_own_keeps_it(name: str) -> None:
    before = set(threading.enumerate())
    with serving({name: "mine"}, lambda _: None) as env:
        assert dict(env) == {name: "mine"} and set(threading.enumerate()) <= before


def test_no_proxy_is_asked_for_the_servers_address() -> None:
    with serving({}, lambda _: None) as env:
        assert "no_proxy" not in env
    with serving({"https_proxy": "http://p", "HTTP_PROXY": "http://p", "NO_PROXY": "a.b"}, lambda _: None) as env:
        assert (env["no_proxy"], env["NO_PROXY"]) == ("a.b,127.0.0.1", "a.b,127.0.0.1")


def asked(
    env: Any, method: str, path: str, body: bytes | Iterable[bytes] | None = None, **headers: str
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(env["MLFLOW_TRACKING_URI"]).port, timeout=PATIENCE_S)
    try:
        given = {"Authorization": f"Bearer {env['MLFLOW_TRACKING_TOKEN']}"} | headers
        connection.request(method, path, body, {name: value for name, value in given.items() if value})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_only_those_who_have_the_token_are_answered() -> None:
    with serving({}, lambda _: None) as env:
        for wrong in ("", "Bearer no", "Basic eDp5", f"Bearer {env['MLFLOW_TRACKING_TOKEN']}x", "Bearer ü"):
            status, answer = asked(env, "GET", "/api/2.0/mlflow/experiments/get?experiment_id=0", Authorization=wrong)
            assert (status, answer["error_code"]) == (401, "UNAUTHENTICATED")
        status, answer = asked(env, "GET", "/api/2.0/mlflow/experiments/get?experiment_id=0")
        assert (status, answer["experiment"]["name"]) == (200, "Default")


@pytest.mark.parametrize("body", [b"", b"no", b"[1]", b"[" * 100_000, b"x" * (MOST_BYTES + 1)])
def test_a_body_that_is_no_small_object_is_refused(body: bytes) -> None:
    with serving({}, lambda _: None) as env:
        status, answer = asked(env, "POST", "/api/2.0/mlflow/runs/create", body)
    assert (status, answer["error_code"]) == (400, "INVALID_PARAMETER_VALUE") and "4,194,304 bytes" in answer["message"]


def test_a_body_comes_in_chunks_or_by_its_size() -> None:
    path = "/api/2.0/mlflow/runs/create"
    body = b'{"experiment_id": "0", "run_name": "mine"}'
    with serving({}, lambda _: None) as env:
        for sent in (body, iter([body[:7], body[7:]])):
            status, answer = asked(env, "POST", path, sent)
            assert (status, answer["run"]["info"]["run_name"]) == (200, "mine")
        for size in ("x", "-1"):
            status, answer = asked(env, "POST", path, None, **{"Content-Length": size})
            assert (status, answer["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
            assert answer["message"] == "this is no request of HTTP/1.1: bad Content-Length"
        status, answer = asked(env, "POST", path, None, **{"Transfer-Encoding": "gzip"})
        assert (status, answer["error_code"]) == (501, "INVALID_PARAMETER_VALUE")


def entered(port: int | None, path: str, headers: dict[str, str]) -> http.client.HTTPConnection:
    """A connection that has shown the token. One that took too long for that, on a busy machine, was closed, and the next is tried."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            connection.request("GET", path, headers=headers)
            assert connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            connection.close()
        else:
            return connection


def test_only_a_connection_with_the_token_may_stay_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_server._Handler, "timeout", 0.1)
    path = "/api/2.0/mlflow/experiments/get?experiment_id=0"
    with serving({}, lambda _: None) as env:
        port = urlsplit(env["MLFLOW_TRACKING_URI"]).port
        headers = {"Authorization": f"Bearer {env['MLFLOW_TRACKING_TOKEN']}"}
        known = entered(port, path, headers)
        sock = known.sock
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as silent:
                assert silent.recv(1) == b""
            known.request("GET", path, headers=headers)
            assert known.getresponse().read()
        assert known.sock is sock
        known.close()


def test_connections_are_bounded_and_end_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_server, "MOST_CONNECTIONS", 2)
    before = set(threading.enumerate())
    path = "/api/2.0/mlflow/experiments/get?experiment_id=0"
    with serving({}, lambda _: None) as env:
        port = urlsplit(env["MLFLOW_TRACKING_URI"]).port
        headers = {"Authorization": f"Bearer {env['MLFLOW_TRACKING_TOKEN']}"}
        idle = entered(port, path, headers)
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as asking:
            lines = [
                "POST /api/2.0/mlflow/runs/create HTTP/1.1",
                "Host: a",
                "Content-Length: 2",
                "Expect: 100-continue",
            ]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            asking.sendall("\r\n".join([*lines, "", ""]).encode())
            assert asking.recv(1 << 10).startswith(b"HTTP/1.1 100 ")
            with pytest.raises(OSError):
                asked(env, "GET", path)
        idle.close()
        for thread in set(threading.enumerate()) - before:
            if thread.name != "MLflow":
                thread.join(PATIENCE_S)
        assert asked(env, "GET", path)[0] == 200
    with pytest.raises(ConnectionRefusedError):
        asked(env, "GET", path)


def test_more_clients_than_places_all_get_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would keep their connections, as MLflow's do, and connect again where the server ends them."""
    monkeypatch.setattr(mlflow_server, "MOST_CONNECTIONS", 2)
    path = "/api/2.0/mlflow/experiments/get?experiment_id=0"
    with serving({}, lambda _: None) as env:
        port = urlsplit(env["MLFLOW_TRACKING_URI"]).port
        headers = {"Authorization": f"Bearer {env['MLFLOW_TRACKING_TOKEN']}"}
        clients = [http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S) for _ in range(3)]
        ended = []
        for client in clients * 2:
            before = set(threading.enumerate())
            client.request("GET", path, headers=headers)
            answer = client.getresponse()
            assert answer.status == 200 and answer.read()
            ended.append(answer.will_close)
            for thread in set(threading.enumerate()) - before if answer.will_close else ():
                thread.join(PATIENCE_S)
        assert ended == [False, True, True] * 2, "one that is kept may ask again"
        clients[0].close()
