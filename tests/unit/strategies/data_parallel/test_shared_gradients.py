"""Which gradients of a backward pass have their memory alone."""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.testing._internal.distributed.fake_pg import FakeStore

from shardyard.strategies import torch_version
from shardyard.strategies.data_parallel.buckets import Bucket, BucketOrder
from shardyard.strategies.data_parallel.shared_gradients import is_shared, unshare
from shardyard.strategies.param_shard import Parameter

IDS = torch.arange(6).view(2, 3)


def shared(loss: Callable[..., torch.Tensor], *values: nn.Parameter) -> list[bool]:
    """Of each parameter, as its hook finds it during the pass."""
    found: dict[nn.Parameter, bool] = {}
    for value in values:
        value.register_post_accumulate_grad_hook(lambda one: found.update({one: is_shared(one.grad)}))  # type: ignore[arg-type]
    loss(*values).backward()
    return [found[value] for value in values]


def draw(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape))


def test_usual_layers_share_nothing() -> None:
    """Otherwise each of their gradients would be copied."""
    layer, norm, table, weight = nn.Linear(4, 4), nn.LayerNorm(4), nn.Embedding(6, 4), draw(3, 4)

    def loss(*_: nn.Parameter) -> torch.Tensor:
        x = norm(layer(table(IDS))) + weight
        return (torch.einsum("bnd,nd->bn", x, weight) + (x @ weight.t()).sum(-1)).pow(2).sum()

    assert shared(loss, layer.weight, layer.bias, norm.weight, norm.bias, table.weight, weight) == [False] * 6


def test_a_view_that_is_added_to_a_state_shares_its_gradient() -> None:
    def loss(states: nn.Parameter, positions: nn.Parameter) -> torch.Tensor:
        return (states.tanh() + positions.unsqueeze(0)).pow(2).sum()

    assert shared(loss, draw(1, 3, 4), draw(3, 4)) == [False, True]


def test_two_views_that_are_added_share_theirs_until_each_has_its_own() -> None:
    one, other = draw(12), draw(12)
    (one.view(3, 4) + other.view(3, 4)).pow(2).sum().backward()
    assert one.grad is not None and other.grad is not None and is_shared(one.grad) and is_shared(other.grad)
    expected = one.grad.clone()
    unshare(one)
    assert not is_shared(one.grad) and not is_shared(other.grad)
    one.grad.zero_()
    assert torch.equal(other.grad, expected)


@pytest.fixture
def tensor_ranks() -> Iterator[DeviceMesh]:
    """Two of them, on the fake backend, which computes nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


def test_a_partial_gradient_of_its_own_is_partial(tensor_ranks: DeviceMesh) -> None:
    """Summed over the ranks, each micro-batch's would be sent by itself."""
    value = nn.Parameter(DTensor.from_local(torch.zeros(3), tensor_ranks, [Replicate()]))
    ones = torch.ones(3)
    value.grad = DTensor.from_local(ones, tensor_ranks, [Partial()], run_check=False)
    unshare(value)
    assert isinstance(value.grad, DTensor) and value.grad.placements == (Partial(),)
    ones.zero_()
    assert value.grad.to_local().tolist() == [1, 1, 1]


def test_partial_gradients_that_wait_for_the_last_micro_batch_share_nothing(tensor_ranks: DeviceMesh) -> None:
    """Each of two vectors that are added up has the same memory; the next micro-batch's sums would count twice."""
    one, other = (nn.Parameter(DTensor.from_local(torch.ones(3), tensor_ranks, [Replicate()])) for _ in range(2))
    bucket = Bucket([Parameter(name, value, (), (3,)) for name, value in (("one", one), ("other", other))], 2)
    order = BucketOrder([bucket], lambda _: None)
    order.arm(sending=False)
    local, more = (value.to_local(grad_placements=[Partial()]) for value in (one, other))
    (local + more).pow(2).sum().backward()
    assert isinstance(one.grad, DTensor) and isinstance(other.grad, DTensor)
    assert not is_shared(one.grad) and not is_shared(other.grad)
    assert one.grad.placements == (Partial(),)


def test_another_torch_copies_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_version, "TRIED", ("1.0.",))
    assert is_shared(torch.ones(2))
