"""`shardyard nodes`: a cordon, and the record of it."""

import json

import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import Client

from ...conftest import SPEC, Gang, Plane


def test_a_cordon_is_made_before_its_record_is_printed(
    plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    Gang(plane, client.submit(SPEC).id)  # on a node
    url = ["--url", client.url]
    assert run(["nodes", "--cordon", "here", "--reason", "bad DIMM", "--history", "--json", *url]) == 0
    (made,) = json.loads(capsys.readouterr().out)
    assert (made["message"], made["ended_at"]) == ("bad DIMM", None)
    assert client.nodes()[0].cordon is not None
    assert run(["nodes", "--uncordon", "here", "--history", *url]) == 0
    shown = capsys.readouterr().out
    assert "bad DIMM" in shown and "lifted" in shown
    assert client.nodes()[0].cordon is None
    for limit, more in ((1, True), (2, False)):
        assert run(["nodes", "--history", "--limit", str(limit), *url]) == 0
        assert ("These are the newest 1; --limit N lists more" in capsys.readouterr().err) is more
