"""Machines are cordoned by hand: over HTTP and from the command line."""

import json

import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import ApiError, Client
from shardyard.api.client.transport import Call
from shardyard.service.schemas.node import Node

from ..conftest import SPEC, Gang, Plane


@pytest.fixture(autouse=True)
def _one_node(plane: Plane, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """`n1`, whose host is `here`."""
    monkeypatch.setenv("SHARDYARD_URL", plane.url)
    Gang(plane, client.submit(SPEC).id)


def test_a_node_is_cordoned_and_uncordoned(client: Client) -> None:
    cordoned = client.cordon("here", seconds=3600, message="a fan is broken")
    assert not cordoned.in_use and cordoned.cordon is not None
    assert (cordoned.cordon.by_hand, cordoned.cordon.actor, cordoned.cordon.message) == (
        True,
        "local",
        "a fan is broken",
    )
    assert cordoned.cordon.until is not None
    assert client.nodes() == [cordoned]
    assert client.uncordon("n1").in_use
    assert client.uncordon("n1").cordon is None
    assert cordoned.cluster == "default"
    (told,) = client.cordons()
    assert (told.node, told.ended_by) == ("n1", "local")


@pytest.mark.parametrize(
    ("node", "options", "code", "field"),
    [
        ("n2", {}, "node_not_found", None),
        ("%00", {}, "node_not_found", None),
        ("n1", {"seconds": 0}, "invalid_request", "seconds"),
        ("n1", {"seconds": 1e12}, "invalid_request", "seconds"),
        ("n1", {"message": "\x1b[2J"}, "invalid_request", "message"),
    ],
)
def test_what_cannot_be_cordoned(
    client: Client, node: str, options: dict[str, float | str], code: str, field: str | None
) -> None:
    with pytest.raises(ApiError) as refused:
        client._ask(Call("POST", f"/v1/nodes/{node}/cordon", Node.model_validate, params=options))
    assert refused.value.code == code
    assert refused.value.errors[0].field == field and refused.value.errors[0].remedy
    assert client.nodes()[0].in_use


def test_the_command_line(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nodes", "--history"]) == 0
    assert "No node was ever cordoned" in capsys.readouterr().err
    assert run(["nodes", "--cordon", "n1", "--hours", "2", "--reason", "a [red]fan[/red]"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["HOST", "ID", "STATE", "CPU", "RANKS", "GPUS", "MEMORY", "FAULTS", "CORDON"]
    assert row.split()[:5] == ["here", "n1", "cordoned", "0/32", "0/0"], "eight cores take four ranks each"
    assert row.endswith(": a [red]fan[/red]") and "by local until " in row
    assert run(["nodes", "--uncordon", "n1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["in_use"] is True
    assert run(["nodes", "--history"]) == 0
    assert "lifted" in capsys.readouterr().out
    assert run(["nodes", "--uncordon", "nobody"]) == 1
    assert "shardyard nodes" in capsys.readouterr().err
    assert run(["nodes", "--hours", "2"]) == 1
    assert "--cordon" in capsys.readouterr().err
