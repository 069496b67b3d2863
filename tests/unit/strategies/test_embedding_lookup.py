"""What parameters learn from one large micro-batch in 16 bits is float64's but for one rounding, layer by layer."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.utils._python_dispatch import TorchDispatchMode

from shardyard.strategies.embedding_lookup import FEW, Embedding, _kind, _PaddedLookup, lookup
from shardyard.workers.dry_run.fake_tensors import FakeStore
from shardyard.workers.models.decoder import PositionTable
from shardyard.workers.models.norms import LayerNorm, RMSNorm

TOKENS, DIM, FEW_ROWS = 8192, 32, 14
#: Of one rounding of inputs, and one of the result: bf16 keeps 8 bits, fp16 11.
BOUNDS = {torch.bfloat16: 0.005, torch.float16: 0.001}

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "embedding": lambda: Embedding(256, DIM),
    "positions in documents": lambda: PositionTable(256, DIM),
    "layer_norm": lambda: LayerNorm(DIM, 1e-5),
    "rms_norm": lambda: RMSNorm(DIM, 1e-5),
    "linear": lambda: nn.Linear(DIM, 48),
    "positions": lambda: Added(DIM),
}


class Added(nn.Module):
    """Learned positions, which every sequence of a batch adds."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(64, dim)

    def forward(self, x: Tensor) -> Tensor:
        hidden = x.view(-1, 64, DIM)
        return (hidden + self.table(torch.arange(64).unsqueeze(0))).view(-1, DIM)


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_learns_what_it_does_in_float64(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]().to(dtype)
    exact = copy.deepcopy(layer).double()
    for parameter in layer.parameters():
        assert parameter.dtype == dtype
    looks_up = isinstance(layer, nn.Embedding)
    given = torch.randint(0, FEW_ROWS, (TOKENS,)) if looks_up else torch.randn(TOKENS, DIM).to(dtype)
    out = layer(given)
    grad = (0.1 * torch.randn(out.shape) + 0.05).to(dtype)  # sums that grow with the tokens
    out.backward(grad)
    exact(given if looks_up else given.double()).backward(grad.double())
    for (which, found), expected in zip(layer.named_parameters(), exact.parameters(), strict=True):
        assert found.grad is not None and found.grad.dtype == dtype and expected.grad is not None
        assert apart(found.grad, expected.grad) < BOUNDS[dtype], which


@pytest.mark.parametrize("shape", [(5,), (2, 7), (2, 3, 4)], ids=str)
def test_rows_and_gradients_have_their_places(shape: tuple[int, ...]) -> None:
    tokens = torch.randint(0, 20, shape)
    table = torch.randn(20, 3).to(torch.bfloat16)
    found, expected = table.clone().requires_grad_(), table.double().requires_grad_()
    one, other = lookup(tokens, found), lookup(tokens, expected)
    assert torch.equal(one.double(), other)
    grad = torch.randn(one.shape).to(torch.bfloat16)
    one.backward(grad)
    other.backward(grad.double())
    assert found.grad is not None and expected.grad is not None
    torch.testing.assert_close(found.grad, expected.grad.to(torch.bfloat16))


def test_few_tokens_get_the_kernel_of_many() -> None:
    """CUDA's kernel for few adds up in bf16."""
    counts: list[int] = []

    class Counted(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.embedding_dense_backward.default:
                counts.append(args[1].numel())
            return func(*args, **(kwargs or {}))

    tokens = torch.randint(0, 20, (2, 7))
    found, expected = (torch.zeros(20, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    grad = torch.randn(2, 7, 3, dtype=torch.float64)
    with Counted():
        _PaddedLookup.apply(tokens, found, None).backward(grad)  # type: ignore[no-untyped-call]
    lookup(tokens, expected).backward(grad)
    assert found.grad is not None and expected.grad is not None
    torch.testing.assert_close(found.grad, expected.grad)
    assert counts == [FEW + 1]
    with FakeTensorMode():
        table = torch.empty(20, 3, dtype=torch.bfloat16, device="cuda")
        kinds = [_kind(torch.empty(size), table) for size in (1, FEW, FEW + 1)]
        assert (kinds, _kind(torch.empty(1), table.float())) == ([_PaddedLookup, _PaddedLookup, None], None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_row_of_padding_has_no_gradient(dtype: torch.dtype) -> None:
    found, expected = (kind(5, 3, padding_idx=-4) for kind in (Embedding, nn.Embedding))
    found.load_state_dict(expected.state_dict())
    for layer in (found.to(dtype), expected.to(dtype)):
        layer(torch.tensor([[1, 1, 2]])).sum().backward()
    assert found.weight.grad is not None and expected.weight.grad is not None
    torch.testing.assert_close(found.weight.grad, expected.weight.grad)
    assert not found.weight.grad[1].any() and found.weight.grad[2].all()


def test_the_kernel_of_many_skips_padding_too() -> None:
    table = torch.zeros(5, 3, dtype=torch.float64, requires_grad=True)
    _PaddedLookup.apply(torch.tensor([1, 1, 2]), table, 1).sum().backward()  # type: ignore[no-untyped-call]
    assert table.grad is not None and table.grad[2].all() and table.grad.sum() == 3


@pytest.mark.parametrize("option", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}, {"sparse": True}], ids=str)
def test_options_of_torch_that_would_be_ignored_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"Embedding has no {next(iter(option))}: leave it out"):
        Embedding(5, 3, **option)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("tokens", [FEW, FEW + 1])
def test_a_gpu_sums_the_gradients_of_few_and_of_many_tokens_in_fp32(tokens: int) -> None:
    torch.manual_seed(0)
    layer = Embedding(256, DIM, device="cuda", dtype=torch.bfloat16)
    exact = copy.deepcopy(layer).double()
    given = torch.randint(0, FEW_ROWS, (tokens,), device="cuda")
    grad = (0.1 * torch.randn(tokens, DIM, device="cuda") + 0.05).bfloat16()
    layer(given).backward(grad)
    exact(given).backward(grad.double())
    assert apart(layer.weight.grad, exact.weight.grad) < BOUNDS[torch.bfloat16]


def apart(found: Any, exact: Any) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize("shape", [(5,), (2, 7)], ids=str)
def test_a_table_whose_columns_its_ranks_do_not_divide_has_rows_of_its_width(rank: int, shape: tuple[int, ...]) -> None:
    """Of 34 columns the last rank has 7, of which torch would conclude that there are 28."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=4)
    try:
        mesh = init_device_mesh("cpu", (4,))
        table = DTensor.from_local(
            torch.zeros(20, 7 if rank == 3 else 9, dtype=torch.bfloat16),
            mesh,
            [Shard(1)],
            shape=torch.Size((20, 34)),
            stride=(34, 1),
        )
        tokens = DTensor.from_local(torch.zeros(shape, dtype=torch.int64), mesh, [Replicate()])
        found = lookup(tokens, table)
        assert isinstance(found, DTensor) and found.shape == (*shape, 34) and found.is_contiguous()
        assert found.placements == (Shard(len(shape)),)
    finally:
        dist.destroy_process_group()
