from typing import Any

import pytest
from harness.ranks import group, spawn


def test_a_direction_is_the_sign_of_the_mean_less_the_load() -> None:
    import torch

    from shardyard.strategies.expert_balance import directions

    # A mean of 10/3 is between 3 and 4; loads beyond what fp32 counts are compared exactly.
    large = 3 * 2**40
    loads = torch.tensor([[3, 4, 3], [5, 5, 5], [large, large - 1, large + 1]])
    assert directions(loads).tolist() == [[1, -1, 1], [0, 0, 0], [0, 1, -1]]


def moved(rank: int, world: int, port: int, layout: dict[str, int]) -> dict[str, Any]:
    """The biases of a rank whose expert 0 got `rank` tokens more than the others in each of two micro-batches."""
    import torch
    from torch import Tensor, nn

    from shardyard.strategies.expert_balance import ExpertBalance
    from shardyard.strategies.layout import Layout
    from shardyard.strategies.mesh import make_mesh

    class Mixture(nn.Module):
        expert_bias: Tensor | None

        def __init__(self, speed: float | None) -> None:
            super().__init__()
            self.expert_bias, self.loads, self.bias_update_speed = None, torch.zeros(3, dtype=torch.int64), speed

    mesh = make_mesh(Layout(**layout), group(rank, world, port))
    part = nn.ModuleDict({"first": Mixture(0.5), "none": Mixture(None), "last": Mixture(0.5)})
    balance = ExpertBalance([part], mesh, torch.bfloat16)
    for _ in range(2):
        part["first"].loads.add_(torch.tensor([1 + rank, 1, 1]))
    balance.update()
    part["last"].loads.add_(torch.tensor([0, 9, 0]))
    balance.forget()
    balance.update()
    assert part["none"].expert_bias is None
    return {shard.name: (shard.tensor.tolist(), str(shard.tensor.dtype), shard.owned(mesh)) for shard in balance.shards}


@pytest.mark.parametrize("layout", [{"data": 2}, {"context": 2}, {"tensor": 2}], ids=str)
def test_replicas_move_by_the_loads_of_all_and_one_of_them_saves(layout: dict[str, int]) -> None:
    first, second = spawn(moved, 2, layout)
    # Ranks of a tensor group see the same tokens, so that each moves by its own loads alone.
    own = [0.0, 0.0, 0.0] if "tensor" in layout else [-0.5, 0.5, 0.5]
    assert first == {
        "first.expert_bias": (own, "torch.float32", True),
        "last.expert_bias": ([0.0, 0.0, 0.0], "torch.float32", True),
    }
    assert second == {
        "first.expert_bias": ([-0.5, 0.5, 0.5], "torch.float32", False),
        "last.expert_bias": ([0.0, 0.0, 0.0], "torch.float32", False),
    }
