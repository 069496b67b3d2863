"""Who may ask: the holder of the token, by header or by a browser's session, and nobody else."""

import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from shardyard.api import pidfile
from shardyard.api.access_token import TokenFile
from shardyard.api.cli.main import run
from shardyard.api.client import ApiError, AsyncClient, Client

from ..conftest import SIGNED, SPEC, TOKEN, Gang, Plane, ask, until
from ..routes.test_submit import problem

#: What anybody may ask: probes, and a browser that wants in or out.
OPEN = {"health", "readiness", "signIn", "signOut"}
OTHER = TOKEN[::-1]


@pytest.fixture
async def nobody(api: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """A client of the same app without a token."""
    return httpx2.AsyncClient(transport=api._transport, base_url="http://127.0.0.1")


@pytest.fixture
def own(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> TokenFile:
    """The plane's data folder has written down where it runs, and its token lies in the folder."""
    plane.stop()
    monkeypatch.delenv("SHARDYARD_TOKEN")
    plane.settings = plane.settings.model_copy(update={"token": None})
    plane.start()
    file = TokenFile(plane.settings.data_dir / "token", own=True)
    file.make()
    pidfile.write(plane.settings.data_dir, pidfile.Control.of_this_process(plane.url, str(file.path)))
    return file


async def test_every_operation_needs_the_token_and_says_so(nobody: httpx2.AsyncClient, api: httpx2.AsyncClient) -> None:
    document = (await api.get("/openapi.json")).json()
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert document["security"] == [{"token": []}]
    seen = set()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name, asked = operation["operationId"], (method.upper(), re.sub(r"\{\w+\}", "x", path))
            seen.add(name)
            if name in OPEN:
                assert operation["security"] == [], name
                continue
            answer = await nobody.request(*asked)
            problem(answer, 401, "unauthenticated")
            assert answer.headers["www-authenticate"] == "Bearer"
            problem(await nobody.request(*asked, headers={"Authorization": f"Bearer {OTHER}"}), 401, "unauthenticated")
            assert "security" not in operation
            assert {"401", "403", "500", "503"} <= operation["responses"].keys(), name
    assert seen > OPEN


async def test_what_holds_nothing_of_anybodys_is_open(nobody: httpx2.AsyncClient) -> None:
    for path in ("/healthz", "/readyz", "/", "/jobs/job-1", "/favicon.svg"):
        assert (await nobody.get(path)).status_code in (200, 404), path
    for path in ("/v1/jobs", "/v1/nothing", "/openapi.json"):
        problem(await nobody.get(path), 401, "unauthenticated")


async def test_a_browser_signs_in_and_out(nobody: httpx2.AsyncClient) -> None:
    for wrong in ({"token": OTHER}, {"code": "nonsense"}, {}):
        refused = await nobody.post("/v1/session", json=wrong)
        problem(refused, 401, "unauthenticated")
        assert "set-cookie" not in refused.headers
    signed_in = await nobody.post("/v1/session", json={"token": TOKEN})
    [cookie] = signed_in.headers.get_list("set-cookie")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; ")) and "Secure" not in cookie
    assert TOKEN not in cookie
    assert (await nobody.get("/v1/jobs")).status_code == 200
    signed_out = await nobody.delete("/v1/session")
    assert "Max-Age=0" in signed_out.headers["set-cookie"]
    problem(await nobody.get("/v1/jobs"), 401, "unauthenticated")


async def test_the_cookie_of_a_page_over_https_stays_there(nobody: httpx2.AsyncClient) -> None:
    page = {"Origin": "https://127.0.0.1", "Sec-Fetch-Site": "same-origin"}  # what ends TLS speaks plain http with us
    answer = await nobody.post("/v1/session", json={"token": TOKEN}, headers=page)
    assert "Secure" in answer.headers["set-cookie"].split("; ")


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        ('{"token": 7}', "application/json", 422, "invalid_request"),
        ('{"token": "x", "user": "y"}', "application/json", 422, "invalid_request"),
        ("[]", "application/json", 422, "invalid_request"),
        ("{", "application/json", 400, "invalid_syntax"),
        (f"token={TOKEN}", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
        (f'{{"token": "{TOKEN}"}}', "text/plain", 415, "unsupported_media_type"),
    ],
)
async def test_what_cannot_be_a_sign_in(
    nobody: httpx2.AsyncClient, body: str, kind: str, status: int, code: str
) -> None:
    answer = await nobody.post("/v1/session", content=body, headers={"Content-Type": kind})
    problem(answer, status, code)
    assert TOKEN not in answer.text


def test_a_link_signs_in_once_and_its_session_streams(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    Gang(plane, job.id).state("starting")
    code = client.sign_in_code().code
    with httpx2.Client(base_url=plane.url, timeout=60) as browser:
        assert browser.post("/v1/session", json={"code": code}).status_code == 200
        with browser.stream("GET", f"/v1/jobs/{job.id}/events") as answer:
            assert answer.status_code == 200
            assert next(line for line in answer.iter_lines() if line.startswith("event:")) == "event: state"
    problem(httpx2.post(f"{plane.url}/v1/session", json={"code": code}), 401, "unauthenticated")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_of_this_machine_can_neither_read_nor_ask(plane: Plane, own: TokenFile, client: Client) -> None:
    host, port = plane.url.removeprefix("http://").split(":")
    data = plane.settings.data_dir
    for folder in (data, *data.parents):  # everything above may be passed; the file's own mode must do, too
        if folder.owner() == "root" and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o755)
    with Client(plane.url) as mine:
        code = mine.sign_in_code().code  # which another user may see on a browser's command line
    body = f'{{"code": "{code}"}}'
    asked = {
        "read": f"cat {own.path} {data}/control.json",
        "list": f"exec 3<>/dev/tcp/{host}/{port}; printf 'GET /v1/jobs HTTP/1.0\\r\\nHost: {host}\\r\\n\\r\\n' >&3; cat <&3",
        "sign in": f"exec 3<>/dev/tcp/{host}/{port}; printf 'POST /v1/session HTTP/1.0\\r\\nHost: {host}\\r\\n"
        f"Content-Type: application/json\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n{body}' >&3; cat <&3",
    }
    nobody: Any = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"}
    told = {
        name: subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False, **nobody)
        for name, script in asked.items()
    }
    answers = {name: done.stdout for name, done in told.items()}
    assert answers["read"] == ""
    assert " 401 " in answers["list"].splitlines()[0] and " 401 " in answers["sign in"].splitlines()[0]
    assert "cookie" not in answers["sign in"].lower()
    assert httpx2.post(f"{plane.url}/v1/session", json={"code": code}).status_code == 200  # it was not used up


