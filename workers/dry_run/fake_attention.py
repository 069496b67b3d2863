"""Attention by the fused kernel that CUDA would choose. A CPU build of torch knows none, and would hold all seq² scores.

Not metered: what flash attention's backward pass allocates inside its kernel (an fp32 copy of the query's gradient, and where heads share
keys, whole gradients of keys and values).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...strategies.context_parallel.attention_kernels import CUDA_FLASH, HALVES, HEAD_STEP
from ...strategies.flash_rules import flash_takes


def install() -> None:
    """Replace torch's attention in this process."""
    functional: Any = F
    functional.scaled_dot_product_attention = attention


_given = F.scaled_dot_product_attention


def attention(query: Tensor, key: Tensor, value: Tensor, *more: Any, **options: Any) -> Tensor:
    """As `F.scaled_dot_product_attention`, of [batch, heads, seq, size], where it is given no mask, no dropout and no scale."""
    size, causal = query.shape[-1], options.get("is_causal", False)
    if more or options.keys() - {"is_causal", "enable_gqa"} or query.device.type != "cuda":
        return _given(query, key, value, *more, **options)
    if query.dtype in HALVES and flash_takes(size, torch.cuda.get_device_capability()):
        query, key, value = (F.pad(x, (0, -size % HEAD_STEP)) if size % HEAD_STEP else x for x in (query, key, value))
        out, _ = CUDA_FLASH.forward(query, key, value, causal)
        return out[..., :size]
    if query.shape[1] != key.shape[1]:  # the memory-efficient kernel knows no shared heads
        return _given(query, key, value, **options)
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    mixed: Tensor = efficient(query, key, value, None, torch.is_grad_enabled(), 0.0, causal)[0]
    return mixed
