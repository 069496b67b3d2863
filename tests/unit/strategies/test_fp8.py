"""fp8 takes the layers that its kernels can take, and says what it lacks."""

import sys
from typing import Any

import pytest
import torch
from torch import nn

from shardyard.strategies.fp8 import apply_fp8, fits
from shardyard.strategies.layout import Refusal
from shardyard.strategies.precision import PRECISIONS, Precision

EMULATED = Precision("fp8", torch.bfloat16, torch.float32, fp8=True, emulated=True)
CPU = torch.device("cpu")


def _block() -> nn.Module:
    return nn.ModuleDict({"wide": nn.Linear(32, 48), "odd": nn.Linear(32, 8), "norm": nn.LayerNorm(32)})


def test_layers_of_fitting_sides_are_exchanged_and_keep_their_parameters() -> None:
    block = _block()
    before = dict(block.named_parameters())
    apply_fp8([block], EMULATED, CPU)
    kinds = {name: type(child).__name__ for name, child in block.named_children()}
    assert kinds == {"wide": "Float8Linear", "odd": "Linear", "norm": "LayerNorm"}
    assert {name: id(value) for name, value in block.named_parameters()} == {n: id(v) for n, v in before.items()}


@pytest.mark.parametrize(("sides", "fit"), [((16, 32), True), ((16, 24), False), ((24, 16), False)])
def test_sides_are_multiples_of_16(sides: Any, fit: bool) -> None:
    assert fits(nn.Linear(*sides)) is fit


def test_blocks_are_recomputed_with_a_torchao_that_has_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shardyard.strategies.fp8_halves", None)
    apply_fp8([block := _block()], EMULATED, CPU, recomputed=True)
    assert type(block.get_submodule("wide")).__name__ == "Float8Linear"
    with pytest.raises(Refusal, match="no layers whose backward pass can be split"):
        apply_fp8([_block()], EMULATED, CPU, halves=True)


def test_other_precisions_exchange_nothing() -> None:
    block = _block()
    apply_fp8([block], PRECISIONS["bf16"], CPU)
    assert type(block.get_submodule("wide")) is nn.Linear


def test_a_block_without_such_a_layer_is_refused() -> None:
    with pytest.raises(Refusal, match="no linear layer whose sides are multiples of 16"):
        apply_fp8([nn.ModuleDict({"odd": nn.Linear(8, 8)})], EMULATED, CPU)


def test_a_block_that_is_a_layer_alone_is_refused() -> None:
    """torchao exchanges what is inside a module. The layer itself would stay in bf16."""
    with pytest.raises(Refusal, match="a block that is a Linear alone cannot be converted"):
        apply_fp8([nn.Linear(32, 48)], EMULATED, CPU)


def test_a_cpu_is_refused() -> None:
    with pytest.raises(Refusal, match=r"computes on cpu\. Use bf16"):
        apply_fp8([_block()], PRECISIONS["fp8"], CPU)


def test_an_older_gpu_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100")
    with pytest.raises(Refusal, match=r"8\.9, NVIDIA A100 has 8\.0"):
        apply_fp8([_block()], PRECISIONS["fp8"], torch.device("cuda", 0))


def test_without_torchao_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.float8", None)
    with pytest.raises(Refusal, match=r"pip install 'shardyard\[fp8\]'"):
        apply_fp8([_block()], EMULATED, CPU)
