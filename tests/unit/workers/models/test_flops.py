from typing import Any

import pytest
import torch
from harness.decoders import decoder, tiny, token_ids
from torch.utils.flop_counter import FlopCounterMode

from shardyard.workers.models.flops import flops_per_token

MIXTURE = {"kv_heads": 2, "experts": 4, "top_k": 2, "shared_experts": 3}


@pytest.mark.parametrize(("family", "numbers"), [("llama", {}), ("gpt2", {}), ("moe", MIXTURE)])
def test_equals_what_torch_counts(family: str, numbers: dict[str, Any]) -> None:
    """A forward pass is a third; torch does not count the CPU's attention kernel: 2 products of 2·seq²·dim FLOPs."""
    arch = tiny(family, **numbers)
    model, tokens = decoder(arch, torch.float32), token_ids(arch, 0)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        model(tokens)
    attention = 4 * arch.layers * arch.dim * tokens.shape[1] * tokens.numel()
    by_kind = counter.get_flop_counts()["Global"]
    matrices = sum(count for kind, count in by_kind.items() if "attention" not in str(kind))
    assert 3 * (matrices + attention) == flops_per_token(arch, tokens.shape[1]) * tokens.numel()
