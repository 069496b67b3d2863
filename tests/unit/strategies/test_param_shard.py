"""Slices of all ranks tile the parameter: none missing, none twice."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from shardyard.strategies.param_shard import DimShard, Tie, frozen_names, narrow, note_ties, slice_of


@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    tensor=st.integers(1, 4),
    data=st.integers(1, 5),
    dim=st.integers(0, 2),
)
def test_slices_tile(shape: list[int], tensor: int, data: int, dim: int) -> None:
    dim = min(dim, len(shape) - 1)
    seen = torch.zeros(shape, dtype=torch.int64)
    for t in range(tensor):
        for d in range(data):
            offset, size = slice_of(shape, [DimShard("tensor", dim, tensor, t), DimShard("data", 0, data, d)])
            narrow(seen, offset, size).add_(1)
    assert (seen == 1).all()


@given(rows=st.integers(1, 20), parts=st.integers(1, 6))
def test_cuts_as_torch_chunks(rows: int, parts: int) -> None:
    whole = torch.arange(rows)
    chunks = list(whole.chunk(parts))
    for index in range(parts):
        own = narrow(whole, *slice_of([rows], [DimShard("data", 0, parts, index)]))
        assert own.tolist() == (chunks[index].tolist() if index < len(chunks) else [])


def test_frozen_parameters_have_all_their_names_and_a_tied_one_that_of_the_first_stage() -> None:
    part = nn.ModuleDict({"first": nn.Linear(2, 2), "same": nn.Linear(2, 2), "head": nn.Linear(2, 2)})
    part["same"].weight = part["first"].weight
    assert frozen_names([part]) == set()
    part["first"].weight.requires_grad_(False)
    part["head"].bias.requires_grad_(False)
    note_ties(part, {"head.bias": Tie("embed.bias", (0, 1), 1), "head.weight": Tie("embed.weight", (0, 1), 1)})
    assert frozen_names([part]) == {"first.weight", "same.weight", "embed.bias"}
