"""Floating-point operations per trained token, from the architecture's numbers. Imports no torch."""

from ...strategies.cost.stage_balance import ModuleCosts
from .presets import Architecture


def flops_per_token(arch: Architecture, seq_len: int) -> int:
    """FLOPs of forward and backward per token: 6 per matrix weight and 12·layers·(heads·head size)·seq for attention.

    This is the count of PaLM (2204.02311, appendix B), as published utilisation figures (MFU) use it. Embedding lookups, norms, biases,
    recompute and experts that a token does not choose do not count. Attention counts without the causal mask's saving.
    """
    modules = module_flops(arch, seq_len)
    return modules.embed + sum(modules.blocks) + modules.head


def module_flops(arch: Architecture, seq_len: int) -> ModuleCosts:
    """The same FLOPs per module, by which a pipeline is split."""
    q_dim, kv_dim = arch.head_size * arch.heads, arch.head_size * arch.kv_heads
    columns = 1 if arch.family == "gpt2" else 2
    weights = 2 * arch.dim * (q_dim + kv_dim)
    weights += (arch.active_experts + arch.shared_experts) * (columns + 1) * arch.dim * arch.hidden
    weights += arch.dim * (arch.experts or 0)  # the router
    block = 6 * weights + 12 * q_dim * seq_len
    return ModuleCosts(embed=0, blocks=(block,) * arch.layers, head=6 * arch.vocab * arch.dim)
