"""Where a client finds its token, and to which address it sends it."""

import stat
from pathlib import Path
from typing import Any

import httpx2
import pytest

from shardyard.api import pidfile
from shardyard.api.access_token import TokenFile
from shardyard.api.cli.main import run
from shardyard.api.client import ApiError, AsyncClient, Client

from ..conftest import TOKEN, Plane, anonymously, until


def test_a_client_finds_the_data_folders_token(plane: Plane, own: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    for url in (None, plane.url, plane.url + "/"):
        with Client(url) as client:
            assert client.jobs().items == []
    assert stat.S_IMODE((plane.settings.data_dir / "control.json").stat().st_mode) == 0o600


async def test_a_client_sends_it_to_no_other(
    plane: Plane, own: TokenFile, api: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither to another address, nor to another process that listens where a control plane was."""
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
        until(lambda: anonymously("GET", f"{plane.url}/v1/jobs", headers=stale).status_code == 401)
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
