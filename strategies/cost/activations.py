"""What is kept for the backward pass, in elements per token: table 2 of Korthikanti et al. (2205.05198), term by term. Imports no torch.

Their GPT block keeps (theirs are bytes: 2 each at 16 bits, 1 per dropout mask), for width d, feed-forward h = 4d, a heads, s tokens and
t tensor ranks:

- outside the cut layers: 2 inputs of norms and 2 inputs of column-cut layers, 4d; and 2 dropout masks, which ours has not: the 10 of
  their "tensor" row is 2 · 4 + 2. Sequence parallelism divides it by t; that it can divide the inputs of column-cut layers too is
  their extra all-gather in the backward pass.
- inside, over t: q, k and v 3d; input of o d; around the activation 2h: their 24 is 2 · (4 + 8).
- the core of attention, over t: 5as/h bytes are softmax (2), a mask (1) and what it leaves (2). Without dropout one of them is left,
  a·s elements; fused attention keeps the log-sum-exp alone, a.

Llama differs in one term: SwiGLU keeps gate, silu(gate), up and their product, 4h. Key and value heads are repeated to all heads where the
kernel does not know grouped ones, as on CPUs in fp32.

Full recompute keeps the block's input, d elements, uncut as in their table; with sequence parallelism d/t. Selective recompute keeps no
more than theirs, which is all but the core; ours computes norms, activations and rotations again as well, and keeps results instead of
inputs: the block's input and the result of o, 2d (outside); q, k, v at their own widths q + 2k, and the results of gate and up 2h or of up
h (inside); and, where fused, the core's own output and log-sum-exp, q + a (inside).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Widths:
    """Of one block, in elements per token. `repeated`: attention's kernel wants key and value heads for each query head."""

    dim: int
    query: int
    key: int
    heads: int
    hidden: int
    gated: bool
    repeated: bool
    scores: int | None = None  # tokens that each one attends to, where attention is not fused


@dataclass(frozen=True)
class Kept:
    """Elements per token: outside of what tensor parallelism cuts, inside, and of attention's core."""

    outside: float
    inside: float
    core: float

    def of_rank(self, tensor: int, sequence: bool) -> float:
        return self.outside / (tensor if sequence else 1) + (self.inside + self.core) / tensor


def kept(mode: str, of: Widths) -> Kept:
    """What a block keeps under recompute `none`, `selective` or `full`."""
    log_sum = of.heads if of.scores is None else 0
    if mode == "full":
        return Kept(of.dim, 0, 0)
    if mode == "selective":
        columns = 2 * of.hidden if of.gated else of.hidden
        return Kept(2 * of.dim, of.query + 2 * of.key + columns, of.query + log_sum if of.scores is None else 0)
    keys = 2 * (of.query if of.repeated else of.key)
    feed_forward = 4 * of.hidden if of.gated else 2 * of.hidden
    core = of.heads if of.scores is None else of.heads * of.scores
    return Kept(4 * of.dim, 2 * of.query + keys + feed_forward, core)
