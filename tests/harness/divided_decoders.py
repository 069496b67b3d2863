"""Small decoders that ranks divide, beside whole ones: their loss, their gradients, and what they keep."""

from typing import Any

import torch
from torch import Tensor, nn

from shardyard.strategies.loss import TokenLoss
from shardyard.strategies.param_shard import manual_shards, narrow, slice_of
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


def linears(inner: int, widths: tuple[int, ...], biased: tuple[bool, ...]) -> list[nn.Linear]:
    """Layers of one input in fp64, the same on every rank."""
    layers = [
        nn.Linear(inner, width, bias=bias, dtype=torch.float64) for width, bias in zip(widths, biased, strict=True)
    ]
    with torch.no_grad():
        for seed, parameter in enumerate(p for layer in layers for p in layer.parameters()):
            parameter.copy_(numbers(*parameter.shape, seed=seed))
    return layers
