"""Requests to the API independent of the transport: what is sent, how a response is read, and when to retry.

`Client` and `AsyncClient` only carry these over; whatever may go wrong is an `ApiError`.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import urlsplit

import httpx2
from pydantic import ValidationError

from ...service.schemas.job import Job
from ...service.schemas.problem import FieldError, Problem
from ...service.settings import Settings
from .. import pidfile

T = TypeVar("T")

FINAL = frozenset({"succeeded", "failed", "cancelled"})

#: Codes for a job that is not there, under this name or at all.
GONE: Final = frozenset({"job_not_found", "job_deleted"})
#: What a proxy answers while no control plane does, and a control plane without its database.
RETRY_STATUS = frozenset({502, 503, 504})
#: Codes of storage that has failed. These are final: the control plane has retried, a bucket for two minutes.
STORAGE_FAILED: Final = frozenset({"artifact_storage_failed", "checkpoint_storage_failed", "code_storage_failed"})
#: Seconds before each further try.
PAUSES = (0.2, 0.5, 1.0, 2.0)
#: Seconds in which a body must be sent, and bytes for which it gets a second more each.
_BODY_S: Final = 30.0
_LEAST_BYTES: Final = 32 << 10
#: Without data for this long, a stream's connection counts as lost; the server sends a heartbeat every 10 s.
STREAM_TIMEOUT = httpx2.Timeout(10.0, read=30.0)
#: A stream of events holds a connection until it ends, and a client may follow any number of jobs. 20: httpx2's own.
_LIMITS: Final = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
#: Variables that say how to connect.
_CONNECTION: Final = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")

#: Of a body that did not reach the control plane. The largest one is a part of code, of 4 MiB and some bytes.
_TOO_LARGE: Final = FieldError(
    message="A proxy in front of the control plane does not admit a body of this size.",
    remedy="Let the proxy admit bodies of 5 MiB, in nginx with: client_max_body_size 5m;",
)


class ApiError(Exception):
    """The API refused a request, or could not be reached: then `status` is None.

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
    """No control plane responds at the address."""

    def __init__(self, url: str, cause: str | Exception) -> None:
        reason = str(cause) or type(cause).__name__
        finding = FieldError(message=reason, remedy=_remedy(url, reason))
        super().__init__("unreachable", f"No control plane answers at {url}.", None, [finding])
        self.url = url


class WaitTimeout(ApiError):
    """The job did not end in time. It keeps running. `outage`: why its state is not known any more."""

    def __init__(self, job: Job, seconds: float, outage: ApiError | None = None) -> None:
        detail = f"Job {job.id} is still {job.state} after {seconds:g} s."
        if outage is not None:
            detail = (
                f"Job {job.id} was {job.state} when the control plane last answered, and {seconds:g} s have passed."
            )
        super().__init__("timeout", detail, None, None if outage is None else outage.errors)
        self.job = job


def may_pass(error: ApiError) -> bool:
    """Whether a later try may get an answer: no control plane answers, a proxy answers in its place, or its database does not."""
    return isinstance(error, Unreachable) or (error.status in RETRY_STATUS and error.code not in STORAGE_FAILED)


