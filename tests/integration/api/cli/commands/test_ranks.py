"""`shardyard ranks` and `resources` against a served API."""

import json
from datetime import datetime
from typing import Any

import pytest
from harness.rank_metrics import rank_metrics_of, slow_rank_events

from shardyard.api.cli.commands import ranks
from shardyard.api.cli.main import run
from shardyard.api.client import Client

from ...conftest import SPEC, Gang, Plane

pytestmark = pytest.mark.usefixtures("asks_the_plane")


@pytest.fixture
def job(plane: Plane, client: Client) -> tuple[str, Gang]:
    train = {**SPEC["train"], "layout": {"data": 4, "tensor": 2}}
    found = client.submit({**SPEC, "train": train}).id
    gang = Gang(plane, found)
    gang.state("running")
    return found, gang


def test_ranks_are_listed_by_their_place_and_the_slow_one_is_named(
    job: tuple[str, Gang], client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    found, gang = job
    assert run(["ranks", found]) == 0
    printed = capsys.readouterr()
    assert printed.out == "" and f"shardyard show {found}" in printed.err
    gang.emit(("rank_metrics", rank_metrics_of(8, 10)), *slow_rank_events(8, 20, slow=3))
    assert run(["ranks", SPEC["name"]]) == 0
    printed = capsys.readouterr()
    head, *rows = [line.split() for line in printed.out.splitlines()]
    assert head == ["RANK", "DATA", "TENSOR", "STEP", "COMPUTE", "WAIT", "RESIDENT", "MEMORY", "NODE"]
    assert [row[:3] for row in rows] == [[str(rank), str(rank // 2), str(rank % 2)] for rank in range(8)]
    assert rows[3][3:] == ["200", "ms", "150", "ms", "0.0", "ms", "1.0", "GiB", "n", "slow"]
    assert [row[-1] == "slow" for row in rows] == [rank == 3 for rank in range(8)]
    assert "step 20" in printed.err and "100 ms" in printed.err and "\x1b" not in printed.out
    newest, earlier, *_, first = client.ranks(found).items
    assert printed.err.splitlines()[-1] == f"Earlier with: shardyard ranks {found} --before {newest.position}"
    assert run(["ranks", found, "--slowest", "1"]) == 0
    assert [row.split()[0] for row in capsys.readouterr().out.splitlines()[1:]] == ["3"]
    assert run(["ranks", found, "--before", str(newest.position), "--json"]) == 0
    [item] = json.loads(capsys.readouterr().out)["items"]
    assert (item["position"], item["slow"], first.step) == (earlier.position, None, 10)


def test_a_job_of_more_ranks_than_are_sampled_waits_for_no_sample(
    job: tuple[str, Gang], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found, _ = job
    for most, why in ((8, "No sample yet: the first comes"), (7, "Jobs of more than 7 ranks have no samples. See")):
        monkeypatch.setattr(ranks, "MOST_RANKS", most)
        assert run(["ranks", found]) == 0
        assert capsys.readouterr().err.startswith(why)


@pytest.mark.usefixtures("a_week_later")
def test_a_sample_of_a_job_that_ended_last_week_has_its_date(
    job: tuple[str, Gang], client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    found, gang = job
    gang.emit(("rank_metrics", rank_metrics_of(8, 10)))
    assert run(["ranks", found]) == 0
    at = datetime.fromtimestamp(client.ranks(found).items[0].ts)
    assert capsys.readouterr().err.startswith(f"{at:%Y-%m-%d %H:%M:%S} · ")


def test_512_ranks_are_one_page(plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    found = client.submit(SPEC).id  # its own layout has two: the axes of so many are not known
    gang = Gang(plane, found)
    gang.state("running")
    gang.emit(*slow_rank_events(512, 20, slow=300))
    assert run(["ranks", found, "--slowest", "2"]) == 0
    head, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert (head[:2], len(rows), rows[0][0], rows[0][-1]) == (["RANK", "STEP"], 2, "300", "slow")
    assert run(["ranks", found]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 513


PROBE: dict[str, Any] = {
    "step": 1,
    "memory": {"parameters": {"min": 3_000_000, "max": 4_200_000}},
    "traffic": {"tensor": {"all_reduce": {"calls": 12, "elements": 1000, "bytes": 2_500}}},
}


def test_resources_are_measured_beside_the_formula(
    job: tuple[str, Gang], client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    found, gang = job
    gang.emit(("probe", PROBE))
    assert run(["resources", found]) == 0
    printed = capsys.readouterr()
    lines = {tuple(line.split()[:2]): line for line in printed.out.splitlines() if line}
    assert "2.9 MiB – 4.0 MiB" in next(line for line in lines.values() if line.startswith("parameters"))
    assert "12     2.4 KiB" in lines[("tensor", "all_reduce")]
    known = client.resources(found)
    said = [one.formula or one.reason for one in known.memory] + [one.formula or one.reason for one in known.traffic]
    for text in said:
        assert (text or "") in printed.out
    assert "measured at step 1" in printed.err
    assert run(["resources", found, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == known.model_dump(mode="json")


def test_resources_before_the_first_probe(job: tuple[str, Gang], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["resources", job[0]]) == 0
    printed = capsys.readouterr()
    assert "not measured yet" in printed.err and printed.err.splitlines()[-1].endswith(f"shardyard show {job[0]}")
