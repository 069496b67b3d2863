"""The Llama family (2302.13971): RMSNorm, rotary positions, grouped-query attention, SwiGLU, no biases.

Mistral (2310.06825), Qwen2 (2407.10671: biases of q, k and v) and Qwen3 (2505.09388: RMSNorm over heads) are the same blocks.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ParallelStyle

from ...strategies.tensor_parallel.cube_apply import CubeStyle
from ...strategies.tensor_parallel.grid_apply import GridStyle
from ...strategies.tensor_parallel.linear import Columns, each
from .attention import Attention
from .cube_plan import cube_decoder_plan
from .decoder import Block, Decoder
from .grid_plan import grid_decoder_plan
from .norms import RMSNorm
from .presets import Architecture
from .tensor_plan import decoder_plan, heads_norm


class SwiGLU(nn.Module):
    """down(silu(gate(x)) · up(x)) (2002.05202)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)
        self.columns: Columns = each

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.columns(x, (self.gate, self.up))
        out: Tensor = self.down(F.silu(gate) * up)
        return out


class Llama(Decoder):
    """A Llama of any size; see `Decoder` for shapes. `models.init` sets the weights."""

    def __init__(self, arch: Architecture, feed_forward: Callable[[Architecture], nn.Module] | None = None) -> None:
        def norm() -> RMSNorm:
            return RMSNorm(arch.dim, arch.norm_eps)

        def head_norm(size: int) -> RMSNorm:
            return RMSNorm(size, arch.norm_eps)

        def block() -> Block:
            attention = Attention(arch, bias=False, rotary=True, norm=head_norm if arch.qk_norm else None)
            mlp = SwiGLU(arch.dim, arch.hidden) if feed_forward is None else feed_forward(arch)
            return Block(attention, mlp, norm, routes=feed_forward is not None)

        super().__init__(arch, block, norm, positions=False)

    def tensor_plan(self, sequence: bool) -> dict[str, ParallelStyle]:
        """Module pattern → style, for every parameter; `sequence` shards the hidden state between blocks on dim 1."""
        plan = decoder_plan(sequence, self.arch.tied, ("gate", "up"), positions=False)
        if self.arch.qk_norm:
            plan |= {f"blocks.*.attention.{name}": heads_norm() for name in ("q_norm", "k_norm")}
        return plan

    def grid_plan(self) -> dict[str, GridStyle]:
        """Module pattern → style, for every module that has parameters of its own."""
        return grid_decoder_plan(("gate", "up"), positions=False, heads_norms=self.arch.qk_norm)

    def cube_plan(self) -> dict[str, CubeStyle]:
        """Module pattern → style, for every module that has parameters of its own."""
        return cube_decoder_plan(("gate", "up"), positions=False, heads_norms=self.arch.qk_norm)
