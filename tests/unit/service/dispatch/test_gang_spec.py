from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.service.dispatch.gang_spec import gang_spec, neighbours
from shardyard.service.settings import Settings
from shardyard.strategies.layout import Layout


@pytest.mark.parametrize(
    ("layout", "sizes"),
    [
        ({"data": 4}, ()),
        ({"data": 4, "pipeline": 2, "tensor": 2}, (8, 2)),
        ({"data": 4, "context": 2, "pipeline": 2}, (8, 2)),
        ({"data": 2, "context": 8, "ulysses": 2, "ring_window": 2, "tensor": 2}, (16, 8, 2)),
        ({"data": 2, "context": 8, "ulysses": 2, "ring_window": 2, "context_inner": "ring"}, (8, 2)),
        ({"data": 8, "zero": 3, "shard": 4, "expert": 2}, (4, 2)),
        (
            {"data": 8, "tensor": 2, "zero": 3, "zero_plus_plus": {"secondary": 4, "gradients": "int4", "node": 2}},
            (8, 4, 2),
        ),
    ],
)
def test_the_groups_of_neighbours_that_exchange_most(layout: dict[str, Any], sizes: tuple[int, ...]) -> None:
    assert neighbours(Layout.model_validate(layout)) == sizes


def test_a_gang_gets_what_its_spec_asks_of_nodes_and_environment(tmp_path: Path) -> None:
    resources = {"gpu": "H100", "within": "zone", "env": {"NCCL_DEBUG": "INFO"}}
    asked = _gang(tmp_path, {"resources": resources})
    assert (asked.gpu, asked.within, asked.env) == ("H100", "zone", {"NCCL_DEBUG": "INFO"})
    stored_before = _gang(tmp_path, {"resources": {"device": "cuda"}})
    assert (stored_before.gpu, stored_before.within, stored_before.env) == ("", None, {})
    assert _gang(tmp_path, {"env": {"image": "nemo"}}).image == "nemo"
    assert (asked.image, _gang(tmp_path, {"env": None}).image, _gang(tmp_path, {"env": {"python": ["a"]}}).image) == (
        "",
        "",
        "",
    )


def test_the_folder_for_state_on_a_disk_is_the_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _gang(tmp_path, {}).run["scratch"] is None
    monkeypatch.setenv("SHARDYARD_SCRATCH", str(tmp_path / "nvme"))
    assert _gang(tmp_path, {}).run["scratch"] == str(tmp_path / "nvme")
    with pytest.raises(ValidationError, match="scratch"):
        _gang(tmp_path, {"train": {"steps": 1, "global_batch": 2, "scratch": "/"}})


@pytest.mark.parametrize(
    ("servers", "more", "workers"),
    [
        ({"servers": 1, "mode": "stale", "bound": 2}, {}, 3),
        ({"servers": 2, "mode": "async"}, {"snapshot": {"every": 9}}, 3),
        ({"servers": 1, "mode": "async"}, {"snapshot": {"every": 0}}, 0),  # none could return
        ({"servers": 1}, {}, 0),
    ],
)
def test_workers_with_clocks_of_their_own_are_counted(
    tmp_path: Path, servers: dict[str, Any], more: dict[str, Any], workers: int
) -> None:
    train = {"steps": 1, "global_batch": 3, "layout": {"data": 3, "parameter_server": servers}, **more}
    assert _gang(tmp_path, {"train": train}).own_clocks == workers


def _gang(folder: Path, spec: dict[str, Any]) -> Any:
    train = {"steps": 1, "global_batch": 2}
    job = {"id": "a", "spec": {"train": train, **spec}, "resume": None, "world_size": 1, "tensor": 1}
    job |= {"created_at": 0.0, "elastic": None}
    attempt = {"number": 1, "device": "cuda", "gang": "shardyard-a-1"}
    return gang_spec(job, attempt, Settings(data_dir=folder))  # type: ignore[arg-type]
