"""The Python client: every call of the HTTP API as a typed method. Imports no server code, no torch, no Ray.

Safe to repeat: a submission carries an idempotency key that stays the same over its retries, and an event stream
resumes after the last event that it gave: a lost connection or a restarted control plane loses and doubles nothing.
"""

import json
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx2

from ..service.errors import ShardyardError
from ..service.settings import Settings
from ..service.spec import JobSpec
from ..strategies.layout import Layout
from . import control, spec_file
from .models import (
    Cordon,
    Cordons,
    Fault,
    FieldError,
    Incidents,
    Job,
    Jobs,
    Logs,
    Metrics,
    Node,
    Nodes,
    Problem,
    Readiness,
)

FINAL = frozenset({"succeeded", "failed", "cancelled"})

T = TypeVar("T")

_RETRY_STATUS = frozenset({502, 503, 504})
_PAUSES = (0.2, 0.5, 1.0, 2.0)


class ApiError(Exception):
    """The API refused a request, or could not be asked: `status` is None then.

    `code` is stable; `errors` name fields and remedies.
    """

    def __init__(
        self, code: str, detail: str, status: int | None = None, errors: list[FieldError] | None = None
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.status = status
        self.errors = errors or []


class Unreachable(ApiError):
    """Nothing answers at the control plane's address."""

    def __init__(self, url: str, reason: str) -> None:
        remedy = FieldError(message=reason, remedy="Start one with: shardyard up")
        super().__init__("unreachable", f"No control plane answers at {url}.", None, [remedy])
        self.url = url


class WaitTimeout(ApiError):
    """The job did not end in time; it goes on."""

    def __init__(self, job: Job, seconds: float) -> None:
        super().__init__("timeout", f"Job {job.id} is still {job.state} after {seconds:g} s.")
        self.job = job


@dataclass(frozen=True)
class Event:
    """One fact of a job's story. `cursor` resumes after it; `ts` is unix seconds."""

    kind: str
    data: dict[str, Any]
    cursor: str
    ts: float | None


def find_url(url: str | None = None) -> str:
    """Where to ask: the argument, `SHARDYARD_URL`, the data folder's running control plane, or the default address."""
    settings = Settings()
    named = url or settings.url
    if named:
        return named.rstrip("/")
    running = control.read(settings.data_dir)
    return running.url if running else control.DEFAULT_URL


class Client:
    """Talks to one control plane. Use as a context manager or call `close`.

    `url`: the API's address; None finds it (see `find_url`), again after each lost connection.
    `timeout_s`: for each answer. `patience_s`: how long `events` and `wait` bear an unreachable control plane.
    """

    def __init__(self, url: str | None = None, *, timeout_s: float = 30.0, patience_s: float = 300.0) -> None:
        self._given = url
        self._patience_s = patience_s
        self.url = find_url(url)
        _check_url(self.url)
        loopback = urlsplit(self.url).hostname in {"127.0.0.1", "localhost", "::1"}
        # A proxy set for the outside world must not be asked for this machine's own loopback.
        # The system's certificates take 40 ms to load, so not where none can be asked for.
        bare = loopback and url is not None and urlsplit(url).scheme == "http"
        self._http = httpx2.Client(
            timeout=timeout_s, trust_env=not loopback, verify=not bare, headers={"Accept": "application/json"}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # Jobs

    def submit(self, spec: JobSpec | Mapping[str, Any] | str | Path, *, idempotency_key: str | None = None) -> Job:
        """Submit a job: a `JobSpec`, a mapping, or the path of a YAML or JSON file. Returns the stored job.

        Repeating a call with the same key gives the same job. Raises `ApiError` with the fields and their remedies.
        """
        try:
            document = spec_file.load(spec)
        except ShardyardError as error:
            where = FieldError(field=error.field, message=error.message, remedy=error.remedy)
            raise ApiError(error.code, error.message, None, [where]) from None
        headers = {"Content-Type": "application/json", "Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        return Job.model_validate(self._ask("POST", "/v1/jobs", content=json.dumps(document).encode(), headers=headers))

    def jobs(
        self,
        *,
        state: str | None = None,
        label: Mapping[str, str] | None = None,
        name: str | None = None,
        text: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Jobs:
        """One page of jobs, newest first."""
        labels = [f"{key}={value}" for key, value in (label or {}).items()]
        params = {"state": state, "label": labels, "name": name, "text": text, "limit": limit, "cursor": cursor}
        return Jobs.model_validate(self._ask("GET", "/v1/jobs", params=params))

    def job(self, job: str) -> Job:
        """A job by its id, or the newest of that name."""
        return Job.model_validate(self._ask("GET", f"/v1/jobs/{_quoted(job)}"))

    def cancel(self, job: str) -> Job:
        """Ask for a job's end; asking twice is harmless. Raises `ApiError` `job_ended` where it has ended otherwise."""
        return Job.model_validate(self._ask("POST", f"/v1/jobs/{_quoted(job)}/cancel"))

    def relayout(self, job: str, layout: Layout | Mapping[str, Any]) -> Job:
        """Let a job that has not ended go on with another layout, from a checkpoint of its next step. Asking twice is harmless.

        Raises `ApiError` with the fields and their remedies, and `job_ended`.
        """
        wanted = layout.model_dump(mode="json") if isinstance(layout, Layout) else dict(layout)
        headers = {"Content-Type": "application/json"}
        content = json.dumps({"layout": wanted}).encode()
        return Job.model_validate(
            self._ask("POST", f"/v1/jobs/{_quoted(job)}/relayout", content=content, headers=headers)
        )

    def inject_fault(
        self,
        job: str,
        kind: str,
        *,
        rank: int | None = None,
        by_ms: float | None = None,
        for_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> Fault:
        """Strike a running job with a fault, such as `kill-rank`; its event `fault` tells when that was done.

        Raises `ApiError` `faults_disabled` where the server does not allow it. Repeating a call with the same key strikes once.
        """
        wanted = {"kind": kind, "rank": rank, "by_ms": by_ms, "for_s": for_s}
        content = json.dumps({name: value for name, value in wanted.items() if value is not None}).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        return Fault.model_validate(
            self._ask("POST", f"/v1/jobs/{_quoted(job)}/faults", content=content, headers=headers)
        )

    def wait(self, job: str, timeout_s: float | None = None) -> Job:
        """The job once it has ended. Raises `WaitTimeout` when that takes longer than `timeout_s`."""
        began = time.monotonic()
        found = self.job(job)
        while found.state not in FINAL:
            if timeout_s is not None and time.monotonic() - began > timeout_s:
                raise WaitTimeout(found, timeout_s)
            time.sleep(0.25)
            found = self._patiently(partial(self.job, found.id))
        return found

    # What a job tells

    def events(
        self,
        job: str,
        after: str | None = None,
        *,
        logs: bool = False,
        rank: int | None = None,
        on_lost: Callable[[ApiError], None] | None = None,
    ) -> Generator[Event]:
        """A job's events after the cursor `after` (None: from its beginning) to its end, each once, as they happen.

        Survives lost connections and restarts of the control plane for `patience_s`; `on_lost` hears of each.
        """
        path = f"/v1/jobs/{self.job(job).id}/events"
        params: dict[str, Any] = {"logs": "true" if logs else None, "rank": rank}
        cursor, lost, attempts = after, None, 0
        while True:
            try:
                for event in self._stream(path, params, cursor):
                    lost, attempts = None, 0
                    if event.kind == "end":
                        return
                    cursor = event.cursor
                    yield event
                error = Unreachable(self.url, "The stream broke off.")
            except Unreachable as unreachable:
                error = unreachable
            lost = lost or time.monotonic()
            if time.monotonic() - lost > self._patience_s:
                raise error
            if on_lost and attempts:
                on_lost(error)
            time.sleep(_PAUSES[min(attempts, len(_PAUSES) - 1)])
            attempts += 1
            self.url = find_url(self._given)

    def story(self, job: Job) -> list[Event]:
        """What had happened to the job when it was read, without its steps and log lines."""
        events, steps, lines = (int(part) for part in job.cursor.split("."))
        told: list[Event] = []
        with closing(self.events(job.id, f"0.{steps}.{lines}")) as stream:
            while events > (int(told[-1].cursor.split(".")[0]) if told else 0):
                event = next(stream, None)
                if event is None:
                    break
                told.append(event)
        return [event for event in told if event.kind != "step"]

    def metrics(self, job: str, *, since: int = 0, max_points: int = 1000) -> Metrics:
        """Step records after step `since`, thinned to about `max_points`."""
        params = {"since": since, "max_points": max_points}
        return Metrics.model_validate(self._ask("GET", f"/v1/jobs/{_quoted(job)}/metrics", params=params))

    def incidents(self, job: str, *, after: int = 0, limit: int = 100) -> Incidents:
        """What went wrong, and what was done about it, after place `after`."""
        params = {"after": after, "limit": limit}
        return Incidents.model_validate(self._ask("GET", f"/v1/jobs/{_quoted(job)}/incidents", params=params))

    def logs(
        self, job: str, *, rank: int | None = None, after: int = 0, limit: int = 1000, tail: int | None = None
    ) -> Logs:
        """Log lines after place `after`, or the last `tail`."""
        params = {"rank": rank, "after": after, "limit": limit} if tail is None else {"rank": rank, "tail": tail}
        return Logs.model_validate(self._ask("GET", f"/v1/jobs/{_quoted(job)}/logs", params=params))

    def log_pages(
        self, job: str, *, rank: int | None = None, after: int = 0, follow: bool = False, pause_s: float = 0.5
    ) -> Iterator[Logs]:
        """All log lines after place `after`, page by page; with `follow` until the job has ended and all is told."""
        found = self.job(job)
        while True:
            page = self._patiently(partial(self.logs, found.id, rank=rank, after=after))
            if page.lines:
                after = page.lines[-1].n
                yield page
            if page.next is not None:
                continue
            if not follow or found.state in FINAL:
                return
            time.sleep(pause_s)
            found = self._patiently(
                partial(self.job, found.id)
            )  # before the lines: what a final state has told is all there is

    # The service

    def alive(self) -> bool:
        """Whether a control plane answers at all."""
        try:
            return bool(self._http.get(f"{self.url}/healthz", timeout=5.0).json()["status"] == "ok")
        except (httpx2.TransportError, ValueError, KeyError, TypeError):
            return False

    def readiness(self) -> Readiness:
        """What works and what does not."""
        return Readiness.model_validate_json(self._http.get(f"{self.url}/readyz").content)

    def nodes(self) -> list[Node]:
        """The cluster's machines."""
        return Nodes.model_validate(self._ask("GET", "/v1/nodes")).items

    def cordon(self, node: str, *, seconds: float | None = None, message: str = "") -> Node:
        """Keep new gangs away from a machine (id, start of an id, or host) for so long, None: until it is lifted."""
        params = {"seconds": seconds, "message": message}
        return Node.model_validate(self._ask("POST", f"/v1/nodes/{_quoted(node)}/cordon", params=params))

    def uncordon(self, node: str) -> Node:
        """Let gangs come to a machine again; harmless when it was not cordoned."""
        return Node.model_validate(self._ask("POST", f"/v1/nodes/{_quoted(node)}/uncordon"))

    def cordons(self, *, limit: int = 100) -> list[Cordon]:
        """Which machines were cordoned, by whom, why and until when; the newest first."""
        return Cordons.model_validate(self._ask("GET", "/v1/cordons", params={"limit": limit})).items

    def job_schema(self) -> dict[str, Any]:
        """JSON Schema of a job spec."""
        schema: dict[str, Any] = self._ask("GET", "/v1/schema/job")
        return schema

    # Asking

    def _ask(
        self,
        method: Literal["GET", "POST"],
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """One request with its retries. All that is asked here may be: reads, keyed submissions and faults, cancellations."""
        given = {key: value for key, value in (params or {}).items() if value is not None}
        for attempt in range(len(_PAUSES) + 1):
            last = attempt == len(_PAUSES)
            try:
                answer = self._http.request(method, self.url + path, params=given, content=content, headers=headers)
            except httpx2.ConnectError as error:
                if attempt == 0 or last:  # nothing listens: say so at once
                    raise Unreachable(self.url, str(error)) from None
            except httpx2.TransportError as error:
                if last:
                    raise Unreachable(self.url, str(error) or type(error).__name__) from None
            else:
                if answer.status_code not in _RETRY_STATUS or last:
                    return _checked(answer)
            time.sleep(_PAUSES[attempt])
        raise AssertionError("the last attempt returns or raises")

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask until the control plane answers, or patience ends."""
        began = time.monotonic()
        while True:
            try:
                return ask()
            except Unreachable:
                if time.monotonic() - began > self._patience_s:
                    raise
                time.sleep(1.0)
                self.url = find_url(self._given)

    def _stream(self, path: str, params: Mapping[str, Any], cursor: str | None) -> Generator[Event]:
        given = {key: value for key, value in params.items() if value is not None}
        headers = {"Last-Event-ID": cursor} if cursor else {}
        timeout = httpx2.Timeout(10.0, read=30.0)  # the server's heartbeat comes every 10 s
        try:
            with self._http.sse(
                self.url + path, params=given, headers=headers, timeout=timeout, max_event_size=None
            ) as source:
                if source.response.status_code >= 500:
                    raise Unreachable(self.url, f"It answers {source.response.status_code}.")
                if source.response.status_code != 200:
                    source.response.read()
                    _checked(source.response)
                for item in source:
                    if not item.data:
                        continue  # a comment or a retry time, no event
                    data = json.loads(item.data)
                    yield Event(item.event, data, item.id, data.pop("ts", None))
        except httpx2.TransportError as error:
            raise Unreachable(self.url, str(error) or type(error).__name__) from None


def _quoted(job: str) -> str:
    return quote(job, safe="")


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        error = FieldError(
            field="url", message="Not an address of a control plane.", remedy="Such as http://127.0.0.1:8400."
        )
        raise ApiError("invalid_url", f"{url!r} is not an http or https address.", None, [error])


def _checked(answer: httpx2.Response) -> Any:
    """The JSON of a good answer; raises `ApiError` for every other."""
    if answer.is_success:
        try:
            return answer.json()
        except ValueError:
            raise ApiError(
                "not_shardyard", f"{answer.request.url} did not answer with JSON.", answer.status_code
            ) from None
    try:
        problem = Problem.model_validate_json(answer.content)
    except ValueError:
        detail = f"{answer.request.url} answered {answer.status_code} {answer.reason_phrase}."
        raise ApiError("not_shardyard", detail, answer.status_code) from None
    raise ApiError(problem.code, problem.detail, problem.status, problem.errors)
