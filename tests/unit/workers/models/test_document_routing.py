"""A mixture within packed documents is the mixture of each document alone, without its last token, which predicts nothing."""

from typing import Any

import pytest
import torch
from harness.decoders import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shardyard.strategies.documents import starts_of
from shardyard.workers.models.document_routing import _capacity, documents_of, kept_within
from shardyard.workers.models.init import initial_value
from shardyard.workers.models.moe import Mixture, capacity_of, within_capacity

EXPERTS, END = 5, 9
#: Rows of 12 tokens: a long document and one of its end alone; an end that is the row's last token; documents that rows cut.
TOKENS = torch.tensor([[1, 1, 1, 1, END, END, 1, 1, 1, 1, 1, 1], [1, END, 1, 1, 1, 1, 1, 1, 1, 1, 1, END]])


def mixture(**changes: Any) -> Mixture:
    arch = tiny(
        **{
            "family": "moe",
            "kv_heads": 2,
            "experts": EXPERTS,
            "top_k": 2,
            "balance_loss": 0.3,
            "z_loss": 0.2,
            **changes,
        }
    )
    layer = Mixture(arch).double()
    for name, parameter in layer.named_parameters():
        parameter.data = initial_value(f"blocks.0.mlp.{name}", parameter.shape, 3, arch).double() * 10
    if arch.balance == "bias":
        layer.expert_bias = torch.linspace(-0.1, 0.1, EXPERTS, dtype=torch.float64)
    layer.share = lambda: 0.125
    return layer


def documents(tokens: Tensor) -> list[tuple[int, slice]]:
    """The row of each document, and its tokens that predict one."""
    found = []
    for row, ids in enumerate(tokens.tolist()):
        start = 0
        for place, token in enumerate(ids):
            if token == END:
                found.append((row, slice(start, place)))
                start = place + 1
        found.append((row, slice(start, len(ids))))
    return [(row, part) for row, part in found if part.stop > part.start]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"capacity_factor": 0.5},
        {"capacity_factor": 1.0, "router_softmax": "all", "top_k": 1},
        {"capacity_factor": 0.75, "balance": "bias", "bias_update_speed": 0.01, "shared_experts": 2, "top_k": 3},
    ],
    ids=str,
)
def test_each_document_is_routed_alone(changes: dict[str, Any]) -> None:
    x = torch.randn(*TOKENS.shape, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parts, found = documents(TOKENS), []
    for packed in (True, False):
        layer, given_x = mixture(**changes), x.clone().requires_grad_()
        whole = layer(given_x, starts_of(TOKENS, END)) if packed else None
        outputs = [layer(given_x[row : row + 1, part])[0] if whole is None else whole[row, part] for row, part in parts]
        sum(out.square().sum() for out in outputs).backward()
        gradients = [given_x.grad, *(p.grad for p in layer.parameters())]
        found.append([*outputs, *gradients, layer.loads.double()])
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_validation_sums_over_tokens_with_a_target() -> None:
    x = torch.randn(*TOKENS.shape, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layer, sums = mixture(capacity_factor=0.5), []
    layer.tally = sums.append
    with torch.no_grad():
        layer(x, starts_of(TOKENS, END))
        for row, part in documents(TOKENS):
            layer(x[row : row + 1, part])
    torch.testing.assert_close(sums[0], torch.stack(sums[1:]).sum(0), rtol=1e-6, atol=0)
    assert sums[0][3] == sum(part.stop - part.start for _, part in documents(TOKENS)) and sums[0][2] > 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(7, END), min_size=9, max_size=9), st.floats(0.1, 2.5), st.integers(0, 2**16))
def test_an_expert_keeps_its_first_choices_of_each_document(row: list[int], factor: float, seed: int) -> None:
    tokens, generator = torch.tensor([row]), torch.Generator().manual_seed(seed)
    chosen = torch.rand(1, 9, EXPERTS, generator=generator).topk(2).indices
    kept = kept_within(chosen, starts_of(tokens, END), EXPERTS, factor)
    expected = torch.zeros_like(kept)
    for _, part in documents(tokens):
        capacity = capacity_of(part.stop - part.start, 2, EXPERTS, factor)
        expected[:, part] = within_capacity(chosen[:, part], EXPERTS, capacity)
    assert torch.equal(kept, expected)


@pytest.mark.parametrize("factor", [0.1, 0.75, 1.0, 1.1, 1.25, 3.0])
@pytest.mark.parametrize("experts", [3, 7, 64])
def test_a_document_has_the_capacity_of_a_sequence_of_its_length(factor: float, experts: int) -> None:
    lengths = torch.arange(200)
    expected = [capacity_of(length, 2, experts, factor) for length in lengths.tolist()]
    assert _capacity(lengths, 2, experts, factor).tolist() == expected


def test_a_rank_knows_the_documents_of_its_own_positions() -> None:
    starts, places = starts_of(TOKENS, END), torch.tensor([0, 1, 5, 11])
    found = documents_of(starts, places)
    assert found.first.tolist() == [[0, 0, 5, 6], [0, 0, 2, 2]] and found.length == 12
    assert found.counting.tolist() == [[True, True, False, True], [True, False, True, False]]
