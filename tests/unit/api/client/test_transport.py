"""When a question is asked again, and how a stream's reader keeps its place, without any connection."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest
from harness.patience import PATIENCE_S
from pydantic import BaseModel

from shardyard.api.client import Client, requests
from shardyard.api.client.artifact_file import place_below, place_of
from shardyard.api.client.transport import (
    PAUSES,
    ApiError,
    Call,
    Event,
    Place,
    Tries,
    Unreachable,
    check_url,
    made,
    readable,
)
from shardyard.api.http import request_body
from shardyard.service.jobs import code_archives
from shardyard.service.queries import storage_reads
from shardyard.workers.code_archive import Manifest


class Cursor(BaseModel):
    value: int


def answer(status: int) -> httpx2.Response:
    return httpx2.Response(status)


def test_a_server_that_is_starting_is_asked_again_with_longer_pauses() -> None:
    tries = Tries("http://x", 5)
    assert [tries.again(answer(503)) for _ in range(5)] == [*PAUSES, None]


@pytest.mark.parametrize("status", [200, 201, 404, 409, 422, 500])
def test_an_answer_that_counts_ends_it(status: int) -> None:
    assert Tries("http://x", 5).again(answer(status)) is None


@pytest.mark.parametrize(("code", "pause"), [("checkpoint_storage_failed", None), ("database_unreachable", PAUSES[0])])
def test_storage_that_failed_is_not_asked_again(code: str, pause: float | None) -> None:
    """The server has retried for minutes, and one of its turns is taken for as long."""
    problem = {"type": "about:blank", "title": "x", "status": 503, "detail": "x", "code": code, "errors": []}
    assert Tries("http://x", 5).again(httpx2.Response(503, json=problem)) == pause


def test_a_cut_connection_is_tried_again_and_then_reported() -> None:
    tries = Tries("http://x", 3)
    assert [tries.failed(httpx2.ReadError("cut")) for _ in range(2)] == list(PAUSES[:2])
    with pytest.raises(Unreachable, match="http://x"):
        tries.failed(httpx2.ReadError("cut"))


def test_where_nothing_listens_is_said_at_once_but_not_after_an_answer() -> None:
    with pytest.raises(Unreachable):
        Tries("http://x", 5).failed(httpx2.ConnectError("refused"))
    tries = Tries("http://x", 5)
    tries.again(answer(502))
    assert tries.failed(httpx2.ConnectError("it restarts")) == PAUSES[1]


def test_another_address_is_tried_and_the_one_that_failed_is_named() -> None:
    tries = Tries("http://x", 3)
    assert [tries.failed(httpx2.ConnectError("refused"), "http://y") for _ in range(2)] == list(PAUSES[:2])
    with pytest.raises(Unreachable, match="http://y"):
        tries.failed(httpx2.ConnectError("refused"), "http://z")


def test_one_try_is_one() -> None:
    with pytest.raises(Unreachable):
        Tries("http://x", 1).failed(httpx2.ReadTimeout("slow"))
    assert Tries("http://x", 1).again(answer(503)) is None


def test_a_place_goes_on_after_the_last_event_and_loses_patience_only_without_one() -> None:
    warnings: list[ApiError] = []
    place, error = Place("1.0.0", 1e9, warnings.append), Unreachable("http://x", "gone")
    assert place.headers == {"Last-Event-ID": "1.0.0"}
    assert [place.lost(error) for _ in range(5)] == [*PAUSES, PAUSES[-1]]
    assert len(warnings) == 4  # the first loss may be nothing
    place.seen(Event("step", {}, "1.7.0", None))
    assert place.headers == {"Last-Event-ID": "1.7.0"}
    assert place.lost(error) == PAUSES[0]
    assert Place(None, 1.0).headers == {}


def test_patience_is_for_one_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream without events is heard by its comments alone."""
    clock = [0.0]
    monkeypatch.setattr("shardyard.api.client.transport.time.monotonic", lambda: clock[0])
    place, error = Place(None, 300.0), Unreachable("http://x", "gone")
    for clock[0] in (0.0, 400.0, 800.0):
        place.lost(error)
        place.heard()
    place.lost(error)
    clock[0] = 1200.0
    with pytest.raises(Unreachable):
        place.lost(error)


