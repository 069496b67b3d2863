"""Small decoders, and their comparison with themselves cut over the tensor axis."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.ranks import group
from shardyard.workers.models.init import initial_value
from shardyard.workers.models.presets import Architecture
from shardyard.workers.models.registry import make


def tiny(family: str, **changes: Any) -> Architecture:
    """A decoder of two layers; 67 positions, so that no axis divides them."""
    numbers: dict[str, Any] = {"layers": 2, "dim": 32, "heads": 4, "hidden": 48, "vocab": 64, "max_seq_len": 67}
    numbers |= {"family": family, "kv_heads": 2 if family == "llama" else 4}
    return Architecture(**(numbers | changes))


def filled(model: nn.Module, arch: Architecture, dtype: torch.dtype = torch.float64, seed: int = 1) -> nn.Module:
    """The model, whole and on the meta device so far, with its initial weights."""
    for prefix, module in model.named_modules():
        for kind, parameter in list(module.named_parameters(recurse=False)):
            value = initial_value(f"{prefix}.{kind}", parameter.shape, seed, arch).to(dtype)
            module.register_parameter(kind, nn.Parameter(value))
    model.tie()
    return model


def decoder(arch: Architecture, dtype: torch.dtype = torch.float64, seed: int = 1) -> nn.Module:
    with torch.device("meta"):
        model = make(arch)
    return filled(model, arch, dtype, seed)


def token_ids(arch: Architecture, seed: int, batch: int = 3, seq: int = 32) -> Tensor:
    return torch.randint(0, arch.vocab, (batch, seq), generator=torch.Generator().manual_seed(seed))


def differences(rank: int, world: int, port: int, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each case, a tensor-parallel decoder's largest differences from the whole one, and what is not a DTensor."""
    from torch.distributed.device_mesh import init_device_mesh

    group(rank, world, port)
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tensor",))
    return [_difference(tiny(**case["arch"]), case["sequence"], mesh) for case in cases]


def _difference(arch: Architecture, sequence: bool, mesh: Any) -> dict[str, Any]:
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import parallelize_module

    whole, cut = decoder(arch), decoder(arch)
    parallelize_module(cut, mesh, cut.tensor_plan(sequence))
    cut.tie()
    logits = []
    for model in (whole, cut):
        output = model(token_ids(arch, 0))
        logits.append(output.full_tensor() if isinstance(output, DTensor) else output)
        functional.cross_entropy(logits[-1].flatten(0, 1), token_ids(arch, 1).flatten()).backward()
    parts = dict(cut.named_parameters())
    gradients = {name: p.grad for name, p in whole.named_parameters()}
    return {
        "plain": [name for name, part in parts.items() if not isinstance(part, DTensor)],
        "names": list(parts) == list(gradients),
        "logits": (logits[0] - logits[1]).abs().max().item(),
        "gradients": {n: (g - parts[n].grad.full_tensor()).abs().max().item() for n, g in gradients.items()},
        "matrices_cut": all(p.to_local().numel() < p.numel() for p in parts.values() if p.dim() == 2),
    }
