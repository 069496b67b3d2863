"""An MLflow tracking server for one rank's program, so that MLflow clients log into the job.

It listens on the loopback interface, and only to those who have its token. The program finds both in MLFLOW_TRACKING_URI and
MLFLOW_TRACKING_TOKEN, which MLflow's clients read.
"""

import hmac
import json
import secrets
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import h11

from . import mlflow_artifacts
from .artifact_uploads import ArtifactUploads
from .http_connection import HttpConnection
from .metric_batch import MetricBatch, OnMetrics
from .mlflow_artifacts import Download, MlflowArtifacts
from .mlflow_fields import Json, MlflowError, invalid, not_supported
from .mlflow_tracking import MlflowTracking

#: With one of these a program has a server of its own.
OWN_SERVER: Final = ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME")
#: Maximum bytes of a request without a file. MLflow's clients send at most one megabyte.
MOST_BYTES: Final = 4 << 20
#: Maximum number of connections, each with a thread.
MOST_CONNECTIONS: Final = 64
#: Seconds after which a connection that sends nothing is closed, before and after it has shown the token. Clients open another one.
HELLO_S: Final = 5.0
IDLE_S: Final = 120.0
#: Seconds after which values are passed on.
FLUSH_S: Final = 0.5
#: Seconds between two looks at whether the program has ended.
_LOOK_S: Final = 0.1
_ENDPOINTS: Final = "/api/2.0/mlflow/"
#: 500 and the like would be tried again for minutes.
_STATUS: Final = {
    "ENDPOINT_NOT_FOUND": HTTPStatus.NOT_FOUND,
    "RESOURCE_DOES_NOT_EXIST": HTTPStatus.NOT_FOUND,
    "UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
    "NOT_IMPLEMENTED": HTTPStatus.NOT_IMPLEMENTED,
}


@contextmanager
def serving(
    env: Mapping[str, str], on_metrics: OnMetrics, uploads: ArtifactUploads | None = None
) -> Iterator[Mapping[str, str]]:
    """The environment of a program, with the address of a server that runs until the block ends; or as it is, if it names a server.

    When the block has ended, `on_metrics` has been called with all that clients logged. `uploads`: takes their artifacts.
    """
    if any(name in env for name in OWN_SERVER):
        yield env
        return
    batch = MetricBatch(on_metrics)
    with _Server(batch, uploads) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_LOOK_S,), name="MLflow", daemon=True)
        thread.start()
        try:
            yield {**env, **server.variables(env)}
        finally:
            server.shutdown()
            thread.join()
            batch.flush()


class _Server(ThreadingTCPServer):
    daemon_threads = True  # a process that outlives the program may hold its connection
    block_on_close = False
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, batch: MetricBatch, uploads: ArtifactUploads | None) -> None:
        self.batch = batch
        self.tracking = MlflowTracking(batch, _write_line)
        self.artifacts = MlflowArtifacts(self.tracking, uploads)
        self._flushed = time.monotonic()
        self.token = secrets.token_urlsafe(32)
        self._served: set[Any] = set()  # connections
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def is_crowded(self) -> bool:
        """Whether connections end with their answers: idle ones keep at most half of the places, so that new clients find one."""
        return len(self._served) > MOST_CONNECTIONS // 2

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """What the program's environment needs. No proxy can reach this address, so a proxy is not to be asked for it."""
        found = {
            "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{self.server_address[1]}",
            "MLFLOW_TRACKING_TOKEN": self.token,
            "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # there are no pages at this address
        }
        if any(name.lower() in ("http_proxy", "all_proxy") for name in env):
            known = env.get("no_proxy") or env.get("NO_PROXY")
            found["no_proxy"] = found["NO_PROXY"] = ",".join(filter(None, [known, "127.0.0.1"]))
        return found

    def service_actions(self) -> None:
        """Called at each look."""
        if time.monotonic() - self._flushed >= FLUSH_S:
            self.batch.flush()
            self._flushed = time.monotonic()

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._served) >= MOST_CONNECTIONS:
            self.shutdown_request(request)  # the client tries again
            return
        self._served.add(request)
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._served.discard(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._served.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are the client's to report."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(StreamRequestHandler):
    server: _Server
    timeout = HELLO_S
    disable_nagle_algorithm = True

    def handle(self) -> None:
        http = HttpConnection(self.connection.recv, self.connection.sendall)
        try:
            while (request := http.request()) is not None:
                self._serve(http, request)
        except h11.RemoteProtocolError as error:  # where the next request begins is not known
            failed = _json_of(invalid(f"this is no request of HTTP/1.1: {error}"))
            _send(http, HTTPStatus(error.error_status_hint), failed, is_last=True)

    def _serve(self, http: HttpConnection, request: h11.Request) -> None:
        try:
            answer = self._answer(http, request)
        except MlflowError as error:
            status = _STATUS.get(error.code, HTTPStatus.BAD_REQUEST)
            is_last = status == HTTPStatus.UNAUTHORIZED or self.server.is_crowded
            _send(http, status, _json_of(error), is_last=is_last)
        else:
            _send(http, HTTPStatus.OK, answer, is_last=self.server.is_crowded)

    def _answer(self, http: HttpConnection, request: h11.Request) -> Json | Download:
        given = dict(request.headers).get(b"authorization", b"")
        if not hmac.compare_digest(given, f"Bearer {self.server.token}".encode()):
            message = "the token is not that of this rank: use MLFLOW_TRACKING_TOKEN as the job has set it"
            raise MlflowError("UNAUTHENTICATED", message)
        self.connection.settimeout(IDLE_S)
        method, target = request.method.decode(), urlsplit(request.target.decode())
        query = dict(parse_qsl(target.query))
        if target.path.startswith(mlflow_artifacts.ROUTES):
            return self._artifacts(method, target.path.removeprefix(mlflow_artifacts.ROUTES), query, http.body())
        content = _content(http.body())
        if not target.path.startswith(_ENDPOINTS):
            raise not_supported(f"{method} {target.path}")
        has_no_body = method == "GET" or (method == "DELETE" and not content)
        body = query if has_no_body else _object(content)
        return self.server.tracking.answer(method, target.path.removeprefix(_ENDPOINTS), body)

    def _artifacts(self, method: str, route: str, query: dict[str, str], body: Iterator[bytes]) -> Json | Download:
        try:
            return self.server.artifacts.answer(method, mlflow_artifacts.decoded(route), query, body)
        finally:
            for _ in body:  # clients send all of it before they read the answer
                pass


def _send(http: HttpConnection, status: HTTPStatus, answer: Json | Download, *, is_last: bool) -> None:
    """Raises OSError."""
    if isinstance(answer, Download):
        http.answer(status, "application/octet-stream", answer.size, answer.content, is_last=is_last)
    else:
        content = json.dumps(answer).encode()
        http.answer(status, "application/json", len(content), [content], is_last=is_last)


def _json_of(error: MlflowError) -> Json:
    return {"error_code": error.code, "message": str(error)}


def _content(body: Iterator[bytes]) -> bytes:
    """A whole body. One that is too large is read all the same, because clients send all of it before they read, and is empty here."""
    found, size = bytearray(), 0
    for block in body:
        size += len(block)
        if size <= MOST_BYTES:
            found += block
    return bytes(found) if size <= MOST_BYTES else b""


def _object(content: bytes) -> Json:
    try:
        found = json.loads(content or b"null")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        message = f"the body is no JSON object of at most {MOST_BYTES:,} bytes: send fewer values in a request"
        raise invalid(message)
    return found


def _write_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
