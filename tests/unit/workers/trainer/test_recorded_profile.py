"""What torch records: the operators of this thread and of its backward pass. A profiler that runs already is left alone."""

import json
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from shardyard.workers.trainer.recorded_profile import NotRecorded, begun

CPU = torch.device("cpu")


def test_operators_have_names_and_shapes(tmp_path: Path) -> None:
    weight = torch.randn(8, 4, requires_grad=True)
    recording = begun("operators", CPU)
    (torch.randn(3, 8) @ weight).sum().backward()
    recording.end()
    torch.linalg.norm(weight.detach())
    recording.write(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    products = [event for event in events if event.get("name") == "aten::mm"]
    assert [one["args"]["Input Dims"][:2] for one in products] == [[[3, 8], [8, 4]], [[8, 3], [3, 4]]]
    assert not [event for event in events if event.get("name") == "aten::linalg_vector_norm"]


def test_memory_of_a_cpu_is_refused() -> None:
    with pytest.raises(NotRecorded, match="CUDA devices only"):
        begun("memory", CPU)


def test_a_profiler_of_the_users_own_goes_on() -> None:
    with profile(activities=[ProfilerActivity.CPU]) as own:
        with pytest.raises(NotRecorded, match="own code"):
            begun("operators", CPU)
        torch.ones(2).exp()
    assert "aten::exp" in {event.key for event in own.key_averages()}
