"""Communication of hidden states over the tensor axis, beside the products that need it or make it.

Without chunks a product waits for the gather before it, and a sum for the product before it. In chunks of positions each chunk is sent
while others are multiplied: asynchronous tensor parallelism (Wang et al., "Overlap Communication with Dependent Computation via
Decomposition", ASPLOS 2023). A position's row of a product needs no other position, and a sum adds element by element: the results
are the same, of the same bytes in `chunks` times as many messages. A product of few rows reaches fewer FLOPs per second, and its
result is copied once to its positions.

One chunk is gathered at a time, while the one before it is multiplied: gloo's functional all-gathers are not safe beside each other
(heap corruption, torch 2.13), nor, as a crash suggests, beside a sum. Sums are: all of a layer may be in transit.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from ..activation_memory.selective import as_one
from ..telemetry.current import now, wait_on
from .functional_collectives import all_gather, all_reduce, arrived, reduce_scatter


class Axis:
    """The tensor axis: `sequence` says whether each of its `size` ranks holds a part of dim 1 of hidden states [batch, seq, dim]."""

    def __init__(self, mesh: DeviceMesh, sequence: bool, chunks: int = 1) -> None:
        self.sequence, self.chunks = sequence, chunks
        self._size, self._group = mesh.size(), mesh.get_group().group_name

    # Each of these two starts at once and returns a function that waits for the result.

    def gather(self, x: Tensor) -> Callable[[], Tensor]:
        """Parts of dim 1 → the whole."""
        parts = self._gather_parts(x)
        return lambda: parts().transpose(0, 1).flatten(1, 2)

    def sum(self, part: Tensor) -> Callable[[], Tensor]:
        """The sum over ranks: this rank's part of dim 1 with sequence parallelism, else the whole."""
        if self.sequence:
            return self._sum_parts(part.unflatten(1, (self._size, -1)).transpose(0, 1))
        since, started = now(), all_reduce(part.contiguous(), self._group)
        return lambda: self._arrived(started, "all_reduce", since)

    # Each of these two is a product and what it waits for, or what waits for it. A product is made row by row of […, dim].

    def gathered(self, x: Tensor, products: Callable[[Tensor], Sequence[Tensor]]) -> list[Tensor]:
        """The `products` of the whole of x. With sequence parallelism x is this rank's part of dim 1.

        Selective recompute keeps them, and not what is gathered.
        """
        if self.sequence and self.chunks > 1:
            return as_one(lambda: self._gathered_in_chunks(x, products))
        return as_one(lambda: products(self.gather(x)() if self.sequence else x))

    def _gathered_in_chunks(self, x: Tensor, products: Callable[[Tensor], Sequence[Tensor]]) -> list[Tensor]:
        chunks = list(x.chunk(self.chunks, 1))
        coming = self._gather_parts(chunks.pop(0))
        wholes: list[Tensor] = []
        begin = 0
        while begin < x.shape[1]:
            parts = coming()
            if chunks:
                coming = self._gather_parts(chunks.pop(0))
            results, end = products(parts.flatten(0, 2)), begin + parts.shape[2]
            wholes = wholes or [self._room(x, result) for result in results]
            for whole, result in zip(wholes, results, strict=True):
                whole[:, :, begin:end].copy_(result.unflatten(0, parts.shape[:3]).transpose(0, 1))
            begin = end
        return [whole.flatten(1, 2) for whole in wholes]

    def summed(self, x: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
        """The sum over ranks of the `product` of each rank's own x: this rank's part of dim 1 with sequence parallelism, else the whole.

        Selective recompute keeps it, and not the parts of the sum.
        """
        (whole,) = as_one(lambda: [self._summed_in_chunks(x, product)])
        return whole

    def _summed_in_chunks(self, x: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
        send = self._sum_parts if self.sequence else self.sum
        leaving = []
        for chunk in self._chunks(x):
            part = product(chunk.flatten(0, -2))
            leaving.append(send(part.unflatten(0, chunk.shape[:-1])))
        return torch.cat([wait() for wait in leaving], 1)

    def own_shape(self, x: Tensor, width: int) -> tuple[int, int, int]:
        """The shape of a sum of that width that is made of x."""
        batch, positions, _ = x.shape
        return batch, positions // self._size if self.sequence else positions, width

    def _chunks(self, x: Tensor) -> Sequence[Tensor]:
        """Chunks of positions, with sequence parallelism of the same positions of each rank's part: [ranks, batch, positions, …]."""
        parts: Tensor = x.unflatten(1, (self._size, -1)).transpose(0, 1) if self.sequence else x
        return parts.chunk(self.chunks, -2)

    def _gather_parts(self, x: Tensor) -> Callable[[], Tensor]:
        """Start to gather; wait for [ranks, batch, positions, dim]."""
        since, own = now(), x.contiguous()
        started = all_gather(own, self._size, self._group)

        def wait() -> Tensor:
            # `own` lives until then: a copy may still be read, and nothing says that the operator keeps it.
            parts: Tensor = self._arrived(started, "all_gather", since).unflatten(0, (self._size, own.shape[0]))
            return parts

        return wait

    def _sum_parts(self, parts: Tensor) -> Callable[[], Tensor]:
        """Start to sum [ranks, batch, positions, dim] over ranks; wait for this rank's part."""
        since = now()
        started = reduce_scatter(parts.flatten(0, 1).contiguous(), self._size, self._group)
        return lambda: self._arrived(started, "reduce_scatter", since)

    def _room(self, x: Tensor, result: Tensor) -> Tensor:
        """Room for such results of all positions: [batch, ranks, positions of a rank, width]."""
        batch, positions, _ = x.shape
        return result.new_empty((batch, self._size, positions, result.shape[-1]))

    def _arrived(self, started: Tensor, what: str, since: Any) -> Tensor:
        return wait_on(lambda: arrived(started), what, self._group, since)
