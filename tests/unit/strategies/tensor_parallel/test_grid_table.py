"""Lookups and logits over a grid equal those of a whole table, for any vocabulary, forward and backward."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from harness.grids import block, counted, grid, numbers
from harness.ranks import spawn

from shardyard.strategies.tensor_parallel.grid_table import grid_logits, grid_lookup

BATCH, SEQ, DIM = 4, 3, 6


def _compare(rank: int, world: int, port: int, vocab: int) -> tuple[float, dict[str, float]]:
    on = grid(rank, world, port)
    tokens = torch.randint(0, vocab, (BATCH, SEQ), generator=torch.Generator().manual_seed(0))
    own_tokens = block(tokens, on, rows=0, columns=None)
    table = numbers(vocab, DIM).requires_grad_()
    own_table = block(table.detach(), on).requires_grad_()
    grad_rows, grad_logits = numbers(BATCH, SEQ, DIM, seed=1), numbers(BATCH, SEQ, vocab, seed=2)
    rows = F.embedding(tokens, table)
    logits = F.linear(rows, table)
    torch.autograd.backward([rows, logits], [grad_rows, grad_logits])
    sent = {}
    with counted(on) as traffic:
        own_rows = grid_lookup(own_tokens, own_table, vocab, on)
    sent["lookup"] = _elements(traffic)
    with counted(on) as traffic:
        own_logits = grid_logits(own_rows, own_table, vocab, on)
    sent["logits"] = _elements(traffic)
    with counted(on) as traffic:
        grads = [block(grad, on, rows=0, columns=2) for grad in (grad_rows, grad_logits)]
        torch.autograd.backward([own_rows, own_logits], grads)
    sent["backward"] = _elements(traffic)
    assert table.grad is not None and own_table.grad is not None
    pairs = [
        (own_rows, block(rows, on, 0, 2)),
        (own_logits, block(logits, on, 0, 2)),
        (own_table.grad, block(table.grad, on)),
    ]
    for found, expected in pairs:
        assert found.shape == expected.shape
    return max((a - b).abs().max().item() for a, b in pairs if a.numel()), sent


def _elements(traffic: Any) -> float:
    return sum(moved["elements"] for kinds in traffic.to_json().values() for moved in kinds.values())


@pytest.mark.parametrize("vocab", [16, 17, 1])
def test_one_table_looks_up_and_scores_as_a_whole_one_does(vocab: int) -> None:
    for worst, sent in spawn(_compare, 4, vocab):
        assert worst < 1e-12
        if vocab == 16:
            table, scores = vocab * DIM / 4, BATCH * SEQ * vocab / 4
            assert sent == {"lookup": table, "logits": table + scores, "backward": table + 2 * (table + scores)}


def _round(rank: int, world: int, port: int) -> list[float]:
    on = grid(rank, world, port)
    table = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    tokens = torch.zeros(1, 1000, dtype=torch.int64)
    grid_lookup(tokens, table, 4, on).backward(torch.ones(1, 1000, 1, dtype=torch.bfloat16))
    assert table.grad is not None
    return table.grad.flatten().tolist()


def test_a_row_that_many_tokens_use_is_summed_in_fp32() -> None:
    assert spawn(_round, 4) == [[2000.0, 0.0], [2000.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