def test_a_client_finds_the_data_folders_token(plane: Plane, own: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    for url in (None, plane.url, plane.url + "/"):
        with Client(url) as client:
            assert client.jobs().items == []
    assert stat.S_IMODE((plane.settings.data_dir / "control.json").stat().st_mode) == 0o600


async def test_a_client_sends_it_to_nobody_else(
    plane: Plane, own: TokenFile, api: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither to another address, nor to whoever listens where a control plane was."""
    sent: list[Any] = []

    async def hear(request: httpx2.Request) -> None:
        sent.append(request.headers.get("authorization"))

    other = "http://localhost:" + plane.url.rpartition(":")[2]
    async with AsyncClient(other) as client:
        client._http.event_hooks = {"request": [hear]}
        with pytest.raises(ApiError) as refusal:
            await client.jobs()
        assert refusal.value.code == "unauthenticated"
    gone = pidfile.Control(plane.url, 2**22 + 1, 1.0, str(own.path))
    pidfile.write(plane.settings.data_dir, gone)
    async with AsyncClient(plane.url) as client:
        client._http.event_hooks = {"request": [hear]}
        with pytest.raises(ApiError):
            await client.jobs()
    assert sent == [None, None]


def test_a_client_goes_on_after_a_rotation(plane: Plane, own: TokenFile, capsys: pytest.CaptureFixture[str]) -> None:
    before = own.read()
    with Client(plane.url) as client:
        assert client.jobs().items == []
        assert run(["token", "--rotate"]) == 0
        assert capsys.readouterr().out.strip() == own.read() != before
        stale = {"Authorization": f"Bearer {before}"}
        until(lambda: httpx2.get(f"{plane.url}/v1/jobs", headers=stale).status_code == 401)
        assert client.jobs().items == []


@pytest.mark.parametrize("how", ["argument", "variable", "file"])
def test_a_token_can_be_given(plane: Plane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str) -> None:
    monkeypatch.delenv("SHARDYARD_TOKEN")
    if how == "variable":
        monkeypatch.setenv("SHARDYARD_TOKEN", TOKEN)
    if how == "file":
        (tmp_path / "given").write_text(TOKEN + "\n")
        monkeypatch.setenv("SHARDYARD_TOKEN_PATH", str(tmp_path / "given"))
    with Client(plane.url, token=TOKEN if how == "argument" else None) as client:
        assert client.jobs().items == []


def test_a_token_that_cannot_be_used_is_said(plane: Plane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ApiError) as refusal:
        Client(plane.url, token="secret")
    assert refusal.value.code == "weak_token" and "secret" not in refusal.value.detail
    monkeypatch.delenv("SHARDYARD_TOKEN")
    monkeypatch.setenv("SHARDYARD_TOKEN_PATH", str(tmp_path / "nowhere"))
    with pytest.raises(ApiError) as refusal:
        Client(plane.url)
    assert refusal.value.code == "token_unreadable" and "SHARDYARD_TOKEN_PATH" in (refusal.value.errors[0].remedy or "")


def test_a_command_without_the_token_says_what_to_do(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SHARDYARD_TOKEN")
    assert run(["list", "--url", plane.url]) == 1
    told = capsys.readouterr().err
    assert "access token" in told and "shardyard token" in told and "SHARDYARD_TOKEN" in told


def test_open_prints_a_link_that_signs_in(
    plane: Plane, client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHARDYARD_URL", plane.url)
    job = client.submit(SPEC)
    assert run(["open", "tiny", "--no-browser"]) == 0
    link = capsys.readouterr().out.strip()
    page, _, code = link.partition("#code=")
    assert page == f"{plane.url}/jobs/{job.id}" and TOKEN not in link
    assert httpx2.post(f"{plane.url}/v1/session", json={"code": code}).status_code == 200


def test_open_opens_the_browser(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{seen}"\n')
    browser.chmod(0o755)
    monkeypatch.setattr("webbrowser._browsers", {})
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setenv("BROWSER", str(browser))
    assert run(["open", "--url", plane.url]) == 0
    assert seen.read_text() == capsys.readouterr().out


def test_token_prints_what_there_is(own: TokenFile, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert run(["token"]) == 0
    assert capsys.readouterr().out.strip() == own.read()
    monkeypatch.setenv("SHARDYARD_TOKEN", TOKEN)
    assert run(["token"]) == 0
    assert capsys.readouterr().out.strip() == TOKEN
    assert run(["token", "--rotate"]) == 1
    assert "SHARDYARD_TOKEN" in capsys.readouterr().err


def test_where_something_else_authenticates_nothing_is_asked_for(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    plane.stop()
    plane.settings = plane.settings.model_copy(update={"host": "0.0.0.0", "insecure_allow_remote": True})
    plane.start()
    monkeypatch.delenv("SHARDYARD_TOKEN")
    with Client(plane.url) as client:
        assert client.jobs().items == [] and not client.server().authentication
        assert client.sign_in_code().code == ""
    assert httpx2.post(f"{plane.url}/v1/session", json={}).status_code == 200
    assert ask("GET", f"{plane.url}/v1/jobs").status_code == 200  # a token does no harm
    assert SIGNED


def test_beyond_loopback_the_token_is_asked_for(plane: Plane) -> None:
    plane.stop()
    plane.settings = plane.settings.model_copy(update={"host": "0.0.0.0"})
    plane.start()
    problem(httpx2.get(f"{plane.url}/v1/jobs"), 401, "unauthenticated")
    assert ask("GET", f"{plane.url}/v1/jobs").status_code == 200
