"""`shardyard open` and `shardyard token` against a served API."""

from pathlib import Path
from typing import Any

import pytest

from shardyard.api.access_token import TokenFile
from shardyard.api.cli.main import run
from shardyard.api.client import Client

from ...conftest import SPEC, TOKEN, Plane, anonymously


def test_a_command_without_the_token_says_what_to_do(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SHARDYARD_TOKEN")
    assert run(["list", "--url", plane.url]) == 1
    printed = capsys.readouterr().err
    assert "access token" in printed and "shardyard token" in printed and "SHARDYARD_TOKEN" in printed


def test_open_prints_a_link_that_signs_in(
    plane: Plane, client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHARDYARD_URL", plane.url)
    job = client.submit(SPEC)
    assert run(["open", "tiny", "--no-browser"]) == 0
    link = capsys.readouterr().out.strip()
    page, _, code = link.partition("#code=")
    assert page == f"{plane.url}/jobs/{job.id}" and TOKEN not in link
    assert anonymously("POST", f"{plane.url}/v1/session", json={"code": code}).status_code == 200


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
