"""A browser does not become another site's hand."""

import socket
from typing import Any

import httpx2
import pytest

from shardyard.api.app import create_app
from shardyard.api.http.origin_guard import AllowedHosts, OwnOrigin
from shardyard.service.settings import Settings

from ..conftest import SIGNED, problem
from ..routes.test_jobs import submitted

HERE = {"Host": "127.0.0.1:8400"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "192.0.2.7"}, 403),
        ({"Host": "["}, 403),
        ({"Host": ""}, 403),
        (HERE, 202),
        ({"Host": "localhost"}, 202),
        ({"Host": "LOCALHOST.:8400"}, 202),
        ({"Host": "[::1]:8400"}, 202),
        ({**HERE, "Origin": "http://127.0.0.1:8400"}, 202),
        ({"Host": "127.0.0.1", "Origin": "http://127.0.0.1:80"}, 202),
        ({**HERE, "Origin": "https://127.0.0.1:8400"}, 403),  # another server's page, which may be anybody's
        ({**HERE, "Origin": "http://127.0.0.1:9400"}, 403),
        ({**HERE, "Origin": "http://localhost:8400"}, 403),
        ({**HERE, "Origin": "http://evil.example"}, 403),
        ({**HERE, "Origin": "null"}, 403),
        ({**HERE, "Origin": "http://["}, 403),
        ({**HERE, "Sec-Fetch-Site": "same-origin", "Origin": "https://127.0.0.1:8400"}, 202),  # TLS ends before us
        ({**HERE, "Sec-Fetch-Site": "none"}, 202),
        ({**HERE, "Sec-Fetch-Site": "same-site"}, 403),  # our cookie comes along: ports do not part sites
        ({**HERE, "Sec-Fetch-Site": "cross-site"}, 403),
        ({**HERE, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
    ],
)
async def test_other_sites_are_kept_out(api: httpx2.AsyncClient, headers: dict[str, str], status: int) -> None:
    job = await submitted(api)
    answer = await api.post(f"/v1/jobs/{job['id']}/cancel", headers=headers)
    assert answer.status_code == status
    if status == 403:
        problem(answer, 403, "foreign_origin")
        assert (await api.get(f"/v1/jobs/{job['id']}")).json()["state"] == "queued"


@pytest.mark.parametrize("site", ["same-site", "cross-site"])
async def test_a_link_of_another_site_leads_to_a_page_and_to_no_data(api: httpx2.AsyncClient, site: str) -> None:
    visit = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert (await api.get("/jobs/job-1", headers=visit)).status_code == 200
    for path in ("/v1/jobs", "/openapi.json"):
        problem(await api.get(path, headers=visit), 403, "foreign_origin")
    embedded = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
    problem(await api.get("/assets/app.js", headers=embedded), 403, "foreign_origin")


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("10.1.2.3:8400", True),
        ("[2001:db8::1]:8400", True),
        ("localhost", True),
        (socket.gethostname(), True),
        ("Shardyard.Example.com", True),
        ("a.ml.example.com:443", True),
        ("ml.example.com", False),
        ("evil-ml.example.com.evil.example", False),
        ("evil.example", False),
        ("", False),
    ],
)
def test_names_beyond_loopback(name: str, allowed: bool) -> None:
    settings = Settings(host="0.0.0.0", allowed_hosts="shardyard.example.com, *.ml.example.com")
    assert AllowedHosts(settings).allows(name) is allowed


def test_any_name_where_that_is_said() -> None:
    assert AllowedHosts(Settings(host="0.0.0.0", allowed_hosts=("*",))).allows("evil.example")
    assert AllowedHosts(Settings(allowed_hosts=("behind-a-proxy.example",))).allows("behind-a-proxy.example")


async def test_probes_may_ask_under_any_name(settings: Settings, api: httpx2.AsyncClient) -> None:
    app: Any = create_app(settings.model_copy(update={"host": "0.0.0.0"}), api._transport.app.state.context.store)  # type: ignore[attr-defined]
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://pod.example") as pod:
        assert (await pod.get("/healthz")).status_code == 200
        assert (await pod.get("/readyz")).status_code == 200
        problem(await pod.get("/v1/jobs", headers=SIGNED), 403, "foreign_origin")


@pytest.mark.parametrize(
    ("headers", "ours"),
    [
        ({}, True),
        ({"Origin": "http://127.0.0.1:8400"}, True),
        ({"Origin": "http://127.0.0.1:9400"}, False),
        ({"Origin": "https://127.0.0.1:8400"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "https://127.0.0.1:8400", "Sec-Fetch-Site": "same-origin"}, True),  # TLS ends before us
        ({"Origin": "http://127.0.0.1:8400", "Sec-Fetch-Site": "same-site"}, False),
        ({"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "websocket"}, False),
        ({"Host": "evil.example"}, False),
    ],
)
async def test_a_websocket_is_opened_by_our_own_page_and_by_programs(
    settings: Settings, headers: dict[str, str], ours: bool
) -> None:
    reached: list[str] = []
    sent: list[Any] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        reached.append(scope["path"])

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    given = [(name.lower().encode(), value.encode()) for name, value in {**HERE, **headers}.items()]
    scope = {
        "type": "websocket", "scheme": "ws", "path": "/v1/jobs/x/streams", "headers": given, "query_string": b"",
        "server": ("127.0.0.1", 8400), "extensions": {"websocket.http.response": {}},
    }  # fmt: skip
    await OwnOrigin(app, AllowedHosts(settings))(scope, receive, send)
    assert bool(reached) == ours
    if not ours:
        assert (sent[0]["type"], sent[0]["status"]) == ("websocket.http.response.start", 403)
