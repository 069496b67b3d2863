"""What a block keeps for its backward pass, counted on saved tensors, shrinks as Korthikanti et al. (2205.05198, table 2) say.

Their table, in bytes at 16 bits and in units of s·b·h: 34 + 5as/h whole; 10 + 24/t + 5as/(ht) with tensor parallelism; 34/t + 5as/(ht)
with sequence parallelism too; without the 5as terms with selective recompute; 2 with full recompute. Theirs is GPT with dropout; our
llama block has no dropout (no masks), SwiGLU, grouped heads, and an attention that is usually fused and so keeps no scores. In elements
per token, for width d, feed-forward h, key/value width k, a heads, s tokens, t tensor ranks:

- none, t = 1: two norms keep input, normalised input and output each (6d); q, k, v (k, v repeated to all heads) and its output (4d);
  gate, its silu, up and their product (4h); log-sum-exp (a) where fused, scores (a·s) where not: 10d + 4h + a.
- tensor: norms stay whole, the rest is cut: 6d + (4d + 4h + a)/t, theirs 10 + 24/t.
- sequence: norms are cut too, but the gathered inputs of the column-cut layers are kept (2d in the place of 2d/t; theirs gathers again in
  the backward pass): 2d + (8d + 4h + a)/t, theirs 34/t.
- selective: input, q, k, v, gate, up, and what o and down give, which tensor parallelism keeps before and after its collective; the core
  of attention keeps its output and log-sum-exp where fused, and nothing, like theirs, where not.
- full: the block's input: d, and d/t with sequence parallelism; theirs 2 (bytes), uncut.
"""

import pytest
from harness.activations import DIM, HEADS, HIDDEN, KV_HEADS, SEQ, kept_per_token
from harness.ranks import spawn

D, H, A, S = DIM, HIDDEN, HEADS, SEQ
K = DIM // HEADS * KV_HEADS

Case = tuple[str, bool, str]


def _expected(t: int, case: Case) -> float:
    mode, sequence, attention = case
    fused = attention == "fused"
    if mode == "full":
        return D / t if sequence else D
    if mode == "selective":
        core = D + A if fused else 0
        cut = (D + 2 * K + 2 * H + core) / t
        if t == 1:
            return cut + 3 * D
        return cut + (3 * D / t + 4 * D if sequence else 5 * D)
    core = A if fused else A * S
    return 2 * D + (8 * D + 4 * H + core) / t if sequence and t > 1 else 6 * D + (4 * D + 4 * H + core) / t


CASES: list[Case] = [
    (mode, sequence, attention)
    for mode in ("none", "selective", "full")
    for sequence in (False, True)
    for attention in ("fused", "unfused")
]


@pytest.mark.parametrize("world", [1, 2])
def test_kept_activations_follow_the_formulas(world: int) -> None:
    cases = [case for case in CASES if world > 1 or not case[1]]
    for counts in spawn(kept_per_token, world, cases):
        for case, count in zip(cases, counts, strict=True):
            assert count == pytest.approx(_expected(world, case), rel=0.1), case
