"""A training without the service reads its spec as a submission does."""

import json
from pathlib import Path
from typing import Any

import pytest

from shardyard.workers.local import main
from shardyard.workers.spec import Run, TrainSpec


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that torchrun has not started. What it sets for itself ends with the test."""
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def read(spec: Path, out: Path) -> TrainSpec:
    """What would be trained."""
    found = []

    def work(run: Run, *_: Any) -> None:
        found.append(run.train)

    assert main([str(spec), "--device", "cpu", "--out", str(out)], work) == 0
    return found[0]


def test_numbers_of_a_factory_arrive_as_numbers(tmp_path: Path) -> None:
    """`run --local` and `verify` hand the ranks a file of JSON."""
    model = {"import": "own:make", "args": {"eps": 1e-05}}
    data = {"source": "own:source", "options": {"mark": "😀", "least": 1e-05}}
    spec = tmp_path / "own.json"
    spec.write_text(json.dumps({"name": "own", "train": {"model": model, "data": data, "steps": 1, "global_batch": 1}}))
    train = read(spec, tmp_path)
    assert train.model.args == model["args"]
    assert train.data.options == data["options"]


def test_yaml_means_what_it_means_in_a_submission(tmp_path: Path) -> None:
    spec = tmp_path / "own.yaml"
    spec.write_text(
        "\ufefftrain:\n  model: { import: 'own:make', args: { eps: 1e-5, gate: on, at: 1:30 } }\n"
        "  data: { source: 'own:source' }\n  steps: 1\n  global_batch: 1\n",
        encoding="utf-8",
    )
    assert read(spec, tmp_path).model.args == {"eps": 1e-5, "gate": "on", "at": "1:30"}
