"""A cube: the l × l × l ranks of a tensor group, and what its lines gather and sum for products in three dimensions (2105.14450).

Rank (depth · l + row) · l + column has these three places. A matrix is divided evenly over all l³ ranks: two axes divide its two
dimensions, and the third divides the rows of each block once more. A product gathers both operands along one line each, multiplies, and
sums along the third line:

- hidden states between layers: depth and column divide the sequences, row divides the width.
- hidden states inside attention and feed-forward, and logits: depth and row divide the sequences, column divides the width.

So a layer into a block's inside exchanges the parts of row and column, and a layer out of it exchanges them back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from ..collectives import Pending, all_gather, exchange_and_sum, reduce_scatter
from ..mesh import TENSOR_COLUMN, TENSOR_DEPTH, TENSOR_ROW, Mesh
from ..param_shard import DimShard, shard_manually
from .grid import Line


@dataclass(frozen=True)
class Side(Line):
    """The ranks that differ in their place on the mesh axis `axis`. `reduces`: as of `Mesh`."""

    axis: str
    reduces: bool = False

    def own(self, whole: int) -> int:
        """The width of this rank's chunk of a dimension of size `whole`."""
        return self.widths(whole)[self.index]

    def gather(self, block: Tensor, rows: int) -> Pending:
        """Start to gather the chunks `block` [own rows, width] of `rows` rows: [rows, width]. Chunks travel padded to equal size.

        ⌈rows/l⌉·width·(l−1) elements leave each rank.
        """
        width = block.shape[1]
        if not rows:
            return lambda: block
        arriving = all_gather(_padded(block, self.widths(rows)[0]).view(-1), self.group)
        return lambda: arriving().view(-1, width)[:rows]

    def scatter(self, part: Tensor) -> Pending:
        """Start to sum `part` [rows, width] over the line: this rank's chunk of the sum, [own rows, width].

        As many elements leave each rank as in `gather`. gloo sums half precision in fp32; the result has the dtype of `part`.
        """
        (rows, width), chunk = part.shape, self.widths(len(part))[0]
        if not rows:
            return lambda: part
        each = _padded(part, self.size * chunk).view(self.size, -1)
        arriving = reduce_scatter(each, self.group) if self.reduces else exchange_and_sum(each, self.group)
        own, dtype = self.own(rows), part.dtype
        return lambda: arriving().view(-1, width)[:own].to(dtype)


def _padded(rows: Tensor, count: int) -> Tensor:
    """`rows` and rows of zeros below, `count` in all, one after the other in memory."""
    return rows.contiguous() if len(rows) == count else nn.functional.pad(rows, (0, 0, 0, count - len(rows)))


@dataclass(frozen=True)
class Way:
    """A direction of layers: their inputs are gathered along `gathered`, which divides their outputs; and conversely `summed`."""

    gathered: Side
    summed: Side


@dataclass(frozen=True)
class Cube:
    """The three lines of this rank. `logits_mesh`: the ranks of `column` as a mesh, for DTensors."""

    depth: Side
    row: Side
    column: Side
    logits_mesh: DeviceMesh

    @property
    def into(self) -> Way:
        """From hidden states between layers to those inside a block, or to logits."""
        return Way(self.column, self.row)

    @property
    def out_of(self) -> Way:
        """From inside a block to hidden states between layers."""
        return Way(self.row, self.column)


def cube_of(mesh: Mesh) -> Cube:
    """The cube of this rank's tensor group. Raises `ValueError` for a mesh without one."""
    axes = (TENSOR_DEPTH, TENSOR_ROW, TENSOR_COLUMN)
    depth, row, column = (Side(mesh.group(axis), mesh.index(axis), axis, mesh.reduces) for axis in axes)
    return Cube(depth, row, column, mesh.device_mesh(TENSOR_COLUMN))


def cut_over(owner: nn.Module, name: str, cuts: Sequence[tuple[Side, int]]) -> None:
    """Keep only this rank's part of the module's own parameter `name` after `cuts`, in order: a line and the dimension that it divides.

    The parameter stays a plain tensor, and is recorded as one (`shard_manually`).
    """
    for side, dim in cuts:
        shard_manually(owner, name, DimShard(side.axis, dim, side.size, side.index))
