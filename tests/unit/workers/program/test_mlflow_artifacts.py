"""Artifacts of real MLflow clients are files of the job, once; what may also come over the port is refused, and stores nothing."""

import hashlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.program.mlflow_server import serving

from .test_artifact_log import Rank
from .test_mlflow_server import ENV, logged

RUN = "0123456789abcdef" * 2
ROOT = f"/api/2.0/mlflow-artifacts/artifacts/0/{RUN}/artifacts"


class Client:
    """Raw requests to the server of a rank."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.port = urlsplit(env["MLFLOW_TRACKING_URI"]).port or 0
        self.headers = {"Authorization": f"Bearer {env['MLFLOW_TRACKING_TOKEN']}"}

    def sent(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, self.headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str, str]:
        status, content = self.sent(method, path, body)
        answer = json.loads(content)
        return status, answer["error_code"], answer["message"]


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path, file_bytes=3 << 20, bytes=4 << 20, files=20)


@pytest.fixture
def client(rank: Rank) -> Iterator[Client]:
    with serving({}, lambda _: None, rank.uploads) as env:
        yield Client(env)


def names(rank: Rank) -> list[str]:
    return [one.name for one in rank.stored]


def counted(rank: Rank) -> list[tuple[int, int]]:
    """The files and bytes that count for the job, from now on."""
    found: list[tuple[int, int]] = []

    def reserve(files: int, size: int) -> bool:
        found.append((files, size))
        return True

    rank.uploads._reserve = reserve
    return found


def test_a_client_logs_lists_and_downloads_artifacts_unchanged(rank: Rank) -> None:
    """Also an empty file, which clients send in chunks, one of several blocks, and the figures and images that they write themselves."""
    script = """
import mlflow, pathlib, sys, tempfile, types
class Figure:
    def savefig(self, path, **more):
        pathlib.Path(path).write_bytes(b"a figure")
sys.modules["matplotlib"] = matplotlib = types.ModuleType("matplotlib")
sys.modules["matplotlib.figure"] = matplotlib.figure = types.ModuleType("matplotlib.figure")
matplotlib.figure.Figure = Figure
folder = pathlib.Path(tempfile.mkdtemp())
large = bytes(range(256)) * (2 << 12) + b"end"
(folder / "large.bin").write_bytes(large)
(folder / "deep").mkdir()
(folder / "deep" / "empty").touch()
(folder / "deep" / "ü b.txt").write_text("text")
with mlflow.start_run() as run:
    mlflow.log_artifact(str(folder / "large.bin"))
    mlflow.log_artifacts(str(folder), "all")
    mlflow.log_dict({"lr": 0.1}, "settings/run.json")
    mlflow.log_text("first", "note.txt")
    mlflow.log_text("second", "note.txt")
    mlflow.log_figure(Figure(), "figures/loss.png")
    with mlflow.start_run(run_name="trial", nested=True):
        mlflow.log_text("of the trial", "note.txt")
