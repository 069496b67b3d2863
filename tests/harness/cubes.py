"""A cube of ranks over gloo, and the parts of whole tensors on it."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from shardyard.strategies.mesh import TENSOR_COLUMN, TENSOR_DEPTH, TENSOR_ROW
from shardyard.strategies.param_shard import DimShard, narrow, slice_of
from shardyard.strategies.process_groups import group_of_mine
from shardyard.strategies.telemetry.comm_counter import Traffic
from shardyard.strategies.tensor_parallel.cube import Cube, Side, Way

from .ranks import group


def cube(rank: int, world: int, port: int) -> Cube:
    """The whole world as a cube of ∛world ranks a side."""
    device = group(rank, world, port)
    size = round(world ** (1 / 3))
    ranks = torch.arange(world).view(size, size, size)
    sides = []
    for dim, axis in enumerate((TENSOR_DEPTH, TENSOR_ROW, TENSOR_COLUMN)):
        lines = group_of_mine(ranks.transpose(dim, 2).reshape(-1, size).tolist(), axis)
        sides.append(Side(lines, rank // size ** (2 - dim) % size, axis))
    depth, row, column = sides
    return Cube(depth, row, column, DeviceMesh.from_group(column.group, device.type))


def part(whole: Tensor, cuts: Sequence[tuple[Side, int]]) -> Tensor:
    """This rank's part of a tensor after `cuts`, in order: a line and the dimension that it divides."""
    found = [DimShard(side.axis, dim, side.size, side.index) for side, dim in cuts]
    return narrow(whole, *slice_of(whole.shape, found)).contiguous()


def of_way(whole: Tensor, on: Cube, way: Way, outputs: bool = False) -> Tensor:
    """This rank's part of the inputs [batch, seq, width] of layers of a way, or of their `outputs`."""
    rows, columns = (way.summed, way.gathered) if outputs else (way.gathered, way.summed)
    return part(whole, [(on.depth, 0), (rows, 0), (columns, 2)])


def weight_of(whole: Tensor, on: Cube, way: Way) -> Tensor:
    """This rank's part of a weight [out, in] of a layer of a way."""
    return part(whole, [(way.gathered, 0), (way.summed, 1), (on.depth, 0)])


def counted(on: Cube) -> Traffic:
    """A counter that names the lines of the cube."""
    return Traffic({side.group.group_name: side.axis.removeprefix("tensor_") for side in (on.depth, on.row, on.column)})


def elements(traffic: Traffic) -> float:
    """All that was sent, over all lines and kinds."""
    return sum(moved["elements"] for kinds in traffic.to_json().values() for moved in kinds.values())
