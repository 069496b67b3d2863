"""Attention by the fused kernel that CUDA would choose. A CPU build of torch knows none, and would hold all seq² scores.

Not metered: what flash attention's backward pass allocates inside its kernel (an fp32 copy of the query's gradient, and where heads share
keys, whole gradients of keys and values).
"""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from ...strategies.context_parallel.attention_kernels import CUDA_FLASH

_HALVES: Final = (torch.bfloat16, torch.float16)
#: Flash attention needs compute capability 8.0, sizes of heads up to 256, and multiples of 8, to which they are padded.
_FLASH_CAPABILITY: Final = (8, 0)
_MOST_HEAD: Final = 256
_HEAD_STEP: Final = 8


def install() -> None:
    """Replace torch's attention in this process."""
    functional: Any = F
    functional.scaled_dot_product_attention = attention


_given = F.scaled_dot_product_attention


def attention(query: Tensor, key: Tensor, value: Tensor, *more: Any, **options: Any) -> Tensor:
    """As `F.scaled_dot_product_attention`, of [batch, heads, seq, size], where it is given no mask, no dropout and no scale."""
    size, causal = query.shape[-1], options.get("is_causal", False)
    if more or options.keys() - {"is_causal", "enable_gqa"} or query.device.type != "cuda" or size > _MOST_HEAD:
        return _given(query, key, value, *more, **options)
    if query.dtype in _HALVES and torch.cuda.get_device_capability() >= _FLASH_CAPABILITY:
        query, key, value = (F.pad(x, (0, -size % _HEAD_STEP)) if size % _HEAD_STEP else x for x in (query, key, value))
        out, _ = CUDA_FLASH.forward(query, key, value, causal)
        return out[..., :size]
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    mixed: Tensor = efficient(query, key, value, None, torch.is_grad_enabled(), 0.0, causal)[0]
    return mixed