client = mlflow.MlflowClient()
print([(one.path, one.is_dir, one.file_size) for one in client.list_artifacts(run.info.run_id)])
print([(one.path, one.is_dir, one.file_size) for one in client.list_artifacts(run.info.run_id, "all/deep")])
print(client.list_artifacts(run.info.run_id, "note.txt"), client.list_artifacts(run.info.run_id, "none"))
got = pathlib.Path(client.download_artifacts(run.info.run_id, "all", tempfile.mkdtemp()))
print(sorted(str(one.relative_to(got)) for one in got.rglob("*") if one.is_file()), (got / "large.bin").read_bytes() == large)
note = mlflow.artifacts.load_text(run.info.artifact_uri + "/note.txt")
print(mlflow.artifacts.load_dict(f"runs:/{run.info.run_id}/settings/run.json"), note)
got = pathlib.Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="figures/loss.png"))
print(got.name, got.read_bytes(), len(mlflow.artifacts.list_artifacts(f"runs:/{run.info.run_id}/all")))
"""
    metrics, printed = logged(script, uploads=rank.uploads)
    large = 256 * (2 << 12) + 3
    assert metrics == {} and printed.splitlines() == [
        f"[('all', True, None), ('figures', True, None), ('large.bin', False, {large}), ('note.txt', False, 6), ('settings', True, None)]",
        "[('all/deep/empty', False, 0), ('all/deep/ü b.txt', False, 4)]",
        "[] []",
        "['deep/empty', 'deep/ü b.txt', 'large.bin'] True",
        "{'lr': 0.1} second",
        "loss.png b'a figure' 2",
    ]
    first, *others = names(rank)
    assert first == "large.bin" and set(others[:3]) == {"all/large.bin", "all/deep/empty", "all/deep/ü b.txt"}
    assert others[3:] == ["settings/run.json", "note.txt", "note.txt", "figures/loss.png", "trial/note.txt"]
    assert rank.content("all/large.bin") == bytes(range(256)) * (2 << 12) + b"end"
    assert rank.content("trial/note.txt") == b"of the trial" and not list(rank.spool.iterdir())
    assert len(list(rank.storage.iterdir())) == 8, "the large file, which has two names, is stored once"


def test_a_logged_model_is_files_of_the_job_and_is_loaded_again(rank: Rank, capsys: pytest.CaptureFixture[str]) -> None:
    """Two of one name, in two runs: by its id, and by its run and name. Its metrics are the run's, each once."""
    script = """
import mlflow, sys
class Times(mlflow.pyfunc.PythonModel):
    def __init__(self, factor):
        self.factor = factor
    def predict(self, context, model_input, params=None):
        return [self.factor * one for one in model_input]
def log(factor):
    return mlflow.pyfunc.log_model(
        name="net", python_model=Times(factor), pip_requirements=["mlflow-skinny"], step=2, tags={"team": "vision"}
    )
with mlflow.start_run() as run:
    mlflow.log_param("lr", 0.1)
    for step in range(3):
        mlflow.log_metric("loss", 3.0 - step, step=step)
    first = log(2)
    mlflow.log_metric("loss", 0.5, step=2)
    with mlflow.start_run(run_name="trial", nested=True):
        second = log(3)
print(mlflow.pyfunc.load_model(first.model_uri).predict([1, 2]), mlflow.pyfunc.load_model(second.model_uri).predict([1]))
print(mlflow.pyfunc.load_model(f"runs:/{run.info.run_id}/net").predict([3]))
model = mlflow.get_logged_model(first.model_id)
print(model.name, model.status, model.params, model.tags["team"], [(one.key, one.step, one.value) for one in model.metrics])
print([one.model_id == first.model_id for one in mlflow.get_run(run.info.run_id).outputs.model_outputs])
found = mlflow.search_logged_models(
    filter_string=f"name = 'net' AND source_run_id = '{run.info.run_id}' AND metrics.loss < 1",
    order_by=[{"field_name": "metrics.loss", "ascending": False}], output_format="list",
)
print([one.model_id == first.model_id for one in found], len(mlflow.search_logged_models(output_format="list")))
print(sorted(one.path for one in mlflow.MlflowClient().list_logged_model_artifacts(first.model_id)))
mlflow.set_logged_model_tags(first.model_id, {"stage": "best"})
mlflow.delete_logged_model_tag(first.model_id, "stage")
try:
    mlflow.pyfunc.load_model("models:/m-" + "0" * 32)
except Exception as error:
    print(error)
"""
    metrics, printed = logged(script, uploads=rank.uploads)
    *lines, missing = printed.splitlines()
    files = ["MLmodel", "conda.yaml", "python_env.yaml", "python_model.pkl", "requirements.txt"]
    assert metrics == {"loss": [(0, 3.0), (1, 2.0), (2, 1.0), (2, 0.5)]} and lines == [
        "[2, 4] [3]",
        "[6]",
        "net READY {'lr': '0.1'} vision [('loss', 2, 0.5)]",
        "[True]",
        "[True] 2",
        str(files),
    ]
    assert "RESOURCE_DOES_NOT_EXIST: there is no logged model with the id" in missing
    assert sorted(names(rank)) == sorted(f"{prefix}models/net/{name}" for prefix in ("", "trial/") for name in files)
    assert b"python_model.pkl" in rank.content("models/net/MLmodel")
    logged_lines = capsys.readouterr().out.splitlines()
    assert "MLflow parameter lr = 0.1" in logged_lines and "MLflow tag models/net/team = vision" in logged_lines
    assert [line.split(" is m-")[0] for line in logged_lines if " is m-" in line] == [
        "MLflow model models/net",
        "MLflow model trial/models/net",
    ]


