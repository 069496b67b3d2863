from typing import Any

import pytest
from harness.ranks import group, spawn

from shardyard.strategies.layout import Layout, ModelFacts, Refusal
from shardyard.strategies.layout_rules import check_layout

FACTS = ModelFacts(layers=4, heads=4, kv_heads=2, hidden=24, experts=6)


def exchanged(rank: int, world: int, port: int, empty: bool, most_rows: int | None = None) -> list[float]:
    """The largest differences of results and gradients of spread experts from those of all experts on one rank.

    `most_rows`: buffers of fixed size are exchanged, as on a GPU, and the last two rows belong to no expert.
    """
    import torch
    import torch.distributed as dist
    from torch import Tensor

    from shardyard.strategies import expert_parallel

    if most_rows is not None:
        expert_parallel.fixed_sizes = lambda _: True
    group(rank, world, port)
    experts, dim = 2 * world, 5
    noise = torch.Generator().manual_seed(1)
    weights = torch.randn(experts, dim, dim, dtype=torch.float64, generator=noise)
    per_rank = [torch.randint(0, 4, (experts,), generator=noise) for _ in range(world)]
    if empty:
        per_rank[0][:] = 0  # rank 0 has no token
        for counts in per_rank:
            counts[-2:] = 0  # the last rank's experts get none
    counts = per_rank[rank]
    of_none = 0 if most_rows is None else 2
    rows = torch.randn(int(counts.sum()) + of_none, dim, dtype=torch.float64, generator=noise.manual_seed(rank))

    def compute(own: Tensor) -> Any:
        def computed(x: Tensor, n: Tensor | None) -> Tensor:
            if n is None:
                return x @ own
            parts = x.split([*n.tolist(), len(x) - int(n.sum())])
            return torch.cat([*(p @ w for p, w in zip(parts, own, strict=False)), torch.zeros_like(parts[-1])])

        return computed

    found = []
    for spread in (True, False):
        own = (weights[2 * rank : 2 * rank + 2] if spread else weights).clone().requires_grad_()
        x = rows.clone().requires_grad_()
        exchange = expert_parallel.Exchange(dist.group.WORLD)
        out = exchange(x, counts, most_rows, compute(own)) if spread else compute(own)(x, counts)
        out.tanh().sum().backward()
        grad = own.grad
        if not spread:  # what all ranks' tokens taught the experts that this rank holds
            dist.all_reduce(grad)
            grad = grad[2 * rank : 2 * rank + 2]
        found.append((out, x.grad, grad))
    return [
        float((ours - expected).abs().max()) if ours.numel() else 0.0 for ours, expected in zip(*found, strict=True)
    ]


@pytest.mark.parametrize("most_rows", [None, 5])
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("world", [2, 3])
def test_spread_experts_equal_local_ones(world: int, empty: bool, most_rows: int | None) -> None:
    for differences in spawn(exchanged, world, empty, most_rows):
        assert max(differences) < 1e-13


def places(rank: int, world: int, port: int, layout: dict[str, int]) -> tuple[int, int, int, int]:
    from shardyard.strategies.mesh import EXPERT_REPLICA, REPLICA, make_mesh

    mesh = make_mesh(Layout(**layout), group(rank, world, port))
    return tuple(mesh.index(axis) for axis in ("pipeline", REPLICA, EXPERT_REPLICA, "expert"))


def test_expert_groups_are_neighbouring_replicas() -> None:
    found = spawn(places, 8, {"data": 4, "tensor": 2, "expert": 2})
    assert [place[1:] for place in found[::2]] == [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)]
    assert found[::2] == found[1::2]


@pytest.mark.parametrize("layout", [{"data": 4, "expert": 4}, {"data": 3, "expert": 2}])
def test_a_degree_must_divide_experts_and_replicas(layout: dict[str, int]) -> None:
    with pytest.raises(Refusal, match=r"must divide the model's 6 experts") as refused:
        check_layout(Layout(**layout), FACTS, 12, 32)
    assert refused.value.field == "layout.expert"
    assert refused.value.remedy == f"Legal expert degrees here: {[1, 2] if layout['data'] == 4 else [1, 3]}."


def test_experts_need_a_model_that_has_some() -> None:
    dense = ModelFacts(layers=4, heads=4, kv_heads=2, hidden=24)
    with pytest.raises(Refusal, match="no experts to spread"):
        check_layout(Layout(data=2, expert=2), dense, 12, 32)


@pytest.mark.parametrize(("shard", "expert"), [(2, 2), (3, 3), (6, 3), (6, 2), (2, 6), (4, 1)])
def test_groups_that_shard_hold_all_experts_as_often_or_each_at_most_once(shard: int, expert: int) -> None:
    check_layout(Layout(data=12, zero=3, shard=shard, expert=expert), FACTS, 12, 32)


@pytest.mark.parametrize(("shard", "expert", "legal"), [(4, 6, [2, 3, 6]), (3, 2, [2, 4, 6]), (4, 3, [3, 6])])
def test_groups_that_some_experts_stand_in_more_often_are_refused(shard: int, expert: int, legal: list[int]) -> None:
    with pytest.raises(Refusal, match="would stand more often than others") as refused:
        check_layout(Layout(data=12, zero=3, shard=shard, expert=expert), FACTS, 12, 32)
    assert refused.value.remedy == f"Use one of {legal}, or leave layout.shard out."


def test_text_says_over_how_many_replicas_experts_are_spread() -> None:
    assert str(Layout(data=4, expert=2, tensor=2)) == "data 4 × tensor 2, experts over 2 replicas"