@pytest.mark.parametrize(("lasted_s", "warned"), [(60.0, 0), (0.5, 3)])
def test_a_stream_that_a_proxy_cuts_is_no_outage(lasted_s: float, warned: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job without events has one item per connection, and its heartbeats are none. A server that ends each stream at once gets pauses."""
    clock = [1.0]
    monkeypatch.setattr("shardyard.api.client.transport.time.monotonic", lambda: clock[0])
    warnings: list[ApiError] = []
    place, pauses = Place(None, 300.0, warnings.append), list[float]()
    for _ in range(4):
        place.heard()
        clock[0] += lasted_s
        pauses.append(place.lost(Unreachable("http://x", "The stream broke off.")))
    assert len(warnings) == warned and pauses == [*(PAUSES if warned else PAUSES[:1] * 4)]


def test_patience_ends() -> None:
    place, error = Place(None, -1.0), Unreachable("http://x", "gone")
    with pytest.raises(Unreachable):
        place.lost(error)


@pytest.mark.parametrize(
    ("url", "reason", "remedy"),
    [
        ("http://localhost:8400", "refused", "shardyard up"),
        ("https://train.example.com", "no such host", "SHARDYARD_URL"),
        ("https://localhost", "[SSL: CERTIFICATE_VERIFY_FAILED] unknown authority", "SSL_CERT_FILE"),
    ],
)
def test_the_remedy_fits_the_address_and_the_reason(url: str, reason: str, remedy: str) -> None:
    assert remedy in (Unreachable(url, reason).errors[0].remedy or "")


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({"SSL_CERT_FILE": "/no/such.pem"}, "SSL_CERT_FILE"),
        ({"HTTPS_PROXY": "foo://proxy"}, "HTTPS_PROXY"),
        ({"https_proxy": "http://proxy:port"}, "HTTPS_PROXY"),
    ],
)
def test_what_the_environment_names_wrongly_is_named(
    variables: dict[str, str], names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ApiError, match="environment") as refused:
        made(httpx2.Client, "https://train.example.com", None, 1.0)
    assert refused.value.code == "invalid_setting" and refused.value.errors[0].field == names


def test_an_own_authority_counts_on_loopback_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a tunnel to a server with TLS, where no proxy is used."""
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such.pem")
    with pytest.raises(ApiError, match="certificates"):
        made(httpx2.Client, "https://localhost:8400", None, 1.0)
    made(httpx2.Client, "http://localhost:8400", "http://localhost:8400", 1.0).close()


async def test_a_client_may_have_more_streams_than_httpx2_has_connections() -> None:
    """Each stream of events holds a connection. One that passes limits of its own has those."""

    served = list[asyncio.Task[None] | None]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await reader.read()  # until the client closes
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", backlog=1000) as server, AsyncExitStack() as stack:
        stack.push_async_callback(lambda: asyncio.gather(*filter(None, served)))
        url = "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname())
        client = await stack.enter_async_context(made(httpx2.AsyncClient, url, url, PATIENCE_S))
        for _ in range(101):
            await stack.enter_async_context(client.stream("GET", url, timeout=httpx2.Timeout(PATIENCE_S, pool=0.0)))
        lone = httpx2.Limits(max_connections=1)
        alone = await stack.enter_async_context(made(httpx2.AsyncClient, url, url, PATIENCE_S, limits=lone))
        await stack.enter_async_context(alone.stream("GET", url))
        with pytest.raises(httpx2.PoolTimeout):
            await alone.get(url, timeout=httpx2.Timeout(PATIENCE_S, pool=0.0))


@pytest.mark.parametrize(
    ("url", "detail"),
    [
        ("https://me:geheim@train.example.com", "The address of train.example.com has a user or a password."),
        ("https://geheim@train.example.com:8443/x", "The address of train.example.com has a user or a password."),
        ("ftp://me:geheim@host", "'host' is not an http or https address."),
        ("me:geheim@host", "'host' is not an http or https address."),
        ("https://me:ge/heim@host", "'host' is not an http or https address."),
        ("host:8400", "'host:8400' is not an http or https address."),
    ],
)
def test_a_password_in_an_address_is_refused_and_not_printed(url: str, detail: str) -> None:
    with pytest.raises(ApiError) as refused:
        Client(url)
    (finding,) = refused.value.errors
    assert (refused.value.code, refused.value.detail, finding.field) == ("invalid_url", detail, "url")
    assert "heim" not in f"{finding.message} {finding.remedy}"
    check_url("https://train.example.com/@team")


def test_a_body_that_a_proxy_refuses_is_said_to_be_too_large_for_it() -> None:
    """A part of code is larger than nginx admits by default. The control plane's own refusal says what is too large itself."""
    request, call = httpx2.Request("PUT", "http://x/v1/code/a/parts/0"), Call("PUT", "/v1/code/a/parts/0", dict)
    with pytest.raises(ApiError, match="answered 413") as refused:
        call.result(httpx2.Response(413, text="<html>413 Request Entity Too Large</html>", request=request))
    (finding,) = refused.value.errors
    assert "proxy" in finding.message and "5 MiB" in (finding.remedy or "")
    problem = {
        "type": "about:blank",
        "title": "x",
        "status": 413,
        "detail": "x",
        "code": "spec_too_large",
        "errors": [],
    }
    with pytest.raises(ApiError) as refused:
        call.result(httpx2.Response(413, json=problem, request=request))
    assert (refused.value.code, refused.value.errors) == ("spec_too_large", [])


def test_an_answer_of_another_version_is_no_traceback() -> None:
    call = Call("GET", "/v1/jobs/a", Cursor.model_validate)
    sent = httpx2.Response(200, json={"other": 1}, request=httpx2.Request("GET", "http://x/v1/jobs/a"))
    with pytest.raises(ApiError, match="http://x/v1/jobs/a did not answer as this version expects: value") as refused:
        call.result(sent)
    assert refused.value.code == "not_shardyard"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (httpx2.InvalidURL("too long"), "invalid_url"),
        (UnicodeError("label too long"), "invalid_url"),
        (httpx2.DecodingError("not gzip"), "not_shardyard"),
    ],
)
def test_what_cannot_be_sent_or_read_is_an_error_of_the_api(error: Exception, code: str) -> None:
    with pytest.raises(ApiError, match=str(error)) as refused, readable("http://x"):
        raise error
    assert refused.value.code == code


