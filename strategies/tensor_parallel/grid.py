"""A grid: the q × q ranks of a tensor group, and what their rows and columns send for products in two dimensions.

Rank i · q + j has row i and column j. Ranks of one row hold different columns of a matrix; ranks of one column hold different rows.
A matrix of any size is cut as by `torch.chunk` in both dimensions: its block (i, j) is on that rank, and blocks may be unequal or empty.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from ..mesh import TENSOR_COLUMN, TENSOR_ROW, Mesh
from ..param_shard import DimShard, shard_manually
from ..telemetry.current import now, wait_on

#: Waits for a collective and returns its result.
Pending = Callable[[], Tensor]


@dataclass(frozen=True)
class Line:
    """The ranks of one row or one column of the grid. `index` is this rank's place among them."""

    group: dist.ProcessGroup
    index: int

    @property
    def size(self) -> int:
        return self.group.size()

    def broadcast(self, block: Tensor, source: int, shape: Sequence[int]) -> Pending:
        """Start to send the `block` of place `source`, of `shape` there, to all. n(q−1)/q elements per rank, the mean over ranks."""
        since = now()
        mine = self.index == source
        buffer = block.contiguous() if mine else block.new_empty(*shape)
        work = dist.broadcast(buffer, group_src=source, group=self.group, async_op=True)
        assert work is not None

        def wait() -> Tensor:
            wait_on(work.wait, "broadcast", self.group, since)
            return buffer

        return wait

    def reduce(self, part: Tensor, target: int) -> Pending:
        """Start to sum `part` over the line in place `target`. What the others get is no sum. `part` is overwritten."""
        since = now()
        work = dist.reduce(part, group_dst=target, group=self.group, async_op=True)
        assert work is not None

        def wait() -> Tensor:
            wait_on(work.wait, "reduce", self.group, since)
            return part

        return wait

    def sum(self, part: Tensor) -> Tensor:
        """The sum over the line, on every rank, in place of `part`."""
        wait_on(lambda: dist.all_reduce(part, group=self.group), "all_reduce", self.group)
        return part

    def widths(self, whole: int) -> list[int]:
        """The widths of the chunks of a dimension of size `whole`, one per place."""
        return [width for _, width in self.spans(whole)]

    def spans(self, whole: int) -> list[tuple[int, int]]:
        """Start and width of each chunk."""
        chunk = -(-whole // self.size)
        starts = [min(place * chunk, whole) for place in range(self.size)]
        return [(start, min(chunk, whole - start)) for start in starts]


@dataclass(frozen=True)
class Grid:
    """`row`: the ranks of this rank's row, whose places are columns. `column`: those of its column, whose places are rows.

    `columns`: the row's ranks as a mesh, for DTensors.
    """

    row: Line
    column: Line
    columns: DeviceMesh

    @property
    def size(self) -> int:
        """q."""
        return self.row.size


def grid_of(mesh: Mesh) -> Grid:
    """The grid of this rank's tensor group. Raises `ValueError` for a mesh without one."""
    row, column = (Line(mesh.group(axis), mesh.index(axis)) for axis in (TENSOR_COLUMN, TENSOR_ROW))
    return Grid(row, column, mesh.device_mesh(TENSOR_COLUMN))


def one_ahead(start: Callable[[int], Pending], count: int) -> Iterator[Tensor]:
    """The results of `start(0)`, `start(1)`, …, each of which is started while the result before is in use."""
    coming = start(0)
    for place in range(count):
        arrived = coming()
        if place + 1 < count:
            coming = start(place + 1)
        yield arrived


def cut(owner: nn.Module, name: str, grid: Grid, *, rows: int | None = None, columns: int | None = None) -> None:
    """Keep only this rank's block of the module's own parameter `name`, of which the grid's rows divide dimension `rows`, the columns
    `columns`. None: not divided. The parameter stays a plain tensor, and is recorded as one (`shard_manually`).
    """
    for axis, dim, line in ((TENSOR_ROW, rows, grid.column), (TENSOR_COLUMN, columns, grid.row)):
        if dim is not None:
            shard_manually(owner, name, DimShard(axis, dim, line.size, line.index))
