"""The halves of an fp8 layer's backward pass equal torchao's whole one to the bit, and each product runs once."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torchao.float8.float8_training_tensor import GemmInputRole

from shardyard.strategies import fp8_halves
from shardyard.strategies.activation_memory.checkpointing import apply_recompute
from shardyard.strategies.dispatch_mode import DispatchMode, operator_name
from shardyard.strategies.fp8 import apply_fp8
from shardyard.strategies.memory_options import Recompute
from shardyard.strategies.precision import PRECISIONS

EMULATED = replace(PRECISIONS["fp8"], emulated=True)
CPU = torch.device("cpu")
INPUT, WEIGHT, GRAD = GemmInputRole.INPUT, GemmInputRole.WEIGHT, GemmInputRole.GRAD_OUTPUT
FORWARD, OF_INPUT, OF_WEIGHT = (INPUT, WEIGHT), (GRAD, WEIGHT), (GRAD, INPUT)
LAYERS = 3
#: Products of a block's forward pass that are computed again. The backward pass does not read the result of the last layer.
AGAIN = {"full": LAYERS - 1, "selective": 0}


class Block(nn.Module):
    """Two layers share an input; one has a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.gate, self.up, self.down = (nn.Linear(*sides) for sides in ((32, 48), (32, 48), (48, 32)))
        self.gate.bias = self.down.bias = None

    def forward(self, x: Tensor) -> Tensor:
        rows = self.norm(x)
        out: Tensor = x + self.down(self.gate(rows).tanh() * self.up(rows))
        return out


def _block(halves: bool, kind: Callable[[], nn.Module] = Block, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    torch.manual_seed(0)
    block = kind().to(dtype)
    apply_fp8([block], EMULATED, CPU, halves)
    return block


def _input(dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(2, 8, 32, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()


def _whole(block: nn.Module, x: Tensor) -> list[Tensor]:
    """The gradients of the input and of the parameters that are trained."""
    block(x).square().sum().backward()
    return _grads(x, block)


def _halves(block: nn.Module, x: Tensor, between: Callable[[], None] = lambda: None) -> list[Tensor]:
    """The same as torch's schedules compute them. `between` is called after the first half."""
    (x.grad, *_), groups = stage_backward_input([block(x).square().sum()], None, [x], _trained(block))
    between()
    stage_backward_weight(_trained(block), groups)
    return _grads(x, block)


def _trained(block: nn.Module) -> Iterator[nn.Parameter]:
    return (value for value in block.parameters() if value.requires_grad)


def _grads(x: Tensor, block: nn.Module) -> list[Tensor]:
    found = [x.grad, *(value.grad for value in _trained(block))]
    assert all(value is not None for value in found)
    return [value for value in found if value is not None]


def _assert_same_bits(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


class Products(DispatchMode):
    """Counts products of 8-bit values by what is multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[Any] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operator_name(func) == "aten::mm" and hasattr(args[0], "_gemm_input_role"):
            self.counts[args[0]._gemm_input_role, args[1]._gemm_input_role] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def _casts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What the backward pass rounds to 8 bits."""
    roles: list[Any] = []
    plain = fp8_halves.hp_tensor_to_float8_dynamic

    def noted(*args: Any, gemm_input_role: Any, **kwargs: Any) -> Any:
        roles.append(gemm_input_role)
        return plain(*args, gemm_input_role=gemm_input_role, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(fp8_halves, "hp_tensor_to_float8_dynamic", noted)
        yield roles


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_the_halves_have_the_bits_of_torchaos_whole_pass(dtype: torch.dtype) -> None:
    expected = _whole(_block(False, dtype=dtype), _input(dtype))
    _assert_same_bits(_halves(_block(True, dtype=dtype), _input(dtype)), expected)
    _assert_same_bits(_whole(_block(True, dtype=dtype), _input(dtype)), expected)


def test_each_product_runs_once() -> None:
    block, seen = _block(True), []
    with Products() as products:
        _halves(block, _input(), lambda: seen.append(products.counts.copy()))
    assert seen == [{FORWARD: LAYERS, OF_INPUT: LAYERS}]
    assert products.counts - seen[0] == {OF_WEIGHT: LAYERS}


def test_torchaos_own_layer_would_run_each_product_of_the_backward_pass_twice() -> None:
    with Products() as products:
        _halves(_block(False), _input())
    assert products.counts == {FORWARD: LAYERS, OF_INPUT: 2 * LAYERS, OF_WEIGHT: 2 * LAYERS}


def test_each_half_casts_one_saved_tensor_and_a_whole_pass_casts_the_gradient_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    halves: list[Counter[Any]] = []
    with _casts(monkeypatch) as roles:
        _halves(_block(True), _input(), lambda: halves.append(Counter(roles)))
    assert halves == [{GRAD: LAYERS, WEIGHT: LAYERS}]
    assert Counter(roles) - halves[0] == {GRAD: LAYERS, INPUT: LAYERS}
    with _casts(monkeypatch) as roles:
        _whole(_block(True), _input())
    assert Counter(roles) == {GRAD: LAYERS, WEIGHT: LAYERS, INPUT: LAYERS}


def test_a_layer_of_the_stages_own_input_has_both_halves_too() -> None:
    def kind() -> nn.Module:
        return nn.Sequential(nn.Linear(32, 16))

    with Products() as products:
        found = _halves(_block(True, kind), _input())
    assert products.counts == {FORWARD: 1, OF_INPUT: 1, OF_WEIGHT: 1}
    _assert_same_bits(found, _whole(_block(False, kind), _input()))


def test_a_frozen_weight_has_no_product() -> None:
    def kind() -> nn.Module:
        block = Block()
        block.gate.weight.requires_grad_(False)
        return block

    with Products() as products:
        found = _halves(_block(True, kind), _input())
    assert products.counts == {FORWARD: LAYERS, OF_INPUT: LAYERS, OF_WEIGHT: LAYERS - 1}
    _assert_same_bits(found, _whole(_block(False, kind), _input()))


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_a_recomputed_block_has_the_same_bits(mode: str) -> None:
    expected = _whole(_block(False), _input())
    block = _block(True)
    apply_recompute([block], Recompute.model_validate({"mode": mode}), halves=True)
    with Products() as products:
        found = _halves(block, _input())
    _assert_same_bits(found, expected)
    assert products.counts == {FORWARD: LAYERS + AGAIN[mode], OF_INPUT: LAYERS, OF_WEIGHT: LAYERS}


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_whole_passes_do_not_compute_a_blocks_last_product_again(mode: str) -> None:
    expected = _whole(_block(False), _input())
    torch.manual_seed(0)
    block = Block().bfloat16()
    apply_fp8([block], EMULATED, CPU, recomputed=True)
    apply_recompute([block], Recompute.model_validate({"mode": mode}))
    with Products() as products:
        found = _whole(block, _input())
    _assert_same_bits(found, expected)
    assert products.counts == {FORWARD: LAYERS + AGAIN[mode], OF_INPUT: LAYERS, OF_WEIGHT: LAYERS}


def test_two_micro_batches_may_wait_for_their_second_halves() -> None:
    plain, split = _block(False), _block(True)
    pending = []
    for _ in range(2):
        (_, groups) = stage_backward_input([split(x := _input()).square().sum()], None, [x], split.parameters())
        pending.append(groups)
        plain(_input()).square().sum().backward()
    for groups in pending:
        stage_backward_weight(split.parameters(), groups)
    pairs = zip(split.parameters(), plain.parameters(), strict=True)
    assert all(
        one.grad is not None and other.grad is not None and torch.equal(one.grad, other.grad) for one, other in pairs
    )
