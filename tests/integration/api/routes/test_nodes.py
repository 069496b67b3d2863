"""Machines are cordoned by hand: over HTTP and from the command line."""

import json
import time
from typing import Any

import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import ApiError, Client
from shardyard.api.client.transport import Call
from shardyard.service.ids import gang_name
from shardyard.service.schemas.node import Node
from shardyard.service.store import nodes

from ..conftest import SPEC, Gang, Plane
from .test_submit import train


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
    (reported,) = client.cordons()
    assert (reported.node, reported.ended_by) == ("n1", "local")


def test_a_request_that_is_repeated_makes_no_second_cordon(client: Client) -> None:
    again = [client.cordon("n1", seconds=3600, message="a fan").cordon for _ in range(2)][1]
    assert client.cordons() == [again]


@pytest.mark.parametrize(
    ("node", "options", "code", "field"),
    [
        ("n2", {}, "node_not_found", None),
        ("%00", {}, "node_not_found", None),
        ("n1", {"seconds": 0}, "invalid_request", "seconds"),
        ("n1", {"seconds": 1e12}, "invalid_request", "seconds"),
        ("n1", {"seconds": "nan"}, "invalid_request", "seconds"),
        ("n1", {"message": "\x1b[2J"}, "invalid_request", "message"),
    ],
)
def test_what_cannot_be_cordoned(
    client: Client, node: str, options: dict[str, float | str], code: str, field: str | None
) -> None:
    with pytest.raises(ApiError) as refused:
        client._send(Call("POST", f"/v1/nodes/{node}/cordon", Node.model_validate, params=options))
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
    assert run(["nodes", "--uncordon", "absent"]) == 1
    assert "shardyard nodes" in capsys.readouterr().err
    assert run(["nodes", "--hours", "2"]) == 1
    assert "--cordon" in capsys.readouterr().err


def test_machines_name_the_jobs_that_hold_them(plane: Plane, client: Client) -> None:
    fixed = client.submit({**SPEC, "name": "fixed"}).id
    elastic = client.submit({**train(layout={"data": {"min": 1, "max": 4}}), "name": "elastic"}).id
    gangs = [
        {"gang": gang_name(fixed, 1), "cpu": 0.5, "gpu": 0.0},
        {"gang": gang_name(elastic, 2), "cpu": 1.0, "gpu": 0.0},
        {"gang": gang_name("job-forgotten", 1), "cpu": 0.25, "gpu": 0.0},
    ]
    seen(plane, gangs=gangs, cpu_used=1.75)
    [node] = client.nodes()
    assert [(one.kind, one.all, one.free) for one in node.devices] == [("cpu", 16, 9), ("cuda", 2, 2)]
    largest, smallest = node.held
    assert (largest.job, largest.name, largest.state, largest.ranks) == (elastic, "elastic", "queued", 4)
    assert largest.elastic is not None and (largest.elastic.min, largest.elastic.max) == (1, 4)
    assert (smallest.job, smallest.ranks, smallest.elastic) == (fixed, 2, None)
    seen(plane, gangs=gangs, alive=False)
    assert client.nodes()[0].held == []


def test_a_crowded_machine_names_the_largest_gangs(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC).id
    gangs = [{"gang": gang_name(job, number), "cpu": 0.25, "gpu": 0.0} for number in range(1, 71)]
    seen(plane, gangs=gangs)
    [node] = client.nodes()
    assert (len(node.held), node.held_more) == (64, 6)


def seen(plane: Plane, **changes: Any) -> None:
    """A dispatcher's last look at a node with 4 cores and 2 GPUs."""
    row = {"id": "n1", "host": "here", "alive": True, "cpu": 4.0, "gpu": 2.0, "cpu_used": 0.0, "gpu_used": 0.0}

    async def write() -> None:
        async with plane.store.write() as tx:
            await nodes.replace(tx, [{**row, "memory_bytes": 1 << 30, "seen_at": time.time(), **changes}])

    plane.do(write())


def test_the_labels_that_a_machine_has_are_further_columns(
    plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    seen(plane, gpu_model="H100", zone="eu-1a", domain="rack-[7]")
    [node] = client.nodes()
    assert (node.gpu_model, node.zone, node.rail, node.domain) == ("H100", "eu-1a", "", "rack-[7]")
    assert run(["nodes"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[-4:] == ["CORDON", "GPU", "ZONE", "DOMAIN"]
    assert row.split()[-3:] == ["H100", "eu-1a", "rack-[7]"]