def test_a_model_never_replaces_the_files_of_a_run(rank: Rank, client: Client) -> None:
    """Its run has files in the folder that the model would have; and another path leads to no model that there is not."""
    created = client.sent("POST", "/api/2.0/mlflow/logged-models", json.dumps({"name": "net", "experiment_id": "0"}))
    model = json.loads(created[1])["model"]["info"]["model_id"]
    places = [f"{ROOT}/models/net/a.txt", f"/api/2.0/mlflow-artifacts/artifacts/0/models/{model}/artifacts/a.txt"]
    for place in places:
        assert client.sent("PUT", place, place.encode())[0] == 200
    assert names(rank) == ["models/net/a.txt", f"{model}/a.txt"]
    assert [client.sent("GET", place)[1].decode() for place in places] == places
    other = f"/api/2.0/mlflow-artifacts/artifacts/0/models/m-{'0' * 32}/artifacts/a.txt"
    found = client.refused("PUT", other, b"x")
    assert found[:2] == (404, "RESOURCE_DOES_NOT_EXIST") and "there is no logged model" in found[2]
    assert client.refused("GET", other)[:2] == (404, "RESOURCE_DOES_NOT_EXIST")


def test_a_client_that_insists_on_parts_sends_the_file_whole(rank: Rank, tmp_path: Path) -> None:
    script = f"""
import mlflow
mlflow.start_run()
mlflow.log_artifact({str(tmp_path / "parts.bin")!r})
print(open(mlflow.artifacts.download_artifacts(mlflow.get_artifact_uri("parts.bin")), "rb").read() == bytes(2000))
"""
    (tmp_path / "parts.bin").write_bytes(bytes(2000))
    asked = {"MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD": "true", "MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE": "1000"}
    _, printed = logged(script, {**ENV, **asked, "MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD": "true"}, rank.uploads)
    assert printed == "True\n" and rank.content("parts.bin") == bytes(2000)


def test_what_a_job_may_not_store_is_an_error_of_the_client(rank: Rank, tmp_path: Path) -> None:
    """A file that is larger than allowed, and one by which the job would have too much; the program goes on."""
    script = f"""
import mlflow
mlflow.start_run()
for _ in range(2):
    try:
        mlflow.log_artifact({str(tmp_path / "large.bin")!r})
    except Exception as error:
        print(error)
mlflow.log_text("goes on", "a.txt")
"""
    (tmp_path / "large.bin").write_bytes(bytes((3 << 20) + 1))
    _, printed = logged(script, uploads=rank.uploads)
    assert printed.count("the artifact has 3,145,729 bytes, and at most 3,145,728 are stored") == 2
    assert names(rank) == ["a.txt"]
    rank.uploads._reserve = lambda *_: False
    with serving({}, lambda _: None, rank.uploads) as env:
        _, code, said = Client(env).refused("PUT", f"{ROOT}/b.txt", b"x")
    assert code == "INVALID_PARAMETER_VALUE" and "a job may log 20 files and 4,194,304 bytes" in said


