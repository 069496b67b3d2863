"""A mixture of experts equals a loop over tokens and experts; capacity and auxiliary losses are as published."""

import math

import pytest
import torch
from harness.decoders import decoder, tiny, token_ids
from torch import Tensor
from torch.nn import functional as F

from shardyard.workers.models.experts import Experts
from shardyard.workers.models.init import initial_value
from shardyard.workers.models.moe import Mixture, balance_loss, route, rows_each, within_capacity, z_loss

EXPERTS = 5


def mixture(**changes: object) -> Mixture:
    numbers = {"family": "moe", "kv_heads": 2, "experts": EXPERTS, "top_k": 2}
    arch = tiny(**{**numbers, **changes})
    layer = Mixture(arch).double()
    for name, parameter in layer.named_parameters():
        values = initial_value(f"blocks.0.mlp.{name}", parameter.shape, 3, arch)
        parameter.data = values.double() * 10
    return layer


def inputs(batch: int = 3, seq: int = 11, dim: int = 32) -> Tensor:
    return torch.randn(batch, seq, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def naive(layer: Mixture, x: Tensor) -> Tensor:
    """Token by token and expert by expert, as the papers say it."""
    arch, out = layer.arch, torch.zeros_like(x)
    batch, seq, _ = x.shape
    capacity = math.inf
    if arch.capacity_factor is not None:
        capacity = math.ceil(arch.capacity_factor * seq * arch.top_k / EXPERTS)
    for b in range(batch):
        taken = [0] * EXPERTS
        for turn in range(arch.top_k):
            for t in range(seq):
                logits = layer.router.weight @ x[b, t]
                best = sorted(range(EXPERTS), key=lambda e: -logits[e].item())[: arch.top_k]
                over = logits[best] if arch.router_softmax == "chosen" else logits
                expert = best[turn]
                if taken[expert] < capacity:
                    taken[expert] += 1
                    weight = logits[expert].exp() / over.exp().sum()
                    out[b, t] += weight * feed_forward(layer.experts, expert, x[b, t])
    return out


def feed_forward(experts: Experts, number: int, x: Tensor) -> Tensor:
    return experts.down[number] @ (F.silu(experts.gate[number] @ x) * (experts.up[number] @ x))


@pytest.mark.parametrize("softmax", ["chosen", "all"])
@pytest.mark.parametrize("capacity", [None, 0.5, 1.0, 1.3])
@pytest.mark.parametrize("top_k", [1, 2, 5])
def test_equals_a_loop_over_tokens_and_experts(softmax: str, capacity: float | None, top_k: int) -> None:
    layer = mixture(router_softmax=softmax, capacity_factor=capacity, top_k=top_k)
    found = []
    for run in (layer, lambda x: naive(layer, x)):
        x = inputs().requires_grad_()
        layer.zero_grad()
        layer.share = lambda: 0.0
        out = run(x)
        out.square().sum().backward()
        found.append([out, x.grad, *(p.grad.clone() for p in layer.parameters())])
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-12)


def test_a_full_expert_drops_second_choices_before_first_and_later_tokens_before_earlier() -> None:
    chosen = torch.tensor([[[0, 1], [0, 1], [1, 0], [0, 2]]])
    kept = within_capacity(chosen, 3, 2)
    assert kept.tolist() == [[[True, True], [True, False], [True, False], [False, True]]]


def test_other_sequences_change_nothing() -> None:
    layer, x = mixture(capacity_factor=0.6), inputs()
    torch.testing.assert_close(layer(x)[1:2], layer(x[1:2]), rtol=1e-13, atol=1e-13)


def test_balance_loss_is_one_per_token_where_all_is_even_and_more_where_not() -> None:
    even = torch.zeros(2, 4, 4, dtype=torch.float64)
    chosen = torch.tensor([[[0], [1], [2], [3]]] * 2)
    assert balance_loss(even, chosen, lambda counts: counts).item() == pytest.approx(8)
    skewed = torch.zeros(1, 4, 4, dtype=torch.float64)
    skewed[..., 0] = 50
    assert balance_loss(skewed, torch.zeros(1, 4, 1, dtype=torch.int64), lambda counts: counts).item() == pytest.approx(
        16
    )


def test_parts_of_a_sequence_add_up_to_its_balance_loss() -> None:
    logits = inputs(2, 8, EXPERTS)
    chosen = route(logits, 2, "all", None).chosen
    whole = F.one_hot(chosen, EXPERTS).sum((1, 2)).double()
    halves = [
        balance_loss(part, picked, lambda _: whole, 2)
        for part, picked in zip(logits.chunk(2, 1), chosen.chunk(2, 1), strict=True)
    ]
    assert sum(halves).item() == pytest.approx(balance_loss(logits, chosen, lambda counts: counts).item(), rel=1e-13)


