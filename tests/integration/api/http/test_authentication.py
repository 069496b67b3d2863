"""Requests are authenticated by a token in a header or by a browser session; all others are refused."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from shardyard.api.access_token import TokenFile
from shardyard.api.client import Client

from ..conftest import SIGNED, TOKEN, Plane, anonymously, ask, problem

#: What anybody may ask: probes, and a browser that wants in or out.
OPEN = {"health", "readiness", "signIn", "signOut"}
OTHER = TOKEN[::-1]


async def test_every_operation_needs_the_token_and_says_so(
    anonymous: httpx2.AsyncClient, api: httpx2.AsyncClient
) -> None:
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
            answer = await anonymous.request(*asked)
            problem(answer, 401, "unauthenticated")
            assert answer.headers["www-authenticate"] == "Bearer"
            problem(
                await anonymous.request(*asked, headers={"Authorization": f"Bearer {OTHER}"}), 401, "unauthenticated"
            )
            assert "security" not in operation
            assert {"401", "403", "500", "503"} <= operation["responses"].keys(), name
    assert seen > OPEN


async def test_what_holds_nothing_of_anybodys_is_open(anonymous: httpx2.AsyncClient) -> None:
    for path in ("/healthz", "/readyz", "/", "/jobs/job-1", "/favicon.svg"):
        assert (await anonymous.get(path)).status_code in (200, 404), path
    for path in ("/v1/jobs", "/v1/nothing", "/openapi.json"):
        problem(await anonymous.get(path), 401, "unauthenticated")


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
    unprivileged: Any = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"}
    finished = {
        name: subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False, **unprivileged
        )
        for name, script in asked.items()
    }
    answers = {name: done.stdout for name, done in finished.items()}
    assert answers["read"] == ""
    assert " 401 " in answers["list"].splitlines()[0] and " 401 " in answers["sign in"].splitlines()[0]
    assert "cookie" not in answers["sign in"].lower()
    assert anonymously("POST", f"{plane.url}/v1/session", json={"code": code}).status_code == 200  # it was not used up


def test_where_something_else_authenticates_nothing_is_asked_for(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    plane.stop()
    plane.settings = plane.settings.model_copy(update={"host": "0.0.0.0", "insecure_allow_remote": True})
    plane.start()
    monkeypatch.delenv("SHARDYARD_TOKEN")
    with Client(plane.url) as client:
        assert client.jobs().items == [] and not client.server().authentication
        assert client.sign_in_code().code == ""
    assert anonymously("POST", f"{plane.url}/v1/session", json={}).status_code == 200
    assert ask("GET", f"{plane.url}/v1/jobs").status_code == 200  # a token does no harm
    assert SIGNED


def test_beyond_loopback_the_token_is_asked_for(plane: Plane) -> None:
    plane.stop()
    plane.settings = plane.settings.model_copy(update={"host": "0.0.0.0"})
    plane.start()
    problem(anonymously("GET", f"{plane.url}/v1/jobs"), 401, "unauthenticated")
    assert ask("GET", f"{plane.url}/v1/jobs").status_code == 200
