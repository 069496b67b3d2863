"""Elements per token that are kept for the backward pass: table 2 of Korthikanti et al. (2205.05198), term by term. Imports no torch.

Their GPT block keeps the following, for width d, feed-forward h = 4d, a heads, s tokens and t tensor ranks. Their numbers are
bytes: 2 per element at 16 bits, 1 per dropout mask.

- Outside the sharded layers: 2 inputs of norms and 2 inputs of column-sharded layers, 4d; and 2 dropout masks, which our blocks do
  not have: the 10 of their "tensor" row is 2 · 4 + 2. Sequence parallelism divides it by t. It can divide the inputs of
  column-sharded layers too because of their extra all-gather in the backward pass.
- Inside, over t: q, k and v 3d; input of o d; around the activation 2h: their 24 is 2 · (4 + 8).
- The core of attention, over t: the 5as/h bytes are the softmax (2), a dropout mask (1) and its result (2). Without dropout only
  one of them remains, a·s elements; fused attention keeps only the log-sum-exp, a.

Llama differs in one term: SwiGLU keeps gate, silu(gate), up and their product, 4h. Norms of heads (Qwen3) keep the q and k that they
normalise. If the kernel does not support grouped heads, as
in fp32 and on GPUs without flash attention, key and value heads are repeated to all heads.

Full recompute keeps the block's input, d elements, not sharded, as in their table; with sequence parallelism d/t. Selective
recompute keeps no more than theirs, which is all but the core. Ours also recomputes norms, activations and rotations, and keeps
results instead of inputs: the block's input and the result of o, 2d (outside); q, k, v at their own widths q + 2k, and the results
of gate and up 2h or of up h (inside); and, if attention is fused, the core's own output and log-sum-exp, q + a (inside).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Widths:
    """The widths of one block, in elements per token. `repeated`: attention's kernel needs key and value heads for each query head."""

    dim: int
    query: int
    key: int
    heads: int
    hidden: float
    gated: bool
    repeated: bool
    scores: int | None = None  # tokens that each token attends to, if attention is not fused
    again: bool = False  # whether selective recompute computes attention again, as under a mask by document
    normed: int = 0  # of queries and keys, if their heads are normalised


@dataclass(frozen=True)
class Kept:
    """Elements per token: outside the layers that tensor parallelism shards, inside them, and of attention's core."""

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
        core = of.query + log_sum if of.scores is None and not of.again else 0
        return Kept(2 * of.dim, of.query + 2 * of.key + columns, core)
    keys = 2 * (of.query if of.repeated else of.key)
    feed_forward = 4 * of.hidden if of.gated else 2 * of.hidden
    core = of.heads if of.scores is None else of.heads * of.scores
    return Kept(4 * of.dim, 2 * of.query + keys + feed_forward + of.normed, core)