def test_auxiliary_losses_enter_the_gradients_as_if_they_were_in_the_loss() -> None:
    found = []
    for attached in (True, False):
        layer, x = mixture(balance_loss=0.3, z_loss=0.2), inputs().requires_grad_()
        layer.share = lambda attached=attached: 0.125 if attached else 0.0
        loss = layer(x).square().sum()
        if not attached:
            logits = layer.router(x)
            chosen = logits.topk(2, dim=-1).indices
            loss = loss + 0.125 * (0.3 * balance_loss(logits, chosen, lambda counts: counts) + 0.2 * z_loss(logits))
        loss.backward()
        found.append([x.grad, *(p.grad for p in layer.parameters())])
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_shared_experts_add_their_results_for_every_token() -> None:
    layer, x = mixture(shared_experts=2), inputs()
    assert layer.shared_experts is not None
    shared, hidden = layer.shared_experts, layer.arch.hidden
    expected = naive(layer, x)
    for own in (slice(0, hidden), slice(hidden, 2 * hidden)):
        gate, up, down = shared.gate.weight[own], shared.up.weight[own], shared.down.weight[:, own]
        expected = expected + F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
    torch.testing.assert_close(layer(x), expected, rtol=1e-11, atol=1e-12)


BIAS = torch.tensor([0.3, -0.3, 0.0, 0.0, 0.1], dtype=torch.float64)


def test_a_bias_decides_the_choice_and_no_weight() -> None:
    """DeepSeek-V3 (2412.19437), equations 13 to 16, token by token."""
    logits = inputs(2, 4, EXPERTS)
    found = route(F.logsigmoid(logits), 2, "chosen", None, bias=BIAS)
    for token, chosen, weights in zip(
        logits.flatten(0, 1), found.chosen.flatten(0, 1), found.weights.flatten(0, 1), strict=True
    ):
        s = [1 / (1 + math.exp(-logit)) for logit in token.tolist()]
        best = sorted(range(EXPERTS), key=lambda e: -(s[e] + BIAS[e].item()))[:2]
        assert chosen.tolist() == best
        assert weights.tolist() == pytest.approx([s[e] / sum(s[b] for b in best) for e in best], rel=1e-12)
    assert not torch.equal(found.chosen, route(F.logsigmoid(logits), 2, "chosen", None, bias=0 * BIAS).chosen)


def test_no_bias_is_in_the_balance_loss() -> None:
    """DeepSeek-V3 (2412.19437), equation 18. Of loads that biases have evened it would have no gradient."""
    found = []
    for bias in (0 * BIAS, BIAS):
        layer, sums = mixture(balance="bias"), list[torch.Tensor]()
        layer.expert_bias, layer.tally = bias, sums.append
        with torch.no_grad():
            layer(inputs(2, 7))
        found.append(sums[0][0].item())
    assert found[0] == found[1] > 2 * 7


def test_affinities_that_round_to_zero_still_have_weights() -> None:
    logits = torch.full((1, 1, 3), -200.0)
    weights = route(F.logsigmoid(logits), 2, "chosen", None, bias=torch.zeros(3)).weights
    assert weights.flatten().tolist() == [0.5, 0.5]


def test_loads_count_a_micro_batch_once() -> None:
    """Neither a validation nor a second backward pass counts."""
    layer, x = mixture(balance="bias"), inputs(2, 7).requires_grad_()
    with torch.no_grad():
        layer(x)
    out = layer(x)
    assert layer.loads.tolist() == [0] * EXPERTS
    chosen = (layer.router(x).sigmoid()).topk(2, dim=-1).indices
    for _ in range(2):
        out.sum().backward(retain_graph=True)
        assert torch.equal(layer.loads, chosen.flatten().bincount(minlength=EXPERTS))
    layer(x).sum().backward()
    assert torch.equal(layer.loads, 2 * chosen.flatten().bincount(minlength=EXPERTS))


def test_a_dropped_choice_is_a_load() -> None:
    layer = mixture(balance="bias", capacity_factor=0.5)
    layer(inputs(2, 7).requires_grad_()).sum().backward()
    assert layer.loads.sum() == 2 * 7 * 2


def test_an_expert_that_no_token_chose_has_a_gradient_of_zeros() -> None:
    layer = mixture(top_k=1, balance_loss=0.0, z_loss=0.0)
    x = inputs(1, 1)
    layer(x).sum().backward()
    chosen = layer.router(x).argmax().item()
    norms = layer.experts.gate.grad.flatten(1).norm(dim=1)
    assert [number for number, norm in enumerate(norms.tolist()) if norm] == [chosen]


def test_rows_of_no_expert_are_counted_for_none() -> None:
    place = torch.tensor([3, 0, 2, 0, 3, 3])
    assert rows_each(place, 3).tolist() == place.bincount(minlength=4)[:3].tolist() == [2, 0, 1]
    assert rows_each(place[:0], 3).tolist() == [0, 0, 0]


def test_routes_in_fp32_at_least() -> None:
    layer = mixture()
    assert layer.router(inputs()).dtype == torch.float64
    assert layer.bfloat16().router(inputs().bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("shared", [0, 3])
def test_is_a_decoder_with_as_many_parameters_as_its_architecture_says(shared: int) -> None:
    arch = tiny("moe", experts=EXPERTS, kv_heads=2, shared_experts=shared, balance="bias")
    model = decoder(arch)
    assert sum(p.numel() for p in model.parameters()) == arch.parameters
    assert model(token_ids(arch, 0)).shape == (3, 32, arch.vocab)
