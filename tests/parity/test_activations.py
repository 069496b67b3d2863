"""What a block keeps for its backward pass, counted on saved tensors, is table 2 of Korthikanti et al. (2205.05198), term by term.

Their GPT block keeps, in elements per token (theirs are bytes: 2 each at 16 bits, 1 per dropout mask), for width d, feed-forward h = 4d,
a heads, s tokens and t tensor ranks:

- outside the cut layers: 2 inputs of norms and 2 inputs of column-cut layers, 4d; and 2 dropout masks, which ours has not: the 10 of
  their "tensor" row is 2 · 4 + 2. Sequence parallelism divides it by t; that it can divide the inputs of column-cut layers too is
  their extra all-gather in the backward pass.
- inside, over t: q, k and v 3d; input of o d; around the activation 2h: their 24 is 2 · (4 + 8).
- the core of attention, over t: 5as/h bytes are softmax (2), a mask (1) and what it leaves (2). Without dropout one of them is left,
  a·s elements; fused attention keeps the log-sum-exp alone, a.

Hence for our GPT-2 block, in bytes at 16 bits and units of d, their rows less the masks: 32 + core; 8 + 24/t + core/t; (32 + core)/t.

Llama differs in one term: SwiGLU keeps gate, silu(gate), up and their product, 4h. (Key and value heads are repeated to all heads
where the kernel does not know grouped ones, as on CPUs: 3d as theirs.)

Full recompute keeps the block's input: 2 bytes, d elements, uncut as in their table; with sequence parallelism d/t. Selective recompute
must keep no more than theirs, which is all but the core; ours computes norms, activations and rotations again as well, and keeps results
instead of inputs: the block's input and the result of o, 2d (outside); q, k, v at their own widths d + 2k, and the results of gate and up
2h or of up h (inside); and, where fused, the core's own output and log-sum-exp, d + a (inside).
"""

import pytest
from harness.activations import DIM, HEADS, HIDDEN, KV_HEADS, SEQ, Case, kept_per_token
from harness.ranks import spawn

D, A, S = DIM, HEADS, SEQ

#: Rows of their table 2 in bytes and units of d, less the two masks: outside, inside.
PAPER = (10 - 2, 24)


def _whole(family: str, attention: str) -> tuple[float, float, float]:
    """Elements per token on one rank: outside the cut layers, inside, and of the core of attention."""
    core = A if attention == "fused" else A * S
    if family == "gpt2":
        return PAPER[0] / 2 * D, PAPER[1] / 2 * D, core
    return 4 * D, 4 * D + 4 * HIDDEN["llama"], core


def _selective(family: str, attention: str) -> tuple[float, float]:
    """Elements per token on one rank: outside, inside."""
    h, k = HIDDEN[family], D // HEADS * KV_HEADS
    inside = D + 2 * k + 2 * h if family == "llama" else 3 * D + h
    return 2 * D, inside + (D + A if attention == "fused" else 0)


def _expected(t: int, case: Case) -> float:
    family, mode, sequence, attention = case
    shared = t if sequence else 1  # what divides the hidden state between cut layers
    if mode == "full":
        return D / shared
    if mode == "selective":
        outside, inside = _selective(family, attention)
        return outside / shared + inside / t
    outside, inside, core = _whole(family, attention)
    return outside / shared + (inside + core) / t


CASES: list[Case] = [
    (family, mode, sequence, attention)
    for family in ("gpt2", "llama")
    for mode in ("none", "selective", "full")
    for sequence in (False, True)
    for attention in ("fused", "unfused")
]


@pytest.fixture(scope="module")
def counts() -> dict[tuple[int, Case], float]:
    """(tensor ranks, case) → elements per token, the most of any rank."""
    found = {}
    for t in (1, 2, 4):
        cases = [case for case in CASES if t > 1 or not case[2]]
        found |= {(t, case): max(each) for case, *each in zip(cases, *spawn(kept_per_token, t, cases), strict=True)}
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_row_is_its_formula(case: Case, counts: dict[tuple[int, Case], float]) -> None:
    for t in (2, 4) if case[2] else (1, 2, 4):
        assert counts[t, case] == pytest.approx(_expected(t, case), rel=0.1), t


@pytest.mark.parametrize("t", [2, 4])
@pytest.mark.parametrize("case", [case for case in CASES if case[2]], ids=str)
def test_sequence_parallelism_divides_all_by_t(t: int, case: Case, counts: dict[tuple[int, Case], float]) -> None:
    family, mode, _, attention = case
    assert counts[t, case] / counts[1, (family, mode, False, attention)] == pytest.approx(1 / t, rel=0.1)


@pytest.mark.parametrize("t", [1, 2, 4])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_selective_recompute_keeps_no_more_than_theirs(
    t: int, family: str, counts: dict[tuple[int, Case], float]
) -> None:
    outside, inside, _ = _whole(family, "unfused")
    for attention in ("fused", "unfused"):
        assert counts[t, (family, "selective", t > 1, attention)] <= (outside + inside) / t
