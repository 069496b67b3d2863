"""`AsyncClient`: every call of the HTTP API as a typed method. Imports no server code, no torch, no Ray.

Calls are safe to repeat. A submission carries one idempotency key over all its tries. An event stream resumes after the last event that it
returned, so that a lost connection or a restarted control plane neither loses nor repeats an event.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2

from ....service.schemas.job import Job
from ....service.schemas.log import Logs, LogSearchResult
from ....service.schemas.operation import Operation
from ....service.schemas.server import Readiness
from .. import clone_requests, requests
from ..module_plan import OnUnplanned
from ..transport import (
    FINAL,
    GONE,
    PAUSES,
    STREAM_TIMEOUT,
    ApiError,
    Call,
    Event,
    Place,
    Tries,
    Unreachable,
    WaitTimeout,
    checked,
    event_of,
    find_url,
    may_pass,
    pause_of,
    readable,
)
from .downloads import AsyncDownloads
from .endpoints import AsyncEndpoints
from .job import AsyncJobHandle
from .job_changes import AsyncJobChanges
from .model_endpoints import AsyncModelEndpoints
from .planning import AsyncPlanning
from .runtime import Answer, closing, in_thread, sleep
from .sweep_endpoints import AsyncSweepEndpoints

T = TypeVar("T")


class AsyncClient(
    AsyncDownloads, AsyncJobChanges, AsyncModelEndpoints, AsyncEndpoints, AsyncPlanning, AsyncSweepEndpoints
):
    """Talks to one control plane. Use it as a context manager, or call `close` at the end.

    `url`: the API's address; None finds it (see `find_url`), again after each lost connection.
    `token`: the access token; None takes `SHARDYARD_TOKEN`, the file of `SHARDYARD_TOKEN_PATH`, or the data folder's own.
    `timeout_s`: for each answer. `tries`: of each request.
    `patience_s`: for how long `events`, `wait` and `retry_unreachable` retry while the control plane is unreachable.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout_s: float = 30.0,
        patience_s: float = 300.0,
        tries: int = len(PAUSES) + 1,
    ) -> None:
        super().__init__(url, token, timeout_s)
        self._patience_s, self._tries = patience_s, tries

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Jobs

    async def submit(
        self,
        spec: requests.Spec,
        *,
        idempotency_key: str | None = None,
        on_upload: Callable[[int, int], None] | None = None,
        plan_s: float | None = None,
        on_unplanned: OnUnplanned | None = None,
    ) -> AsyncJobHandle:
        """Submit a job: a `JobSpec`, a mapping, or the path of a YAML or JSON file. Returns the stored job.

        The folder that its `code.dir` names is uploaded first; an upload that broke off continues. `on_upload` gets the number of bytes
        that have arrived, and of all, before each part.
        A module of your own (`model.import`) is dry-run here for its memory plan, in at most `plan_s` seconds (None: the setting
        SHARDYARD_DRY_RUN_S; 0: not at all). Where that fails the job is submitted without a plan, and `on_unplanned` is given the reason.
        Repeating a call with the same key gives the same job. Raises `ApiError` with the fields and their remedies.
        """
        given = requests.given(spec)
        document, own = await self._planned(given.document, plan_s, on_unplanned)
        document = await self._uploaded(document, on_upload)
        return AsyncJobHandle.of(await self._fitted(own, requests.submit(document, idempotency_key, given)), self)

    async def clone(
        self,
        job: str,
        *,
        set: Mapping[str, Any] | None = None,
        name: str | None = None,
        idempotency_key: str | None = None,
        on_upload: Callable[[int, int], None] | None = None,
    ) -> AsyncJobHandle:
        """Submit a copy of a job's spec as a new job, which begins where that job began. Returns the new job.

        The copy has the comments of the text and the job's present layout, and the job's id as its label `parent`. `name`: by default that
        of the job, with `-clone`. `set`: other values by the path of their key, such as `{"train.optimizer.lr": 1e-3}`. Code that the spec
        names, which may be another user's, is not run here: the copy has no new memory plan.
        Repeating a call with the same key gives the same job, whatever has become of the old one. But where `set` names code to upload, or
        a relative path, the old job must not have changed. Raises `ApiError` as `submit`.
        """
        try:
            found = await self.job(job)
            spec = clone_requests.copied(found, await self.submitted_spec(found.id), name, set or {})
        except ApiError as error:
            if error.code not in GONE:
                raise
            spec = None  # the service may know the clone by its key
        if spec is not None:
            return await self.submit(spec, idempotency_key=idempotency_key, on_upload=on_upload, plan_s=0)
        return await self._handle(clone_requests.clone(job, name, set or {}, idempotency_key))

    async def _uploaded(self, document: Any, on_upload: Callable[[int, int], None] | None) -> Any:
        """The document, once the folder of code that it names is uploaded."""
        with ExitStack() as stack:
            packed = await in_thread(partial(stack.enter_context, requests.packed(document)))
            if packed is not None:
                archive = await self._send(requests.begin_code(packed.manifest))
                while archive.missing:
                    if on_upload is not None:
                        on_upload(archive.arrived, archive.bytes)
                    number = archive.missing[0]
                    content = await in_thread(partial(packed.part, number))
                    archive = await self._send(requests.put_code_part(archive.id, number, content))
                document = packed.named_in(document)
        return document

    async def job(self, job: str) -> AsyncJobHandle:
        """A job by its id, or the newest of that name."""
        return await self._handle(requests.job(job))

    async def wait(self, job: str, timeout_s: float | None = None) -> AsyncJobHandle:
        """The job once it has ended. Raises `WaitTimeout` when that takes longer than `timeout_s`, also while no control plane answers.

        A request that has begun is not cut off.
        """
        began = time.monotonic()
        until = None if timeout_s is None else began + timeout_s
        found = await self.job(job)
        while found.state not in FINAL:
            waited_s = time.monotonic() - began
            if timeout_s is not None and waited_s >= timeout_s:
                raise WaitTimeout(found, timeout_s)
            await sleep(pause_of(waited_s, timeout_s))
            try:
                found = await self.retry_unreachable(partial(self.job, found.id), until)
            except ApiError as error:
                if timeout_s is None or not may_pass(error) or time.monotonic() < began + timeout_s:
                    raise
                raise WaitTimeout(found, timeout_s, error) from error
        return found

    async def finished(self, operation: Operation) -> Operation:
        """An operation once it is done or has failed, which the service bounds."""
        while operation.settled_at is None:
            await sleep(0.5)
            operation = await self.retry_unreachable(partial(self.operation, operation.job, operation.id))
        return operation

    # Events, logs and metrics of a job. With a place in its records the job is sent as it was given: the service refuses a name.

    async def events(
        self,
        job: str,
        after: str | None = None,
        *,
        logs: bool = False,
        rank: int | None = None,
        ranks: bool = False,
        on_lost: Callable[[ApiError], None] | None = None,
    ) -> AsyncGenerator[Event]:
        """A job's events after the cursor `after` (None: from its beginning) to its end, each once, as they happen.

        A cursor needs the job's id, not its name.
        With `logs` its log lines too (of `rank`), with `ranks` the newest sample of what each rank does.
        Reconnects for up to `patience_s` after a lost connection or a restart of the control plane, and calls `on_lost` for each.
        """
        found = await self.job(job)
        call = requests.events(job if after else found.id, logs=logs, rank=rank, ranks=ranks)
        place = Place(after, self._patience_s, on_lost)
        while True:
            try:
                async with closing(self._stream(call, place)) as stream:
                    async for event in stream:
                        place.seen(event)
                        if event.kind == "end":
                            return
                        yield event
                error = Unreachable(self.url, "The stream broke off.")
            except Unreachable as unreachable:
                error = unreachable
            await sleep(place.lost(error))
            self.url = find_url(self._given, self.url)

    async def past_events(self, job: Job) -> list[Event]:
        """The job's events up to `job.cursor`, without steps and log lines."""
        events, steps, lines = (int(part) for part in job.cursor.split("."))
        events_read: list[Event] = []
        async with closing(self.events(job.id, f"0.{steps}.{lines}")) as stream:
            while events > (int(events_read[-1].cursor.split(".")[0]) if events_read else 0):
                event = await anext(stream, None)
                if event is None:
                    break
                events_read.append(event)
        return [event for event in events_read if event.kind != "step"]

    async def log_pages(
        self, job: str, *, rank: int | None = None, after: int = 0, follow: bool = False, pause_s: float = 0.5
    ) -> AsyncIterator[Logs]:
        """All log lines after position `after`, page by page. With `follow`, until the job has ended and every line was yielded.

        A position needs the job's id, not its name.
        """
        found = await self.job(job)
        asked = job if after else found.id
        while True:
            page = await self.retry_unreachable(partial(self.logs, asked, rank=rank, after=after))
            if page.lines:
                after = page.lines[-1].position
                yield page
            if page.next is not None:
                continue
            if not follow or found.state in FINAL:
                return
            await sleep(pause_s)
            # Before the lines: once a job has ended, no line is added.
            found = await self.retry_unreachable(partial(self.job, found.id))

    async def search_pages(  # noqa: PLR0913 - a condition each
        self,
        job: str,
        text: str = "",
        *,
        rank: int | None = None,
        level: requests.Level | None = None,
        since: float | None = None,
        until: float | None = None,
        stream: requests.Stream | None = None,
        regex: bool = False,
        after: int = 0,
        limit: int = 100,
        follow: bool = False,
        pause_s: float = 0.5,
    ) -> AsyncIterator[LogSearchResult]:
        """Pages of matching lines as of `search_logs`, up to the log's end; with `follow` until the job has ended. A page may be empty.

        A position needs the job's id, not its name.
        """
        found = await self.job(job)
        asked = job if after else found.id
        ask = partial(self.search_logs, asked, text, rank=rank, level=level, stream=stream, regex=regex)
        search = partial(ask, since=since, until=until, limit=limit)
        while True:
            page = await self.retry_unreachable(partial(search, after=after))
            yield page
            after = page.scanned_to
            if not page.done:
                continue
            if not follow or found.state in FINAL:
                return
            await sleep(pause_s)
            # Before the lines: once a job has ended, no line is added.
            found = await self.retry_unreachable(partial(self.job, found.id))

    # The service

    async def alive(self) -> bool:
        """Whether a control plane responds."""
        try:
            answer = await self._http.get(f"{self.url}/healthz", timeout=5.0)
            return bool(answer.json()["status"] == "ok")
        except (httpx2.RequestError, httpx2.InvalidURL, ValueError, KeyError, TypeError):
            self.url = find_url(self._given, self.url)
            return False

    async def readiness(self) -> Readiness:
        """The readiness of the control plane, check by check. Raises `ApiError`."""
        try:
            with readable(self.url):
                answer = await self._http.get(f"{self.url}/readyz")
        except httpx2.TransportError as error:
            lost, self.url = self.url, find_url(self._given, self.url)
            raise Unreachable(lost, error) from None
        try:
            return Readiness.model_validate_json(answer.content)
        except ValueError:
            detail = f"{answer.request.url} answered {answer.status_code}, and no readiness."
            raise ApiError("not_shardyard", detail, answer.status_code) from None

    # Requests

    async def _handle(self, call: Call[Job]) -> AsyncJobHandle:
        return AsyncJobHandle.of(await self._send(call), self)

    async def _send(self, call: Call[T]) -> T:
        """The result of one request, with retries."""
        tries = Tries(self.url, self._tries)
        while True:
            try:
                with readable(self.url):
                    answer = await self._http.request(
                        call.method,
                        self.url + call.path,
                        params=call.given,
                        content=call.content,
                        headers=call.headers,
                        timeout=call.timeout(self._http.timeout),
                    )
            except httpx2.TransportError as error:
                self.url = find_url(self._given, self.url)
                pause: float | None = tries.failed(error, self.url)
            else:
                pause = tries.again(answer)
                if pause is None:
                    return call.result(answer)
            await sleep(pause or 0.0)

    async def retry_unreachable(self, request: Callable[[], Answer[T]], until: float | None = None) -> T:
        """What a call returns, such as `partial(client.job, "tiny")`, repeated while no control plane responds.

        For up to `patience_s`, but not after `until`, a time of `time.monotonic()`. A request that has begun is not cut off.
        """
        end = time.monotonic() + self._patience_s
        end = end if until is None else min(end, until)
        while True:
            try:
                return await request()
            except ApiError as error:
                left_s = end - time.monotonic()
                if not may_pass(error) or left_s <= 0:
                    raise
                await sleep(min(1.0, left_s))
                self.url = find_url(self._given, self.url)

    async def _stream(self, call: Call[None], place: Place) -> AsyncGenerator[Event]:
        """Events of one connection. Raises `Unreachable` when the connection breaks."""
        address, given = self.url + call.path, call.given
        try:
            async with self._http.sse(
                address, params=given, headers=place.headers, timeout=STREAM_TIMEOUT, max_event_size=None
            ) as source:
                if source.response.status_code >= 500:
                    raise Unreachable(self.url, f"It answers {source.response.status_code}.")
                if source.response.status_code != 200:
                    await source.response.aread()
                    checked(source.response)
                async for item in source:
                    place.heard()
                    event = event_of(item)
                    if event is not None:
                        yield event
        except httpx2.TransportError as error:
            raise Unreachable(self.url, error) from None