def test_a_file_that_is_sent_again_is_stored_and_counted_once(rank: Rank, client: Client) -> None:
    reserved = counted(rank)
    for _ in range(3):
        assert client.sent("PUT", f"{ROOT}/a.txt", b"same") == (200, b"{}")
    assert reserved == [(1, 4)] and len(set(rank.stored)) == 1, "each report is of one row"
    assert client.sent("PUT", f"{ROOT}/a.txt", b"other")[0] == 200
    assert (names(rank), reserved) == (["a.txt"] * 4, [(1, 4), (1, 5)])
    assert client.sent("GET", f"{ROOT}/a.txt")[1] == b"other" and len(list(rank.storage.iterdir())) == 2


def test_a_file_that_is_sent_again_before_the_answer_is_counted_once(rank: Rank, client: Client) -> None:
    """The second request waits for the first, whose storage is slow."""
    reserved = counted(rank)
    store, goes_on, began = rank.store, threading.Event(), threading.Event()

    def slowly(stored: Any) -> None:
        began.set()
        assert goes_on.wait(PATIENCE_S)
        store(stored)

    rank.uploads._on_stored = slowly
    answers: list[int] = []
    both = [
        threading.Thread(target=lambda: answers.append(client.sent("PUT", f"{ROOT}/a.txt", b"same")[0]))
        for _ in range(2)
    ]
    both[0].start()
    assert began.wait(PATIENCE_S)
    both[1].start()
    both[1].join(0.3)
    assert answers == []
    goes_on.set()
    for one in both:
        one.join(PATIENCE_S)
    assert (answers, reserved, len(set(rank.stored))) == ([200, 200], [(1, 4)], 1)


def test_a_body_that_breaks_off_stores_nothing(rank: Rank, client: Client) -> None:
    for header, part in (("Content-Length: 1000", b"half"), ("Transfer-Encoding: chunked", b"4\r\nhalf\r\n")):
        with socket.create_connection(("127.0.0.1", client.port), PATIENCE_S) as cut:
            token = f"Host: a\r\nAuthorization: {client.headers['Authorization']}"
            cut.sendall(f"PUT {ROOT}/a.txt HTTP/1.1\r\n{token}\r\n{header}\r\n\r\n".encode() + part)
            cut.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: cut.recv(1000), b""))
            assert answer.startswith(b"HTTP/1.1 400 ") and b"peer closed connection without" in answer
    assert names(rank) == [] and not list(rank.spool.iterdir())
    assert client.sent("GET", f"/api/2.0/mlflow-artifacts/artifacts?path=0/{RUN}/artifacts")[1] == b'{"files": []}'


@pytest.mark.parametrize(
    "path", ["../up", "a/../b", "a%2F..%2Fb", "/abs", "a//b", "a\\b", "%00", "a%0Ab", "%ff", "", ".", "a" * 401, "a:b"]
)
def test_a_path_that_cannot_be_a_name_is_refused(rank: Rank, client: Client, path: str) -> None:
    status, code, _ = client.refused("PUT", f"{ROOT}/{path}", b"x" * (2 << 20))
    assert (status, code, names(rank)) == (400, "INVALID_PARAMETER_VALUE", [])


@pytest.mark.parametrize(
    "place",
    [
        f"0/models/{RUN}/artifacts/a",
        f"0/m-{RUN}/artifacts/a",
        f"x/{RUN}/artifacts/a",
        "0/short/artifacts/a",
        f"0/{RUN}/a",
        "../../a",
        "0",
    ],
)
def test_an_address_that_is_no_runs_is_refused(rank: Rank, client: Client, place: str) -> None:
    for method in ("PUT", "GET"):
        found = client.refused(method, f"/api/2.0/mlflow-artifacts/artifacts/{place}")
        assert found[:2] == (404, "RESOURCE_DOES_NOT_EXIST") and "artifact_uri" in found[2]
    assert names(rank) == []


def test_what_is_not_there_or_not_supported_says_so(client: Client) -> None:
    found = client.refused("GET", f"{ROOT}/none.txt")
    assert found[:2] == (404, "RESOURCE_DOES_NOT_EXIST") and "shardyard artifacts JOB" in found[2]
    assert client.refused("DELETE", f"{ROOT}/none.txt")[:2] == (404, "ENDPOINT_NOT_FOUND")
    assert client.refused("GET", "/api/2.0/mlflow-artifacts/presigned/0/x")[:2] == (404, "ENDPOINT_NOT_FOUND")


