"""What a block keeps for its backward pass, counted on saved tensors, is `strategies/cost/activations.py`, which is table 2 of Korthikanti
et al. (2205.05198), term by term: for their GPT block in bytes at 16 bits and units of d, their rows less the masks that ours has not,
32 + core; 8 + 24/t + core/t; (32 + core)/t.
"""

import pytest
from harness.activations import DIM, HEADS, HIDDEN, KV_HEADS, SEQ, Case, kept_per_token
from harness.ranks import spawn

from shardyard.strategies.cost.activations import Widths, kept

#: Rows of their table 2 in bytes and units of d, less the two masks: outside, inside.
PAPER = (10 - 2, 24)


def _widths(family: str, attention: str) -> Widths:
    """Key and value heads are repeated here: the CPU's kernel does not know grouped ones in fp64."""
    key = DIM // HEADS * KV_HEADS if family == "llama" else DIM
    scores = None if attention == "fused" else SEQ
    return Widths(DIM, DIM, key, HEADS, HIDDEN[family], family == "llama", repeated=True, scores=scores)


def _expected(t: int, case: Case) -> float:
    family, mode, sequence, attention = case
    return kept(mode, _widths(family, attention)).of_rank(t, sequence)


def test_the_formula_of_a_gpt_block_is_the_papers() -> None:
    whole = kept("none", _widths("gpt2", "unfused"))
    assert (2 * whole.outside / DIM, 2 * whole.inside / DIM) == PAPER
    assert whole.core == HEADS * SEQ


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
    whole = kept("none", _widths(family, "unfused"))
    for attention in ("fused", "unfused"):
        assert counts[t, (family, "selective", t > 1, attention)] <= (whole.outside + whole.inside) / t
