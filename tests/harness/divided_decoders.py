"""Small decoders that ranks divide, beside whole ones: their loss, their gradients, and what they keep."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shardyard.strategies.layout import Refusal
from shardyard.strategies.loss import TokenLoss
from shardyard.strategies.param_shard import manual_shards, narrow, slice_of
from shardyard.strategies.telemetry.comm_counter import Traffic
from shardyard.workers.models.init import initial_value
from shardyard.workers.models.presets import Architecture
from shardyard.workers.models.registry import make

from .grids import numbers

SIZES = {"layers": 2, "dim": 16, "heads": 4, "kv_heads": 2, "hidden": 24, "vocab": 33, "max_seq_len": 7}
BATCH, SEQ = 4, 7


def architecture(**changes: Any) -> Architecture:
    return Architecture(**{**SIZES, **changes})


def gpt2_of(layers: int) -> Architecture:
    """One whose activations per layer are known, for sequences of 8 tokens."""
    sizes = {"kv_heads": 4, "vocab": 32, "hidden": 64, "max_seq_len": 8}
    return architecture(family="gpt2", layers=layers, **sizes)


def decoder(arch: Architecture) -> nn.Module:
    """In fp64, whose parameters are all different: norms and biases are not one and zero."""
    model = make(arch).double()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(initial_value(f"{name}.table", value.shape, 1, arch).double() * 10 + (value.dim() == 1))
    return model


def loss_of(model: nn.Module, tokens: Tensor) -> Tensor:
    """This rank's summand of the mean loss over `BATCH` sequences; `tokens` [rows, SEQ + 1]."""
    loss: Tensor = TokenLoss(BATCH * SEQ, label_smoothing=0.1)(model(tokens[:, :-1]), tokens[:, 1:])
    return loss


def some_tokens(arch: Architecture) -> Tensor:
    """[BATCH, SEQ + 1]."""
    return torch.randint(0, arch.vocab, (BATCH, SEQ + 1), generator=torch.Generator().manual_seed(0))


def worst_gradient(own: nn.Module, whole: nn.Module) -> float:
    """The largest difference between this rank's gradients and its parts of those of the whole model."""
    gradients = {name: value.grad for name, value in whole.named_parameters()}
    placed = manual_shards(own)
    worst = 0.0
    for name, value in own.named_parameters():
        gradient = gradients.pop(name)
        assert value.grad is not None and gradient is not None
        place = slice_of(gradient.shape, placed[name].cuts) if name in placed else slice_of(gradient.shape, ())
        difference = value.grad - narrow(gradient, *place)
        worst = max(worst, difference.abs().max().item()) if difference.numel() else worst
    assert not gradients
    return worst


def matrix_numbers(model: nn.Module) -> int:
    """The number of numbers in matrices."""
    return sum(p.numel() for p in model.parameters() if p.dim() > 1)


def numbers_kept(model: nn.Module, tokens: Tensor) -> float:
    """Numbers that autograd keeps, each storage once: not parameters, nor a few numbers per token (of norms and of attention)."""
    kept: dict[int, int] = {}
    parameters = {value.untyped_storage().data_ptr() for value in model.parameters()}

    def note(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in parameters and storage.nbytes() > tokens.numel() * 4 * 8:
            kept[storage.data_ptr()] = storage.nbytes() // 8
        return saved

    with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
        out = model(tokens)
    del out
    return sum(kept.values())


def compared(
    numbers: dict[str, Any],
    divide: Callable[[nn.Module], object],
    own: Callable[[Tensor], Tensor],
    summed: Callable[[Tensor], Tensor],
) -> dict[str, float]:
    """A divided decoder beside a whole one: the differences of loss and gradients, and the numbers in both's matrices.

    `divide` leaves a model this rank's parameters, `own` returns this rank's part of the tokens, `summed` sums the ranks' losses.
    """
    arch = architecture(**numbers)
    tokens = some_tokens(arch)
    whole, divided = decoder(arch), decoder(arch)
    divide(divided)
    expected = loss_of(whole, tokens)
    expected.backward()
    loss = loss_of(divided, own(tokens))
    loss.backward()
    return {
        "loss": abs(summed(loss.detach().clone()).item() - expected.item()),
        "gradient": worst_gradient(divided, whole),
        "matrices": matrix_numbers(divided),
        "all": matrix_numbers(whole),
    }


def assert_equals_whole(ranks: list[dict[str, float]], name: str) -> None:
    """What `compared` found on each rank: loss and gradients to 1e-13, and each number of a matrix on exactly one rank."""
    assert max(rank["loss"] for rank in ranks) < 1e-13, name
    assert max(rank["gradient"] for rank in ranks) < 1e-13, name
    assert sum(rank["matrices"] for rank in ranks) == ranks[0]["all"], name


def kept_and_sent(
    layers: int,
    divide: Callable[[nn.Module], object],
    own: Callable[[Tensor], Tensor],
    counter: Callable[[], Traffic],
    kinds: Sequence[str],
) -> dict[str, float]:
    """Elements that a GPT-2 of `layers` layers keeps for the backward pass, divided and alone, and elements that are sent.

    Only the collectives `kinds` count: all-reduces are of a few numbers per token and per column.
    """
    arch = gpt2_of(layers)
    tokens = torch.zeros(BATCH, 8, dtype=torch.int64)
    whole, model = decoder(arch), decoder(arch)
    divide(model)
    kept = {"alone": numbers_kept(whole, tokens), "divided": numbers_kept(model, own(tokens))}
    with counter() as forward:
        out = model(own(tokens)).to_local().sum()
    with counter() as backward:
        out.backward()
    return {**kept, "forward": _moved(forward, kinds), "backward": _moved(backward, kinds)}


def _moved(traffic: Traffic, kinds: Sequence[str]) -> float:
    return sum(found[kind]["elements"] for found in traffic.to_json().values() for kind in kinds if kind in found)


def refusals(divide: Callable[[nn.Module], object]) -> list[str]:
    """Why a mixture of experts, and a model without a plan, cannot be divided."""
    found = []
    for model in (make(architecture(family="moe", experts=4)), nn.Linear(2, 2)):
        with pytest.raises(Refusal) as refusal:
            divide(model)
        found.append(str(refusal.value))
    return found


def linears(inner: int, widths: tuple[int, ...], biased: tuple[bool, ...]) -> list[nn.Linear]:
    """Layers of one input in fp64, the same on every rank."""
    layers = [
        nn.Linear(inner, width, bias=bias, dtype=torch.float64) for width, bias in zip(widths, biased, strict=True)
    ]
    with torch.no_grad():
        for seed, parameter in enumerate(p for layer in layers for p in layer.parameters()):
            parameter.copy_(numbers(*parameter.shape, seed=seed))
    return layers
