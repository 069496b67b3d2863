"""What torch's flight recorders kept is read, and not read where a version of torch was not tried."""

import importlib
import json
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from harness.control_plane import until
from harness.examinations import DUMPS
from harness.patience import PATIENCE_S

from shardyard.strategies import torch_version
from shardyard.workers.messages.collective_record import GroupRecord
from shardyard.workers.recorder_dumps import MODULE
from shardyard.workers.trainer.flight_recorder import collectives


@pytest.fixture
def entered() -> Iterator[None]:
    """A group of one rank that ran two collectives."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        dist.all_reduce(torch.ones(2))
        dist.all_reduce(torch.ones(2))
        yield
    finally:
        dist.destroy_process_group()


@pytest.mark.usefixtures("entered")
def test_the_last_collective_of_a_group_is_found() -> None:
    # Gloo's thread notes a collective's end after the one who waits for it has gone on.
    until(lambda: not of_world().op, PATIENCE_S, "the recorder to note the end of the last collective")
    record = of_world()
    assert record.ranks == (0,) and record.entered >= 2 and not record.nccl


def of_world() -> GroupRecord:
    (record,) = [record for record in collectives() if record.group == "world"]
    return record


@pytest.mark.usefixtures("entered")
def test_another_torch_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_version, "TRIED", ("1.0.",))
    assert collectives() == []


@pytest.mark.usefixtures("entered")
def test_both_recorders_are_read_where_there_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build with NCCL has another recorder; here it returns a recorded dump, whose groups have the names of living ones."""
    name = next(iter(dist.distributed_c10d._world.pg_names.values()))  # type: ignore[attr-defined]
    dump = json.loads((DUMPS / "host_ahead.json").read_text())["ranks"][0]["dump"]
    for entry in dump["entries"]:
        entry["process_group"] = [name, "default_pg"]
    monkeypatch.setattr(
        importlib.import_module(MODULE), "_dump_nccl_trace_json", lambda: json.dumps(dump).encode(), raising=False
    )
    on_nccl, on_gloo = collectives()
    assert (on_nccl.group, on_nccl.nccl, on_nccl.entered, on_nccl.seq) == ("world", True, 74, 58)
    assert (on_gloo.group, on_gloo.nccl) == ("world (gloo)", False) and on_gloo.entered >= 2


@pytest.mark.usefixtures("entered")
def test_a_dump_of_another_format_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(MODULE)
    monkeypatch.setattr(module, "_dump_nccl_trace_json", lambda: b'{"entries": [{"process_group": 3}]}', raising=False)
    assert [record.group for record in collectives()] == ["world"]


def test_groups_that_are_gone_are_left_out(entered: None) -> None:
    dist.destroy_process_group()
    assert collectives() == []
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