def test_a_name_that_no_path_can_have_is_replaced_by_the_runs_id(rank: Rank, client: Client) -> None:
    runs = [
        json.loads(client.sent("POST", "/api/2.0/mlflow/runs/create", json.dumps({"run_name": name}))[1])["run"]["info"]
        for name in ("first", "lr: 0.1?")
    ]
    for run in runs:
        place = f"/api/2.0/mlflow-artifacts/artifacts/0/{run['run_id']}/artifacts/a.txt"
        assert client.sent("PUT", place, b"x")[0] == 200
    assert names(rank) == ["a.txt", f"{runs[1]['run_id']}/a.txt"]


def test_runs_do_not_replace_each_others_files(rank: Rank, client: Client) -> None:
    """The first run has a folder of the name of the second one."""
    create = "/api/2.0/mlflow/runs/create"
    first, trial = (
        json.loads(client.sent("POST", create, json.dumps({"run_name": name}))[1])["run"]["info"]["run_id"]
        for name in ("first", "trial")
    )
    root = "/api/2.0/mlflow-artifacts/artifacts/0"
    places = [f"{root}/{first}/artifacts/trial/a.txt", f"{root}/{trial}/artifacts/a.txt"]
    for place in (*places, *places):
        assert client.sent("PUT", place, place.encode())[0] == 200
    assert names(rank) == ["trial/a.txt", f"{trial}/a.txt"] * 2
    assert [client.sent("GET", place)[1].decode() for place in places] == places


def test_a_storage_that_fails_is_an_error_and_the_file_does_not_count(rank: Rank, client: Client) -> None:
    reserved = counted(rank)
    rank.storage.write_text("no folder")
    status, code, message = client.refused("PUT", f"{ROOT}/a.txt", b"x")
    assert (status, code, reserved) == (400, "INVALID_PARAMETER_VALUE", [(1, 1), (-1, -1)])
    assert "the storage has not taken the file" in message
    rank.storage.unlink()
    assert client.sent("PUT", f"{ROOT}/a.txt", b"x")[0] == 200 and names(rank) == ["a.txt"]


def test_a_damaged_file_is_never_downloaded_whole(rank: Rank, client: Client) -> None:
    """Of one block nothing is sent; of several the last one is missing."""
    for size in (3, 2 << 20):
        content = bytes(size)
        assert client.sent("PUT", f"{ROOT}/a.bin", content)[0] == 200
        (rank.storage / hashlib.sha256(content).hexdigest()).write_bytes(b"x" + content[1:])
        try:
            status, got = client.sent("GET", f"{ROOT}/a.bin")
        except http.client.IncompleteRead as cut:
            assert size > 1 << 20 and len(cut.partial) == size - (1 << 20)
        else:
            assert (status, json.loads(got)["error_code"]) == (400, "INTERNAL_ERROR") and size == 3
    (rank.storage / hashlib.sha256(bytes(2 << 20)).hexdigest()).unlink()
    assert client.refused("GET", f"{ROOT}/a.bin")[:2] == (400, "INTERNAL_ERROR")


def test_the_program_that_ends_waits_for_what_is_being_stored(rank: Rank, client: Client) -> None:
    goes_on, began, store = threading.Event(), threading.Event(), rank.store

    def slowly(stored: Any) -> None:
        began.set()
        goes_on.wait(PATIENCE_S)
        store(stored)

    rank.uploads._on_stored = slowly
    sending = threading.Thread(target=client.sent, args=("PUT", f"{ROOT}/a.txt", b"x"))
    sending.start()
    assert began.wait(PATIENCE_S)
    threading.Timer(0.2, goes_on.set).start()
    rank.uploads.flush(lambda: False)
    assert names(rank) == ["a.txt"]
    sending.join(PATIENCE_S)
