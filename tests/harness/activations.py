"""Counts what a block keeps for its backward pass: storages of saved tensors and of selectively kept results, parameters excluded."""

from functools import partial
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from .ranks import group

BATCH, SEQ, DIM, HEADS, KV_HEADS = 4, 128, 128, 8, 4
#: The paper's GPT has a feed-forward of 4·d.
HIDDEN = {"llama": 320, "gpt2": 4 * DIM}

#: (family, recompute mode, sequence parallel, "fused" or "unfused" attention)
Case = tuple[str, str, bool, str]


def kept_per_token(rank: int, world: int, port: int, cases: list[Case]) -> list[float]:
    """For each case the elements kept by this rank per token of the batch."""
    from torch.distributed.device_mesh import init_device_mesh

    group(rank, world, port)
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tensor",))
    return [_kept(mesh, *case) for case in cases]


def _kept(mesh: Any, family: str, mode: str, sequence: bool, attention: str) -> float:
    from torch.distributed.tensor.parallel import parallelize_module
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from shardyard.strategies.activation_memory.checkpointing import apply_recompute
    from shardyard.strategies.activation_memory.selective import watched
    from shardyard.strategies.memory_options import Recompute
    from shardyard.workers.models.presets import Architecture
    from shardyard.workers.models.registry import make

    kv_heads = KV_HEADS if family == "llama" else HEADS
    shape = {"dim": DIM, "heads": HEADS, "kv_heads": kv_heads, "hidden": HIDDEN[family], "max_seq_len": SEQ}
    model = make(Architecture(family=family, layers=1, vocab=64, **shape)).double()
    if mesh.size() > 1:
        parallelize_module(model, mesh, model.tensor_plan(sequence))
    (block,) = model.blocks.values()
    weights = {_local(value).untyped_storage().data_ptr() for value in model.parameters()}
    kept: dict[int, torch.Tensor] = {}
    note = partial(_note, kept)
    apply_recompute([block], Recompute(mode=mode))
    length = SEQ // mesh.size() if sequence else SEQ
    x = torch.randn(BATCH, length, DIM, dtype=torch.float64, requires_grad=True)
    kernel = SDPBackend.FLASH_ATTENTION if attention == "fused" else SDPBackend.MATH
    with sdpa_kernel(kernel), watched(note), torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
        output = block(x)
    total = sum(t.untyped_storage().nbytes() for pointer, t in kept.items() if pointer not in weights)
    assert output.requires_grad
    return total / 8 / (BATCH * SEQ)


def _note(kept: dict[int, torch.Tensor], saved: Any) -> Any:
    for tensor in saved if isinstance(saved, list | tuple) else [saved]:
        if isinstance(tensor, torch.Tensor):
            local = _local(tensor)
            kept[local.untyped_storage().data_ptr()] = local
    return saved


def _local(tensor: torch.Tensor) -> torch.Tensor:
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    wait = getattr(local, "wait", None)
    return wait() if callable(wait) else local
