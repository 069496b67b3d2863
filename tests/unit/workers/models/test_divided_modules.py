"""Logits of own columns are a whole DTensor, and a norm over one rank is torch's."""

import torch
from harness.ranks import group, spawn
from torch.distributed.tensor import Shard

from shardyard.strategies.tensor_parallel.grid import Line
from shardyard.strategies.tensor_parallel.grid_norm import Over
from shardyard.workers.models.divided_modules import logits_over, norm_over
from shardyard.workers.models.norms import LayerNorm


def _divided(rank: int, world: int, port: int) -> tuple[list[int], float, bool]:
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    device = group(rank, world, port)
    assert dist.group.WORLD is not None
    columns, line = DeviceMesh.from_group(dist.group.WORLD, device.type), Line(dist.group.WORLD, rank)
    whole = torch.arange(2 * 3 * 5.0).view(2, 3, 5)
    own = whole.chunk(world, -1)[rank]
    logits = logits_over(own, 5, columns)
    assert logits.placements == (Shard(2),) and torch.equal(logits.full_tensor(), whole)
    norm, divided = torch.nn.LayerNorm(4).double(), LayerNorm(4, 1e-5).double()
    divided.weight = torch.nn.Parameter(divided.weight[2 * rank : 2 * rank + 2].detach())
    divided.bias = torch.nn.Parameter(divided.bias[2 * rank : 2 * rank + 2].detach())
    norm_over(divided, Over(4, 1e-5, line, ()))
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = divided(x[:, 2 * rank : 2 * rank + 2])
    difference = (found - norm(x)[:, 2 * rank : 2 * rank + 2]).abs().max().item()
    return list(logits.shape), difference, logits.stride() == whole.stride()


def test_what_ranks_divide_is_what_one_process_has() -> None:
    for shape, difference, strides in spawn(_divided, 2):
        assert shape == [2, 3, 5] and strides and difference < 1e-14
