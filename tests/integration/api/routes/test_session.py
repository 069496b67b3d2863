"""A browser signs in by token or by a link that works once, and signs out."""

import asyncio
import http.cookies
import threading

import httpx2
import pytest
from harness.patience import PATIENCE_S

from shardyard.api.client import Client
from shardyard.api.http.authentication import Keys
from shardyard.api.routes import session

from ..conftest import SPEC, TOKEN, Gang, Plane, anonymously, problem
from ..http.test_authentication import OTHER


async def test_a_browser_signs_in_and_out(anonymous: httpx2.AsyncClient) -> None:
    for wrong in ({"token": OTHER}, {"code": "nonsense"}, {}):
        refused = await anonymous.post("/v1/session", json=wrong)
        problem(refused, 401, "unauthenticated")
        assert "set-cookie" not in refused.headers
    signed_in = await anonymous.post("/v1/session", json={"token": TOKEN})
    [cookie] = signed_in.headers.get_list("set-cookie")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; ")) and "Secure" not in cookie
    assert TOKEN not in cookie
    assert (await anonymous.get("/v1/jobs")).status_code == 200
    signed_out = await anonymous.delete("/v1/session")
    assert "Max-Age=0" in signed_out.headers["set-cookie"]
    problem(await anonymous.get("/v1/jobs"), 401, "unauthenticated")


async def test_a_stranger_who_signs_out_does_not_see_the_cookies_name(anonymous: httpx2.AsyncClient) -> None:
    """It is derived from the token, so that tokens could be tried against it."""
    for cookies in ({}, {"Cookie": "shardyard-000000000000=x; =y"}):
        signed_out = await anonymous.delete("/v1/session", headers=cookies)
        assert (signed_out.status_code, signed_out.json()) == (200, {"seconds": 0})
        assert "set-cookie" not in signed_out.headers


async def test_the_cookie_of_a_page_over_https_stays_there(anonymous: httpx2.AsyncClient) -> None:
    page = {"Origin": "https://127.0.0.1", "Sec-Fetch-Site": "same-origin"}  # what ends TLS speaks plain http with us
    answer = await anonymous.post("/v1/session", json={"token": TOKEN}, headers=page)
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
        (f'{{"token": [{"1," * 8192}1]}}', "application/json", 413, "spec_too_large"),
    ],
)
async def test_what_cannot_be_a_sign_in(
    anonymous: httpx2.AsyncClient, body: str, kind: str, status: int, code: str
) -> None:
    answer = await anonymous.post("/v1/session", content=body, headers={"Content-Type": kind})
    problem(answer, status, code)
    assert TOKEN not in answer.text


def test_a_link_signs_in_once_and_its_session_streams(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    Gang(plane, job.id).state("starting")
    code = client.sign_in_code().code
    with httpx2.Client(base_url=plane.url, timeout=PATIENCE_S) as browser:
        assert browser.post("/v1/session", json={"code": code}).status_code == 200
        with browser.stream("GET", f"/v1/jobs/{job.id}/events") as answer:
            assert answer.status_code == 200
            assert next(line for line in answer.iter_lines() if line.startswith("event:")) == "event: state"
    problem(anonymously("POST", f"{plane.url}/v1/session", json={"code": code}), 401, "unauthenticated")


async def test_cookies_of_others_are_not_unquoted(
    api: httpx2.AsyncClient, anonymous: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Python 3.11.10 that takes quadratic time, in the loop of all requests (CVE-2024-7592)."""
    unquoted, usual = list[str](), http.cookies._unquote

    def unquote(text: str) -> str:
        unquoted.append(text)
        return str(usual(text))

    monkeypatch.setattr(http.cookies, "_unquote", unquote)
    absurd = {"Cookie": 'a="{}"'.format('\\"' * 1000)}
    for method, path in (("GET", "/v1/jobs"), ("DELETE", "/v1/session"), ("GET", "/healthz")):
        await anonymous.request(method, path, headers=absurd)
    assert (await anonymous.post("/v1/session", json={"token": TOKEN}, headers=absurd)).status_code == 200
    assert (await api.get("/v1/jobs", headers=absurd)).status_code == 200
    assert unquoted == []


async def test_a_foreign_code_reads_no_tables_and_a_good_one_signs_in_once(
    api: httpx2.AsyncClient, anonymous: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is sent twice at the same time."""
    monkeypatch.setattr(session, "user_of", lambda *_: 1000)
    code = (await api.post("/v1/session/code")).json()["code"]
    looks, both = list[int](), threading.Barrier(2)

    def user_of(*_: object) -> int:
        looks.append(1)
        both.wait(PATIENCE_S)
        return 1000

    monkeypatch.setattr(session, "user_of", user_of)
    for foreign in ("nonsense", Keys(OTHER).code(1000)):
        problem(await anonymous.post("/v1/session", json={"code": foreign}), 401, "unauthenticated")
    assert looks == []
    answers = await asyncio.gather(*(anonymous.post("/v1/session", json={"code": code}) for _ in range(2)))
    assert sorted(answer.status_code for answer in answers) == [200, 401]
    problem(await anonymous.post("/v1/session", json={"code": code}), 401, "unauthenticated")
    assert len(looks) == 2
