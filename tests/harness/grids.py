"""A grid of ranks over gloo, and the blocks of whole matrices on it."""

import math

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from shardyard.strategies.mesh import TENSOR_COLUMN, TENSOR_ROW
from shardyard.strategies.param_shard import DimShard, narrow, slice_of
from shardyard.strategies.process_groups import group_of_mine
from shardyard.strategies.telemetry.comm_counter import Traffic
from shardyard.strategies.tensor_parallel.grid import Grid, Line

from .ranks import group


def grid(rank: int, world: int, port: int) -> Grid:
    """The whole world as a grid of √world × √world ranks."""
    device = group(rank, world, port)
    size = math.isqrt(world)
    ranks = torch.arange(world).view(size, size)
    row = group_of_mine(ranks.tolist(), "row")
    column = group_of_mine(ranks.t().tolist(), "column")
    columns = DeviceMesh.from_group(row, device.type)
    return Grid(Line(row, rank % size), Line(column, rank // size), columns)


def block(whole: Tensor, on: Grid, rows: int | None = 0, columns: int | None = 1) -> Tensor:
    """This rank's block of a matrix whose dimension `rows` the grid's rows divide, and `columns` its columns."""
    cuts = ((TENSOR_ROW, rows, on.column), (TENSOR_COLUMN, columns, on.row))
    found = [DimShard(axis, dim, line.size, line.index) for axis, dim, line in cuts if dim is not None]
    return narrow(whole, *slice_of(whole.shape, found)).contiguous()


def counted(on: Grid) -> Traffic:
    """A counter that names the groups of the grid."""
    return Traffic({on.row.group.group_name: "row", on.column.group.group_name: "column"})


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers, the same on every rank."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
