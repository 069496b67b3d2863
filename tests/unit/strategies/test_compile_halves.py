"""Compiled blocks whose backward passes run in halves: each product once, compiled regions in the first half alone, code for all blocks.

The compiler's own back end generates C++ for them, which takes long. Its `aot_eager` has the same regions and the same nodes.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
import torch._functorch.config
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch.profiler import ProfilerActivity, profile

from shardyard.strategies import compile as of_blocks
from shardyard.strategies.activation_memory.checkpointing import apply_recompute
from shardyard.strategies.compile import AsItIs, apply_compile
from shardyard.strategies.layout import Refusal
from shardyard.strategies.memory_options import Recompute
from shardyard.strategies.tensor_parallel.linear import ShardedColumns

# The compiler's own: it hides the warning itself, unless warnings are errors.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")

CPU = torch.device("cpu")
SETTINGS: Any = torch._functorch.config
DONATED = SETTINGS._config["donated_buffer"]
LAYERS = 3  # of a block
PRODUCT, REGION = "aten::mm", "CompiledFunctionBackward"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.gate, self.up, self.down = (nn.Linear(*sides, bias=False) for sides in ((8, 12), (8, 12), (12, 8)))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.norm(x)
        out: Tensor = x + self.down(self.gate(rows).tanh().square() * self.up(rows))
        return out


@pytest.fixture(autouse=True)
def without_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks are compiled to operators, in a process that has compiled nothing yet."""
    monkeypatch.setattr(DONATED, "default", True)
    monkeypatch.setattr(of_blocks, "_whole_compiler", lambda: None)
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda forward, options: real(forward, backend="aot_eager", options=options))
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def _blocks(count: int = 2) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(count))).double()


def _compiled(count: int = 2, halves: bool = True) -> nn.Sequential:
    blocks = _blocks(count)
    apply_compile(list(blocks), CPU, halves)
    return blocks


def _input() -> Tensor:
    return torch.randn(4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()


def _whole(blocks: nn.Module) -> list[Tensor]:
    """The gradients of the input and of the weights."""
    x = _input()
    blocks(x).square().sum().backward()
    return _taken(x, blocks)


def _halves(blocks: nn.Module) -> tuple[list[Tensor], Counter[str], Counter[str]]:
    """The same as torch's schedules compute them, and what ran in each half."""
    x = _input()
    loss = blocks(x).square().sum()
    ((x.grad,), groups), first = _seen(lambda: stage_backward_input([loss], None, [x], blocks.parameters()))
    _, second = _seen(lambda: stage_backward_weight(blocks.parameters(), groups))
    return _taken(x, blocks), first, second


def _taken(x: Tensor, blocks: nn.Module) -> list[Tensor]:
    found = [x.grad, *(value.grad for value in blocks.parameters())]
    blocks.zero_grad()
    assert all(value is not None for value in found)
    return [value for value in found if value is not None]


def _seen(run: Callable[[], Any]) -> tuple[Any, Counter[str]]:
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        found = run()
    return found, Counter(event.name for event in profiled.events() or () if event.name in (PRODUCT, REGION))


def _assert_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_each_product_runs_once_and_a_region_in_the_first_half_alone() -> None:
    blocks = _compiled(2)
    found, first, second = _halves(blocks)
    _assert_equal(found, _whole(_blocks(2)))
    assert first[PRODUCT] == second[PRODUCT] == 2 * LAYERS
    assert first[REGION] >= 2 and second[REGION] == 0


def test_a_block_that_is_compiled_as_a_whole_would_run_all_of_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, torch may have fixed issue 161904."""
    monkeypatch.setattr(DONATED, "default", False)
    found, first, second = _halves(_compiled(1, halves=False))
    _assert_equal(found, _whole(_blocks(1)))
    assert first == {PRODUCT: 2 * LAYERS, REGION: 1} and second[PRODUCT] > LAYERS


def test_whole_passes_and_halves_may_alternate() -> None:
    blocks, expected = _compiled(1), _whole(_blocks(1))
    _assert_equal(_whole(blocks), expected)
    _assert_equal(_halves(blocks)[0], expected)
    _assert_equal(_whole(blocks), expected)


def test_backward_passes_run_on_a_thread_of_their_own_as_on_gpus() -> None:
    blocks, expected = _compiled(1), _whole(_blocks(1))
    _assert_equal(_whole(blocks), expected)
    with ThreadPoolExecutor(1) as thread:
        found, _, _ = thread.submit(_halves, blocks).result()
    _assert_equal(found, expected)


def test_equal_blocks_share_their_code() -> None:
    graphs = []
    for count in (2, 5):  # the first block's input is a leaf, which is another case
        torch._dynamo.reset()
        counters.clear()
        _whole(_compiled(count))
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] == graphs[1] > 0


def test_a_compiled_block_is_recomputed() -> None:
    expected = _whole(_blocks(2))
    blocks = _compiled(2)
    apply_recompute(list(blocks), Recompute(mode="full"), halves=True)
    found, _, second = _halves(blocks)
    _assert_equal(found, expected)
    assert second[REGION] == 0


def test_a_block_with_parameters_of_its_own_is_refused() -> None:
    block = Block()
    block.scale = nn.Parameter(torch.ones(8))
    with pytest.raises(Refusal, match="Block has parameters of its own") as refused:
        apply_compile([block], CPU, halves=True)
    assert refused.value.field == "compile"
    apply_compile([block], CPU)


def test_names_of_parameters_do_not_change() -> None:
    assert dict(_compiled(1).named_parameters()).keys() == dict(_blocks(1).named_parameters()).keys()


class Columns(ShardedColumns):
    """Those of one rank."""

    def __init__(self) -> None:
        pass

    def __call__(self, x: Tensor, layers: Any) -> Any:
        assert not torch.compiler.is_compiling()
        return [x @ layer.weight.t() for layer in layers]


class Sharded(nn.Module):
    """Multiplies by the weights of several layers at once."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(2))
        self.columns = Columns()

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.columns(x, list(self.layers))
        out: Tensor = one.tanh() * other
        return out


def test_sharded_columns_run_as_they_are() -> None:
    kinds = partial(torch.manual_seed, 0)
    kinds()
    plain = Sharded().double()
    kinds()
    compiled = Sharded().double()
    apply_compile([compiled], CPU, halves=True)
    assert isinstance(compiled.columns, AsItIs)
    found, first, second = _halves(compiled)
    _assert_equal(found, _whole(plain))
    assert first[PRODUCT] == second[PRODUCT] == 2 and second[REGION] == 0
