"""Attention kernels that also return the log-sum-exp of their scores, which is needed to merge blocks of one softmax.

A block is softmax(q·kᵀ/√size)·v over some of the keys. Torch's public attention does not return its log-sum-exp. This file
therefore calls the fused kernels by their operators, and is the only one that does, only for the versions of torch that were
tested. `MATH` computes the same with plain tensor operations, holds all scores of a block at once, and is used everywhere else.

Shapes: q, out [batch, heads, queries, size]; k, v [batch, key heads, keys, size], where key heads divide heads and neighbouring
heads share one; log-sum-exp [batch, heads, queries] in fp32 (fp64 for fp64). A causal block has as many queries as keys.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from ..flash_rules import flash_takes

Gradients = tuple[Tensor, Tensor, Tensor]

_TRIED = ("2.13.",)
HALVES: Final = (torch.bfloat16, torch.float16)
#: CUDA's flash attention needs sizes of heads that are multiples of this, beside what `flash_rules.py` says.
HEAD_STEP: Final = 8


@dataclass(frozen=True)
class Kernel:
    """`forward(q, k, v, causal)` → out, log-sum-exp; `backward(grad, q, k, v, out, lse, causal)` → gradients of q, k and v.

    `out` and `lse` of the backward pass may come from a softmax over more keys than the block's: the gradients are then the block's
    share (Dao, 2307.08691, algorithm 2). The kernel of packed documents takes a `DocumentMask` in the place of `causal`.
    """

    forward: Callable[[Tensor, Tensor, Tensor, Any], tuple[Tensor, Tensor]]
    backward: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Any], Gradients]


def kernel_for(q: Tensor) -> Kernel:
    """The fastest kernel that is known to be correct for q's device and dtype."""
    if not torch.__version__.startswith(_TRIED):
        return MATH
    if q.device.type == "cpu":
        return CPU_FLASH
    return CUDA_FLASH if q.device.type == "cuda" and _fits_flash(q) else MATH


def _fits_flash(q: Tensor) -> bool:
    """Whether CUDA's flash attention, which is called by itself here, takes such queries on their device."""
    size = q.shape[-1]
    fits = q.dtype in HALVES and size % HEAD_STEP == 0
    return fits and flash_takes(size, torch.cuda.get_device_capability(q.device))


def _math_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    scores = _scores(q, k, causal)
    lse = scores.logsumexp(-1)
    out = (scores - lse.unsqueeze(-1)).exp() @ shared(v, q).to(scores.dtype)
    return out.to(q.dtype), lse


def _math_backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool) -> Gradients:
    weights = (_scores(q, k, causal) - lse.unsqueeze(-1)).exp()
    wide = grad.to(weights.dtype)
    of_weights = wide @ shared(v, q).to(weights.dtype).mT
    of_scores = weights * (of_weights - (wide * out).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
    of_q = of_scores @ shared(k, q).to(weights.dtype)
    of_k, of_v = of_scores.mT @ q.to(weights.dtype), weights.mT @ wide
    return of_q.to(q.dtype), summed(of_k, k).to(k.dtype), summed(of_v, v).to(v.dtype)


def _scores(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    """q·kᵀ/√size [batch, heads, queries, keys], at least fp32; −∞ if a query comes before its key."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores: Tensor = q.to(wide) @ shared(k, q).to(wide).mT / math.sqrt(q.shape[-1])
    if not causal:
        return scores
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(later, -torch.inf)


def shared(k: Tensor, q: Tensor) -> Tensor:
    """k repeated so that each head of q has its own."""
    return k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)


def summed(gradient: Tensor, k: Tensor) -> Tensor:
    """The gradients of the copies that `shared` made, summed for each head of k."""
    summed: Tensor = gradient.unflatten(1, (k.shape[1], -1)).sum(2)
    return summed


def _cpu_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    return out, lse


def _cpu_backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool) -> Gradients:
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    of_q, of_k, of_v = backward(grad, q, k, v, out, lse, 0.0, causal)
    return of_q, of_k, of_v


def _cuda_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
    return out, lse


def _cuda_backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool) -> Gradients:
    backward = torch.ops.aten._scaled_dot_product_flash_attention_backward
    # A dense batch has no cumulative lengths; without dropout the random state is not read.
    unread = torch.zeros(2, dtype=torch.uint64, device=q.device)
    lengths = (None, None, q.shape[2], k.shape[2], 0.0, causal, unread, unread[0])
    of_q, of_k, of_v = backward(grad, q, k, v, out, lse.contiguous(), *lengths)
    return of_q, of_k, of_v


MATH = Kernel(_math_forward, _math_backward)
CPU_FLASH = Kernel(_cpu_forward, _cpu_backward)
CUDA_FLASH = Kernel(_cuda_forward, _cuda_backward)