@dataclass(frozen=True)
class Event:
    """One event of a job. `cursor` resumes after it; `ts` is in unix seconds."""

    kind: str
    data: dict[str, Any]
    cursor: str
    ts: float | None


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request. `read` converts the response's JSON into the result. Every call may be repeated.

    `answer_s`: time-out of the answer in seconds; None: the client's.
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    read: Callable[[Any], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    form: Literal["json", "bytes"] = "json"
    answer_s: float | None = None

    def timeout(self, usual: httpx2.Timeout) -> httpx2.Timeout:
        """The time-outs of the request. `usual`: the client's.

        That of writing is the server's for the whole body, because httpx applies it to the whole body where it does not block.
        """
        write_s = _BODY_S + len(self.content or b"") / _LEAST_BYTES
        if self.answer_s is None:
            return httpx2.Timeout(connect=usual.connect, read=usual.read, write=write_s, pool=usual.pool)
        return httpx2.Timeout(30.0, read=self.answer_s, write=write_s)

    def result(self, answer: httpx2.Response) -> T:
        """The result of the final response. Raises `ApiError`."""
        content = answer.content if self.form == "bytes" and answer.is_success else checked(answer)
        try:
            return self.read(content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            what = ".".join(map(str, first["loc"])) or "its answer"
            detail = f"{answer.request.url} did not answer as this version expects: {what}: {first['msg']}."
            remedy = FieldError(message="The server may have another version.", remedy="Compare: shardyard --version")
            raise ApiError("not_shardyard", detail, answer.status_code, [remedy]) from None

    @property
    def given(self) -> dict[str, Any]:
        """The parameters that were given."""
        return {name: value for name, value in self.params.items() if value is not None}


class Tries:
    """The retries of one request: whether to retry, and after how many seconds."""

    def __init__(self, url: str, most: int) -> None:
        self._url, self._most, self._made = url, most, 0

    def failed(self, error: httpx2.TransportError, url: str | None = None) -> float:
        """Seconds until the next try, which goes to `url`; None: to the same address.

        Raises `Unreachable` after the last try, and at once if the first one cannot connect, unless the next one goes to another address.
        """
        self._made += 1
        tried, self._url = self._url, url or self._url
        unconnected = isinstance(error, httpx2.ConnectError) and self._made == 1 and self._url == tried
        if unconnected or self._made >= self._most:
            raise Unreachable(tried, error) from None
        return PAUSES[min(self._made, len(PAUSES)) - 1]

    def again(self, answer: httpx2.Response) -> float | None:
        """Seconds until the next try; None if the response, whose content has been read, is final."""
        self._made += 1
        if answer.status_code not in RETRY_STATUS or _code(answer) in STORAGE_FAILED or self._made >= self._most:
            return None
        return PAUSES[min(self._made, len(PAUSES)) - 1]


class Place:
    """A reader's position in a job's events across reconnects, and for how long it retries."""

    def __init__(
        self, cursor: str | None, patience_s: float, on_lost: Callable[[ApiError], None] | None = None
    ) -> None:
        self._cursor, self._patience_s, self._on_lost = cursor, patience_s, on_lost
        self._since: float | None = None
        self._attempts = 0
        self._answered: float | None = None  # the time of a connection's first item

    @property
    def headers(self) -> dict[str, str]:
        return {"Last-Event-ID": self._cursor} if self._cursor else {}

    def heard(self) -> None:
        """The control plane answers: a later loss is another one."""
        self._since = None
        if self._answered is None:
            self._answered = time.monotonic()

    def seen(self, event: Event) -> None:
        self._since, self._attempts = None, 0
        self._cursor = event.cursor

    def lost(self, error: Unreachable) -> float:
        """Seconds until the next connection. Raises the error once `patience_s` has passed."""
        now = time.monotonic()
        if self._answered is not None and now - self._answered > PAUSES[-1]:
            self._attempts = 0  # a proxy may cut what is idle; a server that ends each stream at once is given pauses
        self._answered = None
        self._since = self._since or now
        if now - self._since > self._patience_s:
            raise error
        if self._on_lost and self._attempts:
            self._on_lost(error)
        pause = PAUSES[min(self._attempts, len(PAUSES) - 1)]
        self._attempts += 1
        return pause


def pause_of(waited_s: float, timeout_s: float | None) -> float:
    """Seconds until the next question whether something has ended: 0.25 at first, a twentieth of the time waited, at most 5."""
    pause = min(5.0, max(0.25, waited_s / 20))
    return pause if timeout_s is None else min(pause, timeout_s - waited_s)


def event_of(item: httpx2.ServerSentEvent) -> Event | None:
    """The event of a server-sent event; None for a comment or a retry time."""
    if not item.data:
        return None
    data: dict[str, Any] = json.loads(item.data)
    return Event(item.event, data, item.id, data.pop("ts", None))


def find_url(url: str | None = None, lost: str | None = None) -> str:
    """The control plane's URL: the argument, `SHARDYARD_URL`, the data folder's running control plane, or the default address.

    `lost`: the address of a client whose control plane does not answer. It stays if no other one is named: another user's may have the
    default address.
    """
    settings = Settings()
    named = url or settings.url
    if named:
        return named.strip().rstrip("/")
    running = pidfile.read(settings.data_dir)
    return running.url if running else lost or pidfile.DEFAULT_URL


def check_url(url: str) -> None:
    """Raise `ApiError` for a text that is not an http or https address, and for one with a user or a password.

    Those would have no effect, as the access token is in the place of a password, and would be printed with the address.
    """
    shown = url.rpartition("@")[2]
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # unclosed brackets; a port that is not a number
        known = False
    if not known:
        message, remedy = "Not an address of a control plane.", "Such as http://127.0.0.1:8400."
        detail = f"{shown!r} is not an http or https address."
    elif "@" in parts.netloc:
        message = "The client sends the access token, and no password."
        remedy = "Leave user and password out, and let a proxy that asks for them admit requests with the access token."
        detail = f"The address of {parts.hostname} has a user or a password."
    else:
        return
    raise ApiError("invalid_url", detail, None, [FieldError(field="url", message=message, remedy=remedy)])


def made(kind: Callable[..., T], found: str, given: str | None, timeout_s: float, **more: Any) -> T:
    """An httpx2 client for this address. Raises `ApiError` for proxies and certificates that cannot be used."""
    try:
        return kind(**{**_transport(found, given, timeout_s), **more})
    except (ImportError, ValueError, OSError, httpx2.InvalidURL) as error:
        named = [name for name in _CONNECTION if os.environ.get(name) or os.environ.get(name.lower())]
        finding = FieldError(field=" ".join(named), message=str(error), remedy="Correct or unset what is wrong.")
        detail = "The proxy or the certificates that the environment names cannot be used."
        raise ApiError("invalid_setting", detail, None, [finding]) from None


@contextmanager
def readable(url: str) -> Iterator[None]:
    """Raise `ApiError` for an address to which nothing can be sent, and for an answer that cannot be read."""
    try:
        yield
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise ApiError("invalid_url", f"Nothing can be sent to an address at {url[:200]}: {error}.") from None
    except httpx2.DecodingError as error:
        raise ApiError("not_shardyard", f"What {url} answered cannot be read: {error}.") from None


def _transport(found: str, given: str | None, timeout_s: float) -> dict[str, Any]:
    parts, loopback = urlsplit(found), _is_loopback(found)
    # The system's certificates take 40 ms to load, so they are skipped where TLS is impossible.
    bare = loopback and given is not None and parts.scheme == "http"
    own = loopback and parts.scheme == "https"  # behind a tunnel: SSL_CERT_FILE counts, and a proxy does not
    return {
        "timeout": timeout_s,
        # A configured proxy must not be used for this machine's own loopback.
        "trust_env": not loopback,
        "verify": httpx2.create_ssl_context() if own else not bare,
        "headers": {"Accept": "application/json"},
        "limits": _LIMITS,
    }


def _is_loopback(url: str) -> bool:
    """Whether only this machine can answer there: also at `0.0.0.0` and `::`, by which the kernel means this machine."""
    host = urlsplit(url).hostname
    try:
        address = ip_address(host or "")
    except ValueError:  # a name
        return host == "localhost"
    return address.is_loopback or address.is_unspecified


def _code(answer: httpx2.Response) -> str | None:
    """The code of the problem that a response reports; None if it is none of ours."""
    try:
        return Problem.model_validate_json(answer.content).code
    except ValueError:
        return None


def _remedy(url: str, reason: str) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return "Name the certificates of your own authority in SSL_CERT_FILE."
    if _is_loopback(url):
        return "Start one with: shardyard up"
    return "Check the address (--url, SHARDYARD_URL), the network, and a proxy."


def checked(answer: httpx2.Response) -> Any:
    """The JSON of a successful response. Raises `ApiError` for every other."""
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
        errors = [_TOO_LARGE] if answer.status_code == httpx2.codes.CONTENT_TOO_LARGE else []
        raise ApiError("not_shardyard", detail, answer.status_code, errors) from None
    raise ApiError(problem.code, problem.detail, problem.status, problem.errors)
