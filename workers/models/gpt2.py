"""The GPT-2 family (Radford et al. 2019): LayerNorm, learned positions, GELU (tanh form), biases except in the head."""

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
from .norms import LayerNorm
from .presets import Architecture
from .tensor_plan import decoder_plan


class GELUMLP(nn.Module):
    """down(gelu(up(x))) with the tanh approximation that GPT-2 was trained with (1606.08415)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)
        self.columns: Columns = each

    def forward(self, x: Tensor) -> Tensor:
        (up,) = self.columns(x, (self.up,))
        out: Tensor = self.down(F.gelu(up, approximate="tanh"))
        return out


class GPT2(Decoder):
    """A GPT-2 of any size; see `Decoder` for shapes. Sequences are at most `arch.max_seq_len` long."""

    def __init__(self, arch: Architecture) -> None:
        def norm() -> LayerNorm:
            return LayerNorm(arch.dim, arch.norm_eps)

        def block() -> Block:
            return Block(Attention(arch, bias=True, rotary=False), GELUMLP(arch.dim, arch.hidden), norm)

        super().__init__(arch, block, norm, positions=True)

    def tensor_plan(self, sequence: bool) -> dict[str, ParallelStyle]:
        """Module pattern → style, for every parameter; `sequence` shards the hidden state between blocks on dim 1."""
        return decoder_plan(sequence, self.arch.tied, ("up",), positions=True)

    def grid_plan(self) -> dict[str, GridStyle]:
        """Module pattern → style, for every module that has parameters of its own."""
        return grid_decoder_plan(("up",), positions=True, heads_norms=False)

    def cube_plan(self) -> dict[str, CubeStyle]:
        """Module pattern → style, for every module that has parameters of its own."""
        return cube_decoder_plan(("up",), positions=True, heads_norms=False)
