"""Causal self-attention whose head count follows its projections.

No code here reads the number of heads from the architecture at run time. A tensor-parallel rank holds fewer output rows of `q`, `k`
and `v`, and `view(batch, seq, -1, head_dim)` computes the number of its heads. Positions are those of the sequence that the
projections return. That is the whole sequence, even if the hidden state between blocks is sequence-sharded. A context-parallel rank
has a part of it, and gets its positions together with another `attend`.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...strategies.context_parallel.apply import Positions
from ...strategies.context_parallel.attention_kernels import HALVES
from ...strategies.context_parallel.packed_attention import packed_attention
from ...strategies.context_parallel.ulysses import Attend
from ...strategies.flash_rules import flash_takes
from ...strategies.tensor_parallel.linear import Columns, each
from .presets import Architecture


class Attention(nn.Module):
    """Causal multi-head attention with grouped key/value heads; hidden [batch, seq, dim] → hidden [batch, seq, dim]."""

    def __init__(
        self, arch: Architecture, *, bias: bool, rotary: bool, norm: Callable[[int], nn.Module] | None = None
    ) -> None:
        super().__init__()
        self.head_dim = arch.head_size
        self.theta = arch.rope_theta if rotary else None
        q_dim, kv_dim = self.head_dim * arch.heads, self.head_dim * arch.kv_heads
        bias = bias or arch.qkv_bias
        self.q = nn.Linear(arch.dim, q_dim, bias=bias)
        self.k = nn.Linear(arch.dim, kv_dim, bias=bias)
        self.v = nn.Linear(arch.dim, kv_dim, bias=bias)
        self.o = nn.Linear(q_dim, arch.dim, bias=bias and not arch.qkv_bias)
        self.q_norm = None if norm is None else norm(self.head_dim)
        self.k_norm = None if norm is None else norm(self.head_dim)

        self.columns: Columns = each
        self.attend: Attend = causal_attention
        self.positions: Positions = first_positions

    def forward(self, x: Tensor, starts: Tensor | None = None) -> Tensor:
        """`starts` [batch, whole sequence + 1] as in `strategies.documents.Packed`, if documents are packed."""
        q, k, v = map(self._heads, self.columns(x, (self.q, self.k, self.v)))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.theta is not None:
            places = self.positions(q.shape[-2], q.device)
            cos, sin = rotary_table(q, self.theta, places if starts is None else in_documents(places, starts))
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        mixed = self.attend(q, k, v) if starts is None else attend_within(self, q, k, v, starts[:, :-1])
        out: Tensor = self.o(mixed.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        """[batch, seq, heads·head_dim] → [batch, heads, seq, head_dim], for the number of heads in `x`."""
        batch, seq, _ = x.shape
        return x.view(batch, seq, -1, self.head_dim).transpose(1, 2)


# The compiler would unroll the kernel's loop over chunks of queries, and trace the messages of the context methods.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def attend_within(attention: Attention, q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> Tensor:
    """The module's `attend` within documents that start at `starts` [batch, whole sequence]. In a compiled block it runs as it is."""
    return attention.attend(q, k, v, starts=starts)


def causal_attention(q: Tensor, k: Tensor, v: Tensor, starts: Tensor | None = None) -> Tensor:
    """softmax(q·kᵀ/√head_dim)·v under the causal mask, and with `starts` [batch, seq] within documents that start there.

    q is [batch, heads, seq, head_dim]; k and v have a number of heads that divides q's, each shared by a group of neighbouring heads.
    """
    if starts is not None:
        return packed_attention(q, k, v, starts)
    group = q.shape[1] // k.shape[1]
    if group > 1 and not _takes_groups(q):
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        group = 1
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=group > 1)


def _takes_groups(q: Tensor) -> bool:
    """Whether the fused kernel for such queries supports grouped heads: flash attention does.

    The memory-efficient kernel, which CUDA has for all others, does not, and the fallback would hold seq² scores. With key/value heads
    repeated the numbers are the same.
    """
    if q.dtype not in HALVES:
        return False
    return q.device.type != "cuda" or flash_takes(q.shape[-1], _capability(q.device))


# A call in the compiled graph would keep the graph out of torch's cache.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def first_positions(length: int, device: torch.device) -> Tensor:
    """0, 1, … [length]: the positions of a whole sequence."""
    return torch.arange(length, device=device)


def in_documents(places: Tensor, starts: Tensor) -> Tensor:
    """The positions [batch, n] of the tokens at `places` [n] in their documents, which start at `starts` [batch, seq + 1]."""
    return places - starts[:, places]


def rotary_table(x: Tensor, theta: float, positions: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin [seq, head_dim] of the rotary embedding (Su et al., 2104.09864) for x [batch, heads, seq, head_dim].

    Token i is at `positions[i]` of its sequence. If `positions` are [batch, seq], tables are [batch, 1, seq, head_dim]. In fp32, or fp64
    when x is. It is computed in each call, which takes microseconds: a table that is not state cannot be lost on the meta device, become
    stale, or differ between micro-batches.
    """
    size = x.shape[-1]
    wide = torch.promote_types(x.dtype, torch.float32)
    frequency = theta ** (torch.arange(0, size, 2, device=x.device, dtype=wide) / -size)
    angle = torch.outer(positions.flatten().to(wide), frequency).repeat(1, 2)
    if positions.dim() > 1:
        angle = angle.unflatten(0, positions.shape).unsqueeze(1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (i, i + head_dim/2) of x by its position's angle, in the table's dtype; returns x's dtype.

    The half-split pairing is that of published Llama weights in the Hugging Face format, so those load unpermuted.
    """
    first, second = x.to(cos.dtype).chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (x * cos + turned * sin).to(x.dtype)
