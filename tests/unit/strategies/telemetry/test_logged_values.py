"""What a model logs in a step is summed by name, and outside of a step it is ignored."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.utils.checkpoint import checkpoint

from shardyard.strategies.activation_memory.checkpointing import kept
from shardyard.strategies.activation_memory.selective import contexts
from shardyard.strategies.logged_means import put
from shardyard.strategies.telemetry import current
from shardyard.strategies.telemetry.current import Telemetry
from shardyard.strategies.telemetry.logged_values import MOST_NAMES, LoggedValues
from shardyard.workers.dry_run.fake_tensors import FakeStore
from shardyard.workers.program.metric_log import log


def test_values_of_a_step_are_summed_and_those_before_it_are_gone() -> None:
    values = LoggedValues()
    values.add("early", 1.0)
    values.begin()
    with values.microbatch():
        values.add("aux", torch.tensor([[2.0]], requires_grad=True))
        values.add("aux", 3)
    values.add("late", 1.0)
    assert values.sums == {"aux": (5.0, 2)}
    values.begin()
    assert values.sums == {}


def test_a_backward_pass_that_runs_by_turns_with_a_forward_pass_logs_nothing() -> None:
    values = LoggedValues()
    backward = values.capture()
    with values.microbatch():
        forward = values.capture()
        values.restore(backward)
        values.add("aux", 1.0)  # of a block that is recomputed
        values.restore(forward)
        values.add("aux", 2.0)
    assert values.sums == {"aux": (2.0, 1)}


@pytest.mark.parametrize(("name", "value"), [("a", torch.ones(2)), ("", 1.0), ("a\n", 1.0), ("a" * 201, 1.0), (3, 1.0)])
def test_what_is_no_scalar_with_a_name_is_refused(name: Any, value: Any) -> None:
    values = LoggedValues()
    with values.microbatch(), pytest.raises(ValueError, match=r"log a scalar|is not a name"):
        values.add(name, value)


@pytest.fixture
def tensor_axis() -> Iterator[DeviceMesh]:
    """Of two ranks, of which the other one does not exist: an all-reduce leaves this rank's values."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        yield DeviceMesh("cpu", [0, 1])
    finally:
        dist.destroy_process_group()


def sharded(mesh: DeviceMesh, device: str = "cpu") -> DTensor:
    return DTensor.from_local(torch.ones(4, 2, device=device), mesh, [Shard(0)], run_check=False)


@pytest.mark.parametrize("device", ["cpu", "meta"])  # the host reads no value of the latter, as of a GPU
def test_a_value_of_a_sharded_parameter_is_a_plain_number_or_tensor(tensor_axis: DeviceMesh, device: str) -> None:
    values, numbers = LoggedValues(), torch.zeros(1, dtype=torch.float64, device=device)
    weight = DTensor.from_local(torch.ones((), device=device), tensor_axis, [Replicate()], run_check=False)
    with values.microbatch():
        values.add("a", weight)
    put(numbers, 0, values.sums["a"][0])
    assert device == "meta" or numbers.tolist() == [1.0]


def test_a_pass_that_runs_again_has_the_collectives_of_the_first(tensor_axis: DeviceMesh) -> None:
    values, scale = LoggedValues(), torch.tensor([1.0, 2.0], requires_grad=True)

    def block(x: torch.Tensor, logs: bool) -> torch.Tensor:
        if logs:
            values.add("sum", sharded(tensor_axis).sum())
        return (all_reduce(x * scale, "sum", tensor_axis).sin() * scale).sin()

    gradients = []
    for logs in (False, True):
        with values.microbatch():
            found = checkpoint(block, torch.ones(2), logs, use_reentrant=False, context_fn=lambda: contexts(kept))
        gradients.append(torch.autograd.grad(found.sum(), scale)[0].tolist())
    assert gradients[0] == gradients[1] and values.sums == {"sum": (8.0, 1)}


def test_names_are_bounded() -> None:
    values = LoggedValues()
    with values.microbatch():
        for at in range(MOST_NAMES):
            values.add(f"n{at}", at)
        values.add("n0", 1)
        with pytest.raises(ValueError, match="one more"):
            values.add("more", 1.0)


def test_shardyard_log_of_a_model_logs_into_the_step() -> None:
    telemetry = Telemetry()
    with current.installed(telemetry):
        log({"outside": 1.0})
        with telemetry.logged.microbatch():
            log({"aux": 2.0, "z": torch.tensor(4.0)})
            with pytest.raises(ValueError, match="leave out step"):
                log({"aux": 2.0}, step=3)
            with pytest.raises(ValueError, match="leave out step"):
                log({"aux": 2.0}, per_rank=True)
    assert telemetry.logged.sums == {"aux": (2.0, 1), "z": (4.0, 1)}
