"""`shardyard compare` of programs and trainings, against a served API."""

import json
from typing import Any

import pytest
from harness.events import logged

from shardyard.api.cli.main import run
from shardyard.api.client import Client

from ...conftest import SPEC, Gang, Plane

pytestmark = pytest.mark.usefixtures("asks_the_plane")


def program(plane: Plane, client: Client, name: str, points: dict[str, Any]) -> str:
    job = client.submit({"name": name, "command": ["python", "train.py"]}).id
    gang = Gang(plane, job)
    gang.state("starting")
    gang.state("running")
    gang.emit(logged(points))
    return job


@pytest.fixture
def pair(plane: Plane, client: Client) -> tuple[str, str]:
    one = program(plane, client, "one", {"acc": [(1, 0.5), (2, 0.9), (3, 0.8)], "train/loss": [(3, 2.0)]})
    two = program(plane, client, "two", {"acc": [(1, 0.25), (2, 0.5), (3, 1.0)], "only": [(1, 0.0)]})
    return one, two


def table(shown: str, heading: str) -> dict[str, list[str]]:
    """Row → its cells, of the table below a heading."""
    lines = shown.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith(heading))
    rows: dict[str, list[str]] = {}
    for line in lines[first + 1 :]:
        if not line.strip():
            break
        name, *cells = (part.strip() for part in line.split("  ") if part.strip())
        rows[name] = cells
    return rows


def test_what_programs_logged_is_beside_each_other_with_the_difference_to_the_first(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", *pair]) == 0
    assert table(capsys.readouterr().out, "LOGGED") == {
        "acc last": ["0.8", "1 (+0.2, +25.0%)"],
        "acc lowest": ["0.5", "0.25 (-0.25, -50.0%)"],
        "acc highest": ["0.9", "1 (+0.1, +11.1%)"],
        **{f"only {kind}": ["0"] for kind in ("last", "lowest", "highest")},
        **{f"train/loss {kind}": ["2"] for kind in ("last", "lowest", "highest")},
    }
    assert run(["compare", *pair, "--baseline", "two", "--metric", "acc", "--metric", "absent", "--at-step", "2"]) == 0
    printed = capsys.readouterr()
    rows = table(printed.out, "LOGGED")
    assert rows["acc at step 2"] == ["0.9 (+0.4, +80.0%)", "0.5"]
    assert rows["acc last"] == ["0.8 (-0.2, -20.0%)", "1"] and len(rows) == 4
    assert "None of the jobs has logged absent" in printed.err


def test_a_comparison_for_programs(pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *pair, "--json", "--at-step", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["baseline"], [job["id"] for job in found["jobs"]]) == (pair[0], list(pair))
    assert sorted(found["metrics"]) == ["acc", "only", "train/loss"]
    assert found["metrics"]["acc"] == {
        "last": [0.8, 1.0],
        "last_step": [3, 3],
        "lowest": [0.5, 0.25],
        "highest": [0.9, 1.0],
        "at_step": [0.8, 1.0],
        "delta": [0.0, pytest.approx(0.2)],
        "delta_share": [0.0, pytest.approx(0.25)],
    }
    assert found["metrics"]["only"]["last"] == [None, 0.0] and found["metrics"]["only"]["delta"] == [None, None]


def test_a_training_and_a_program(
    plane: Plane, client: Client, pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The step of trainings is that of trainings alone."""
    ids = []
    for steps in (10, 5):
        ids.append(client.submit(SPEC).id)
        gang = Gang(plane, ids[-1])
        gang.state("starting")
        gang.state("running")
        gang.steps(1, steps)
    assert run(["compare", *ids, pair[0]]) == 0
    shown = capsys.readouterr().out
    assert "loss at step 5" in shown and "1.0000 (+0, +0.0%)" in shown and "1.0000 (+0.5, +100.0%)" in shown
    assert "acc last" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--baseline", "three"], "There is no job 'three'"),
        ([f"--metric=m{at}" for at in range(25)], "Choose at most 24 metrics"),
    ],
)
def test_what_cannot_be_compared(
    pair: tuple[str, str], arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", *pair, *arguments]) == 1
    assert message in capsys.readouterr().err


def test_the_baseline_is_one_of_the_jobs(
    plane: Plane, client: Client, pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    other = client.submit(SPEC).id
    assert run(["compare", *pair, "--baseline", other]) == 1
    printed = capsys.readouterr().err
    assert "is none of the jobs" in printed and "Name one of the jobs that you compare" in printed


def test_of_many_metrics_some_are_shown(plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [program(plane, client, name, {f"m{at:02}": [(1, 1.0)] for at in range(21)}) for name in ("one", "two")]
    assert run(["compare", *jobs]) == 0
    printed = capsys.readouterr()
    assert len(table(printed.out, "LOGGED")) == 60
    assert "--metric NAME" in printed.err
