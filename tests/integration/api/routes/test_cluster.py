"""The cluster's use, queue and history over HTTP, and from the command line."""

import json
import re
import shlex
import time
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from shardyard.api.cli.commands import cluster as cluster_commands
from shardyard.api.cli.main import run
from shardyard.api.client import Client
from shardyard.service.dispatch import cluster_history
from shardyard.service.ids import gang_name
from shardyard.service.store import nodes
from shardyard.service.store import queue as queue_rows

from ..conftest import SPEC, Gang, Plane, problem


async def look(plane: Plane, rows: list[dict[str, Any]], now: float) -> None:
    """A dispatcher looks at the nodes, and then records the minute."""
    async with plane.store.write() as tx:
        before: list[Mapping[str, Any]] = [dict(row) for row in await nodes.all_nodes(tx, "default")]
        await nodes.replace(tx, rows)
        await cluster_history.note_changes(tx, "default", before, rows, now)
    await cluster_history.record(plane.store, plane.settings)


def node(**changes: Any) -> dict[str, Any]:
    used = {"cpu_used": 0.0, "gpu_used": 0.0, "memory_bytes": 1, "host_memory_bytes": 1, "seen_at": 0.0}
    labels = {"gpu_model": "", "zone": "", "rail": "", "domain": "", "image": ""}
    return {"id": "n1", "host": "here", "alive": True, "cpu": 8.0, "gpu": 0.0, "gangs": [], **used, **labels, **changes}


def test_what_waits_runs_and_ran(
    plane: Plane, client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDYARD_URL", plane.url)
    assert run(["queue"]) == 0 and "No job waits." in capsys.readouterr().err
    assert run(["usage"]) == 0 and "No job had devices." in capsys.readouterr().err
    job = client.submit(SPEC)
    gang = Gang(plane, job.id)
    waits = client.submit({**SPEC, "name": "later"})
    (waiting,), (running,) = client.queue().items, client.running().items
    assert (waiting.job, waiting.position, waiting.message) == (waits.id, 1, None)
    assert (running.job, running.devices, running.state) == (job.id, 2, "placing")
    assert run(["queue"]) == 0
    assert [line.split()[1 if "later" in line else 0] for line in capsys.readouterr().out.splitlines()] == [
        "JOB",
        job.name,
        "PLACE",
        "later",
    ]
    now = time.time()
    share = {"gang": gang_name(job.id, 1), "cpu": 0.5, "gpu": 0.0}
    plane.do(look(plane, [node(gangs=[share], cpu_used=0.5)], now - 30))
    gang.state("starting")
    gang.state("running")
    gang.succeed()
    plane.do(look(plane, [node(alive=False)], now))
    use = client.cluster_use("week")
    assert (use.devices[0].used, use.holders[0].name) == ([2.0], "local")
    assert [one.name for one in client.node_use("here").curves] == ["devices/cpu/used"]
    (ran,) = client.past_attempts("day", node="n1").items
    assert (ran.job, ran.devices, round(ran.device_s)) == (job.id, 2.0, 60)
    assert [one.kind for one in client.node_changes("hour").items] == ["lost"]
    assert client.device_times().items[0].actor == "local"
    assert run(["usage", "--since", "week", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"device_times", "attempts", "changes"}
    assert run(["usage", "--node", "here"]) == 0
    printed = capsys.readouterr().out
    assert "Ray reports that it is dead; 1 gang was on it." in printed and "DEVICE TIME" in printed
    assert run(["queue", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["waiting"]["total"] == 1


def test_each_list_is_continued_where_its_page_ends(
    plane: Plane, client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDYARD_URL", plane.url)

    def printed(*command: str) -> list[str]:
        """The lines that a command prints, and those of the commands that its hints name."""
        assert run([*command]) == 0
        shown = capsys.readouterr()
        more = re.findall(r": shardyard (.+)", shown.err)
        return [*shown.out.splitlines(), *(line for one in more for line in printed(*shlex.split(one)))]

    for number in range(2):
        gang = Gang(plane, client.submit({**SPEC, "name": f"ran-{number}"}).id)
        plane.do(look(plane, [node(alive=False, host_memory_bytes=1 << 40)], time.time()))
        gang.state("running")
        gang.succeed()
    for number in range(2):
        Gang(plane, client.submit({**SPEC, "name": f"runs-{number}"}).id)
    for number in range(2):
        client.submit({**SPEC, "name": f"waits-{number}"})
    queue = "\n".join(printed("queue", "--limit", "1"))
    assert all(f"{kind}-{number}" in queue for kind in ("runs", "waits") for number in range(2))
    for most, said in ((3, "1 more wait: "), (2, "More wait: ")):
        for module in (queue_rows, cluster_commands):
            monkeypatch.setattr(module, "MOST_COUNTED", most)
        assert run(["queue", "--limit", "1"]) == 0 and said in capsys.readouterr().err.splitlines()[-1]
    usage = "\n".join(printed("usage", "--limit", "1"))
    assert "ran-0" in usage and "ran-1" in usage and usage.count("it is dead") == 2


@pytest.mark.parametrize(
    ("path", "params", "code", "field"),
    [
        ("/v1/cluster/use", {"range": "month"}, "invalid_request", "range"),
        ("/v1/cluster/attempts", {"after": "x"}, "invalid_cursor", "after"),
        ("/v1/cluster/changes", {"after": "1.0/n1/\0"}, "invalid_cursor", "after"),
        ("/v1/queue", {"after": "job-1"}, "invalid_cursor", "after"),
        ("/v1/queue/running", {"limit": 0}, "invalid_request", "limit"),
        ("/v1/queue", {"range": "day"}, "invalid_request", "range"),
    ],
)
async def test_what_is_no_range_and_no_place_is_refused(
    api: httpx2.AsyncClient, path: str, params: dict[str, str], code: str, field: str
) -> None:
    answer = await api.get(path, params=params)
    (error,) = problem(answer, answer.status_code, code)["errors"]
    assert error["field"] == field and 400 <= answer.status_code < 500


@pytest.mark.parametrize("path", ["/v1/nodes/n9/use", "/v1/cluster/attempts?node=n9", "/v1/cluster/changes?node=%00"])
async def test_an_unknown_machine_is_refused(api: httpx2.AsyncClient, path: str) -> None:
    problem(await api.get(path), 404, "node_not_found")
