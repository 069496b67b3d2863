"""The shapes of a decoder's parameters for the formulas (`strategies/cost/model_shape.py`). Imports no torch."""

from ...strategies.cost.model_shape import Decoder, Weight
from .flops import module_flops
from .presets import Architecture


def sizes(arch: Architecture, seq_len: int, spread: int | None = None) -> Decoder:
    """The shapes of `arch`. `spread`: the ranks over which the experts of a mixture are spread.

    Raises ValueError for a mixture of experts without it: what a rank holds and sends depends on their ranks and on the routing.
    """
    if arch.experts is not None and spread is None:
        raise ValueError("there is no formula for a mixture of experts")
    d, q, k = arch.dim, arch.head_size * arch.heads, arch.head_size * arch.kv_heads
    gpt = arch.family == "gpt2"
    positions = (Weight(arch.max_seq_len, d, 1),) if gpt else ()
    head = () if arch.tied else (Weight(arch.vocab, d, 0),)
    return Decoder(
        layers=arch.layers,
        dim=d,
        query=q,
        key=k,
        heads=arch.heads,
        hidden=arch.hidden,
        vocab=arch.vocab,
        gated=not gpt,
        tied=arch.tied,
        embed=(Weight(arch.vocab, d, 0 if arch.tied else 1), *positions),
        block=(*_attention(arch, d, q, k), *_feed_forward(arch, spread or 1)),
        end=(*_norm(arch), *head),
        costs=module_flops(arch, seq_len),
        experts=arch.experts,
        top_k=arch.active_experts,
        capacity_factor=arch.capacity_factor,
        shared_experts=arch.shared_experts,
        positions=arch.max_seq_len if gpt else 0,
        layer_norms=gpt,
        qkv_biases=gpt or arch.qkv_bias,
        other_biases=gpt,
        head_norms=arch.qk_norm,
    )


def _norm(arch: Architecture) -> tuple[Weight, ...]:
    return (Weight(arch.dim),) * (2 if arch.family == "gpt2" else 1)


def _attention(arch: Architecture, d: int, q: int, k: int) -> tuple[Weight, ...]:
    matrices = (Weight(q, d, 0), Weight(k, d, 0), Weight(k, d, 0), Weight(d, q, 1))
    biases: tuple[Weight, ...] = ()
    if arch.family == "gpt2" or arch.qkv_bias:
        biases = (Weight(q, 1, 0), Weight(k, 1, 0), Weight(k, 1, 0))
    if arch.family == "gpt2":
        biases += (Weight(d),)
    heads = (Weight(arch.head_size, copied=True),) * 2 if arch.qk_norm else ()
    return (*_norm(arch), *matrices, *biases, *heads)


def _feed_forward(arch: Architecture, spread: int) -> tuple[Weight, ...]:
    d, h = arch.dim, arch.hidden
    if arch.experts is not None:
        local = arch.experts // spread
        each = (Weight(h, d, 0, spread, stack=local),) * 2 + (Weight(d, h, 1, spread, stack=local),)
        together = h * arch.shared_experts
        shared = (Weight(together, d, 0), Weight(together, d, 0), Weight(d, together, 1)) if together else ()
        return (*_norm(arch), Weight(arch.experts, d), *each, *shared)
    if arch.family == "gpt2":
        return (*_norm(arch), Weight(h, d, 0), Weight(d, h, 1), Weight(h, 1, 0), Weight(d))
    return (*_norm(arch), Weight(h, d, 0), Weight(h, d, 0), Weight(d, h, 1))
