"""`shardyard edit`, and the notes in `shardyard show`."""

import io
import json

import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import Client

from ...conftest import SPEC


def test_a_command_line_changes_name_labels_and_notes(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job, url = client.submit({**SPEC, "labels": {"team": "a", "old": "1"}}), ["--url", client.url]
    changes = ["--name", "other", "--label", "team=b", "--label", "x=1=2", "--remove-label", "old"]
    assert run(["edit", "tiny", *changes, *url]) == 0
    assert f"{job.id}  other" in capsys.readouterr().out
    edited = job.refresh()
    assert (edited.name, edited.labels, edited.notes) == ("other", {"team": "b", "x": "1=2"}, "")
    monkeypatch.setattr("sys.stdin", io.StringIO("One [b]line[/b].\n\nAnother\x1b[2J.\n"))
    assert run(["edit", "other", "--notes", "-", "--json", *url]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == "One [b]line[/b].\n\nAnother\x1b[2J.\n"
    assert run(["show", "other", *url]) == 0
    shown = capsys.readouterr().out
    assert "notes\n  One [b]line[/b].\n  \n  Another[2J.\n" in shown and "team=b, x=1=2" in shown


def test_a_wrong_command_line_says_what_to_write(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = client.submit(SPEC)
    binary = io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8")
    for arguments, stdin, says in (
        ([], io.StringIO(), "at least one of --name"),
        (["--label", "team"], io.StringIO(), "Such as team=search."),
        (["--label", "a b=1"], io.StringIO(), "labels.a b"),
        (["--remove-label", "none"], io.StringIO(), "no label 'none'"),
        (["--name", "Not A Name"], io.StringIO(), "name"),
        (["--notes", "-"], binary, "not text in UTF-8"),
        (["--notes", "-"], io.StringIO("x" * 20_000), "at most 16384 characters"),
    ):
        monkeypatch.setattr("sys.stdin", stdin)
        assert run(["edit", job.id, *arguments, "--url", client.url]) != 0
        assert says in capsys.readouterr().err
    assert job.refresh() == job
