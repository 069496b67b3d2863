"""`shardyard sweeps`, and `shardyard submit` of a sweep."""

import json
from pathlib import Path

import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import Client
from shardyard.service.store import sweeps as rows

from ...conftest import Plane

SWEEP = """
name: tune
train: {steps: 20, global_batch: 8, data: {seq_len: 64}}
sweep:
  parameters: {train.optimizer.lr: [0.001, 0.003], train.seed: [1, 2]}
  search: grid
  asha: {min_steps: 5}
"""


def test_a_sweep_is_submitted_listed_shown_and_cancelled(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = ["--url", client.url]
    assert run(["sweeps", *url]) == 0
    assert "shardyard submit" in capsys.readouterr().err
    (tmp_path / "tune.yaml").write_text(SWEEP)
    assert run(["submit", str(tmp_path / "tune.yaml"), *url]) == 0
    printed = capsys.readouterr()
    sweep = client.sweep("tune")
    assert f"{sweep.id}  tune  running  4 trials" in printed.out and f"shardyard sweeps {sweep.id}" in printed.err
    assert run(["sweeps", "tune", *url]) == 0
    shown = capsys.readouterr().out
    for part in ("grid, 4 trials, at most 8 at once", "at steps 5, 15", "4 waiting", "train.optimizer.lr", "0.003"):
        assert part in shown
    assert run(["sweeps", "tune", "--json", *url]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["parameters"]["train.seed"] for one in found["items"]] == [1, 2, 1, 2]
    assert run(["sweeps", "tune", "--cancel", *url]) == 0
    assert "cancelling" in capsys.readouterr().out
    assert run(["sweeps", *url]) == 0
    listed = capsys.readouterr().out
    assert sweep.id in listed and "0/4" in listed
    frame = client.trials("tune").to_pandas()
    assert list(frame["train.seed"]) == [1, 2, 1, 2] and frame.index.name == "number"


def test_values_are_shown_as_a_spec_has_them_and_undecided_ones_not_at_all(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    base = {"train": {"steps": 20, "global_batch": 8, "data": {"seq_len": 64}}}
    values = {"train.seed": [8192], "train.deterministic": [True], "resources.env.LAYERS": ["[conv,/fc]"]}
    for search in ("grid", "optuna"):
        client.submit_sweep({**base, "name": search, "sweep": {"parameters": values, "search": search, "trials": 1}})
    assert run(["sweeps", "grid", "--url", client.url]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[2:] == ["8192", "true", "[conv,/fc]"]
    assert run(["sweeps", "optuna", "--url", client.url]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["0", "waiting"]


def test_trials_that_ran_to_their_end_are_ordered_by_the_metric_alone(
    plane: Plane, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program may end by itself before the last rung. Of those that have not ended, higher rungs come first."""
    (tmp_path / "tune.yaml").write_text(SWEEP)
    assert run(["submit", str(tmp_path / "tune.yaml"), "--url", client.url]) == 0
    sweep = client.sweep("tune").id

    async def store() -> None:
        async with plane.store.write() as tx:
            for number, rungs, value, standing in (
                (0, [3.0], 3.0, "paused"),
                (1, [5.0, 5.0], 5.0, "paused"),
                (2, [9.0, 9.0], 9.0, "done"),
                (3, [9.0], 8.0, "done"),
            ):
                outcome = "succeeded" if standing == "done" else None
                change = {"rungs": rungs, "value": value, "standing": standing, "outcome": outcome}
                await rows.change(tx, sweep, number, change)

    plane.do(store())
    capsys.readouterr()
    assert run(["sweeps", "tune", "--url", client.url]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[-4:]] == ["3", "2", "1", "0"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sweeps", "none"], "shardyard sweeps"),
        (["sweeps", "--cancel"], "--cancel"),
        (["sweeps", "tune", "--cursor", "sweep-1"], "leave out"),
        (["submit", "tune.yaml", "--dry-run"], "no dry run"),
    ],
)
def test_a_wrong_command_line_says_what_to_do(
    client: Client,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    says: str,
) -> None:
    (tmp_path / "tune.yaml").write_text(SWEEP)
    monkeypatch.chdir(tmp_path)
    assert run([*arguments, "--url", client.url]) != 0
    assert says in capsys.readouterr().err


def test_trials_that_repeated_their_steps_are_counted(
    plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    base = {"name": "tune", "train": {"steps": 20, "global_batch": 8, "data": {"seq_len": 64}}}
    sweep = client.submit_sweep({**base, "sweep": {"parameters": {"train.seed": [1, 2]}, "search": "grid"}})

    async def note() -> None:
        async with plane.store.write() as tx:
            await rows.change(tx, sweep.id, 1, {"message": "It had no checkpoint."})

    assert run(["sweeps", "tune", "--url", client.url]) == 0
    assert "warning" not in capsys.readouterr().out
    plane.do(note())
    assert run(["sweeps", "tune", "--url", client.url]) == 0
    shown = capsys.readouterr().out
    assert "warning" in shown and "of 1 trial: It had no checkpoint." in shown
