"""A decoder as its formulas see it: the shapes of its parameters and the widths of its activations. Imports no torch."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ..data_parallel.shard_dim import shard_dim
from ..layout import Layout
from .stage_balance import ModuleCosts, stage_blocks


@dataclass(frozen=True)
class Weight:
    """A parameter [rows, columns] (vectors: one column). Tensor parallelism shards its rows (0), its columns (1), or nothing (None).

    `spread`: ranks that hold different ones of its kind, as of experts: each has a part of the replicas only. `copied`: it is whole on
    every rank of a grid, too, which divides every other parameter. `stack`: that many matrices are one parameter, as those of a rank's
    experts are. ZeRO divides the first dimension, or with `by_second`, where that is smaller than its ranks, the second (`shard_dim.py`).
    """

    rows: int
    columns: int = 1
    cut: int | None = None
    spread: int = 1
    copied: bool = False
    stack: int | None = None
    by_second: bool = False

    def of(self, layout: Layout, rank: int = 0) -> "Weight":
        """The part of this parameter on tensor rank `rank` of `layout`."""
        if layout.tensor_shape is None:
            plain = self.stack is not None or layout.tensor == 1
            return replace(self.of_rank(layout.tensor, rank), by_second=layout.zero == 3 and plain)
        on = self.on_cube if layout.tensor_shape.mode == "3d" else self.on_grid
        return on(layout.division.columns, rank)

    def on_grid(self, size: int, rank: int = 0) -> "Weight":
        """The block of this parameter on rank `rank` of a grid of `size` rows and columns; of a vector, the part of the rank's column.

        Where there are several grids, ranks are counted through all of them.
        """
        if self.copied:
            return self
        row, column = divmod(rank % size**2, size)
        if self.columns == 1:
            return Weight(share(self.rows, size, column))
        return Weight(share(self.rows, size, row), share(self.columns, size, column))

    def on_cube(self, size: int, rank: int = 0) -> "Weight":
        """The part of this parameter on rank `rank` of a cube of `size` ranks a side, as of a layer into a block.

        A layer out of a block has row and column exchanged: the first rank and the last hold as much of it.
        """
        if self.copied:
            return self
        depth, (row, column) = rank // size**2, divmod(rank % size**2, size)
        if self.columns == 1:
            return Weight(share(self.rows, size, row))
        return Weight(share(share(self.rows, size, column), size, depth), share(self.columns, size, row))

    def of_rank(self, tensor: int, rank: int = 0) -> "Weight":
        """The part of this parameter on tensor rank `rank` of `tensor`: the first has the most, the last the least."""
        if self.cut is None:
            return self
        if self.cut == 0:
            return replace(self, rows=share(self.rows, tensor, rank), cut=None)
        return replace(self, columns=share(self.columns, tensor, rank), cut=None)

    @property
    def elements(self) -> int:
        return (self.stack or 1) * self.rows * self.columns

    def chunk(self, parts: int) -> int:
        """Elements of the largest of `parts` chunks. All chunks are padded to it when they travel."""
        number, each, parts = self._divided(parts)
        return -(-number // parts) * each

    def chunk_of(self, parts: int, index: int) -> int:
        """Elements of the chunk that rank `index` of `parts` has."""
        number, each, parts = self._divided(parts)
        return share(number, parts, index // self.spread) * each

    def padded(self, parts: int) -> int:
        """Elements of all of `parts` chunks, each as large as the largest."""
        number, each, parts = self._divided(parts)
        return -(-number // parts) * each * parts

    def kept(self, parts: int, replicas: int) -> float:
        """Elements that each of `replicas` has in its snapshots, evenly, if ZeRO divides it over `parts` of them."""
        return self.chunk(parts) * max(1, parts // self.spread) / max(1, replicas // self.spread)

    def last_chunk(self, parts: int) -> int:
        """Elements of the smallest of `parts` chunks."""
        number, each, parts = self._divided(parts)
        return max(0, number - (parts - 1) * -(-number // parts)) * each

    def _divided(self, parts: int) -> tuple[int, int, int]:
        """What is divided over `parts`: how many, the elements of each, and into how many chunks."""
        parts = max(1, parts // self.spread)
        shape = (self.rows, self.columns) if self.stack is None else (self.stack, self.rows, self.columns)
        dim = shard_dim(shape, parts) if self.by_second else 0
        return shape[dim], math.prod(shape[:dim] + shape[dim + 1 :]), parts


@dataclass(frozen=True)
class Decoder:
    """Embedding, equal blocks, and the end (last norm and head). Widths in elements per token; a pipeline is split by `costs`."""

    layers: int
    dim: int
    query: int  # width of all heads' queries
    key: int  # of all heads' keys
    heads: int
    hidden: int
    vocab: int
    gated: bool  # the feed-forward has two column-sharded layers before its row-sharded one, and keeps their product as a third
    tied: bool
    embed: tuple[Weight, ...]
    block: tuple[Weight, ...]
    end: tuple[Weight, ...]
    costs: ModuleCosts
    experts: int | None = None  # of a mixture's block
    top_k: int = 1  # of them process each token
    capacity_factor: float | None = None  # an expert's most rows, as a multiple of those of an even distribution
    shared_experts: int = 0  # process every token; together one feed-forward of shared_experts · hidden columns
    positions: int = 0  # rows of a table of learned positions
    layer_norms: bool = False  # norms have a mean and a bias; otherwise RMSNorm
    qkv_biases: bool = False  # of q, k and v
    other_biases: bool = False  # of a block's other layers
    head_norms: bool = False  # of queries and keys

    @property
    def kv_heads(self) -> int:
        return self.heads * self.key // self.query

    @property
    def plain(self) -> bool:
        """Whether it has no biases, no norms of heads and no learned positions."""
        return not (self.positions or self.qkv_biases or self.other_biases or self.head_norms)

    def stages(self, layout: Layout, pipeline_rank: int) -> list[tuple[int, int]]:
        """(Stage, its number of blocks) for each stage of a pipeline rank."""
        blocks = stage_blocks(layout, self.costs)
        return [(stage, len(blocks[stage])) for stage in layout.stages_of(pipeline_rank)]

    def held(self, layout: Layout, pipeline_rank: int, tensor_rank: int = 0) -> list[Weight]:
        """The parameters of a pipeline rank, as the given tensor rank holds them."""
        weights: list[Weight] = []
        for stage, blocks in self.stages(layout, pipeline_rank):
            weights += self.embed if stage == 0 else ()
            weights += self.block * blocks
            weights += self.end if stage == layout.stages - 1 else ()
        return [weight.of(layout, tensor_rank) for weight in weights]

    @property
    def routed_flops(self) -> int:
        """FLOPs per token of a block's experts among which a router chooses, forward and backward."""
        return 0 if self.experts is None else 6 * self.top_k * (2 + self.gated) * self.dim * self.hidden

    def chunks_held(self, layout: Layout, parts: int) -> int:
        """The sum of `chunk(parts)` over the parameters of the first rank; of one part their elements."""
        return sum(self.chunks_by_spread(layout, parts).values())

    def chunks_by_spread(self, layout: Layout, parts: int) -> Mapping[int, int]:
        """The sums of `chunk(parts)` over the parameters of the first rank, by their `spread`.

        It is taken of one block for all of them, and remembered: a search over layouts asks for the same ones again and again.
        """
        degrees = (layout.tensor, layout.tensor_shape, layout.pipeline, layout.pipeline_blocks)
        key = (*degrees, layout.schedule, layout.virtual, layout.zero == 3, parts)
        if key not in self._sums:
            stages = self.stages(layout, 0)
            blocks = sum(count for _, count in stages)
            ends = any(stage == layout.stages - 1 for stage, _ in stages)
            sums: dict[int, int] = {}
            for times, part in ((1, self.embed), (blocks, self.block), (ends, self.end)):
                for weight in part:
                    chunk = times * weight.of(layout).chunk(parts)
                    sums[weight.spread] = sums.get(weight.spread, 0) + chunk
            self._sums[key] = sums
        return self._sums[key]

    @cached_property
    def _sums(self) -> dict[object, Mapping[int, int]]:
        return {}


def share(number: int, parts: int, index: int) -> int:
    """Rows in part `index` of `number`, as `torch.chunk` splits them into `parts`: the last parts may be smaller, or empty."""
    size = -(-number // parts)
    return max(0, min(size, number - index * size))


def elements(weights: Iterable[Weight]) -> int:
    return sum(weight.elements for weight in weights)


def last_chunks(weights: Iterable[Weight], parts: int) -> int:
    """The sum of the elements of each weight's smallest chunk."""
    return sum(weight.last_chunk(parts) for weight in weights)


def chunks(weights: Iterable[Weight], parts: int) -> int:
    """The sum of the elements of each weight's largest chunk."""
    return sum(weight.chunk(parts) for weight in weights)


def kept(weights: Iterable[Weight], parts: int, replicas: int) -> float:
    """The sum of the elements of each weight that a replica has in its snapshots."""
    return sum(weight.kept(parts, replicas) for weight in weights)


def padded(weights: Iterable[Weight], parts: int) -> int:
    """The sum of the elements of each weight's padded chunks."""
    return sum(weight.padded(parts) for weight in weights)