def test_a_command_is_a_list_of_words() -> None:
    with pytest.raises(ApiError, match="not a list") as refused:
        requests.execute("job", None, "ls -l", rank=0)
    assert refused.value.errors[0].field == "command"
    assert b'"command": ["ls", "-l"]' in (requests.execute("job", None, ["ls", "-l"], rank=0).content or b"")


def test_a_place_may_be_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert place_of("~", "logs/a.txt") == tmp_path / "a.txt"
    assert place_below("~/step-1", "rank-0/a") == tmp_path / "step-1/rank-0/a"
    with pytest.raises(ApiError, match="no such user"):
        place_below("~no-such-user", "a")


@pytest.mark.parametrize(
    "call",
    [
        requests.artifact("job", "out", None),
        requests.checkpoint_files("job", 1, after=None, limit=10),
        requests.checkpoint_file("job", 1, "a"),
    ],
    ids=lambda call: call.path,
)
def test_answers_from_storage_are_waited_for_longer_than_the_server_waits(call: Call[object]) -> None:
    found = call.timeout(httpx2.Timeout(1.0))
    assert (found.read or 0.0) > storage_reads.LIMIT_S and (found.connect or 99.0) <= 30


@pytest.mark.parametrize(
    "call",
    [requests.begin_code(Manifest(0, 0, ())), requests.put_code_part("a", 0, b"")],
    ids=lambda call: call.path,
)
def test_answers_about_code_are_waited_for_longer_than_the_server_waits(call: Call[object]) -> None:
    found = call.timeout(httpx2.Timeout(1.0))
    assert (found.read or 0.0) > code_archives.LIMIT_S and (found.connect or 99.0) <= 30


def test_a_body_may_take_as_long_to_send_as_the_server_lets_it() -> None:
    content = bytes(4 << 20)
    write_s = request_body.BODY_S + len(content) / request_body.LEAST_BYTES
    usual = httpx2.Timeout(1.0)
    assert requests.put_code_part("a", 0, content).timeout(usual).write == write_s
    found = Call("POST", "/v1/jobs", Cursor.model_validate, content=content).timeout(usual)
    assert (found.write, found.read, found.connect, found.pool) == (write_s, 1.0, 1.0, 1.0)
