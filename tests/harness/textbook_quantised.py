"""The textbook's loop with ZeRO++'s rounding (2306.10209), in one process: for Llamas, whose parameters have our shapes.

What it knows stands in `docs/design/zero-plus-plus.md`: which numbers are a block, which sequences are whose, and when sums are rounded.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .quantised import reduced, rounded
from .textbook import Spec, Textbook

#: The dimension that tensor parallelism cuts; other parameters are whole on every rank.
CUT = {r"[qkv]_proj|gate_proj|up_proj|lm_head": 0, r"o_proj|down_proj|embed_tokens": 1}


class Quantised(Textbook):
    """`layout.micro_batch` is written out."""

    def __init__(self, spec: Spec, **more: Any) -> None:
        layout = spec["layout"]
        self.given: dict[str, Any] = layout["zero_plus_plus"]
        self.replicas, self.tensor = layout["data"], layout.get("tensor", 1)
        self.shard = layout.get("shard", self.replicas)
        self.size = layout["micro_batch"]
        self.each = layout["zero"] > 1 and layout.get("pipeline", 1) == 1
        super().__init__(spec, **more)
        self.names = {parameter: name for name, parameter in self.model.named_parameters()}

    def train(self, step: int) -> None:
        rate = self.learning_rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        rows = self.corpus.training(self.first_samples[step - 1], self.batches[step - 1], self.spec["seed"])
        masters = self.rounded()
        loss = self.gradients(rows)
        self.put(masters)
        norm = self.clip()
        self.optimizer.step()
        self.record.rates.append(rate)
        self.record.losses.append(loss)
        self.record.norms.append(norm.item())

    def validate(self, batch: int) -> float:
        masters = self.rounded()
        loss = super().validate(batch)
        self.put(masters)
        return loss

    def gradients(self, rows: Tensor) -> float:
        """Set the gradient of every parameter; returns the loss of all rows."""
        parts = list(self.parts(rows))
        total = {parameter: torch.zeros_like(parameter) for parameter in self.names}
        losses = []
        for ranks in parts:
            found = []
            for own in ranks:
                loss = self.loss(own, **self.spec["loss"]) * len(own) / len(rows)
                found.append(torch.autograd.grad(loss, list(self.names)))
                losses.append(loss.item())
            for parameter, each in zip(self.names, zip(*found, strict=True), strict=True):
                total[parameter] += self.sum(parameter, each)
        for parameter, gradient in total.items():
            parameter.grad = gradient
        return sum(losses)

    def parts(self, rows: Tensor) -> Iterator[list[Tensor]]:
        """The rows of each rank whose gradients are reduced together: of a micro-batch, or of all."""
        by_rank = rows.view(-1, self.replicas, self.size, rows.shape[1])
        if self.each:
            yield from (list(microbatch) for microbatch in by_rank)
        else:
            yield [by_rank[:, rank].flatten(0, 1) for rank in range(self.replicas)]

    def sum(self, parameter: nn.Parameter, gradients: Sequence[Tensor]) -> Tensor:
        """The sum over ranks, in groups of `shard`, each number as the rank that shards it gets it."""
        if self.given.get("gradients") is None:
            return torch.stack(list(gradients)).sum(0)
        groups = [gradients[first : first + self.shard] for first in range(0, self.replicas, self.shard)]
        return torch.stack([self.mapped(parameter, group, self.reduced) for group in groups]).sum(0)

    def reduced(self, rows: Sequence[Any]) -> Any:
        bits = int(self.given["gradients"].removeprefix("int"))
        node = self.given.get("node") or self.given.get("secondary")
        return reduced(rows, [len(rows[0])], self.given["block"], bits, node)

    def rounded(self) -> list[Tensor]:
        """Let the model compute with rounded weights; returns those before."""
        before = [parameter.detach().clone() for parameter in self.names]
        if self.given.get("weights"):
            self.put([self.mapped(parameter, [parameter.detach()], self.round_row) for parameter in self.names])
        return before

    def round_row(self, rows: Sequence[Any]) -> Any:
        return rounded(rows[0], [len(rows[0])], self.given["block"], 8)

    @torch.no_grad()
    def put(self, values: Sequence[Tensor]) -> None:
        for parameter, value in zip(self.names, values, strict=True):
            parameter.copy_(value)

    def mapped(
        self, parameter: nn.Parameter, values: Sequence[Tensor], change: Callable[[Sequence[Any]], Any]
    ) -> Tensor:
        """What `change` makes of each shard of `values`: equal numbers of rows, the last ones filled with zeros, as one row of numbers."""
        dims = [dim for pattern, dim in CUT.items() if re.search(pattern, self.names[parameter])]
        cut = dims[0] if dims and self.tensor > 1 else None
        pieces = [[value] if cut is None else value.chunk(self.tensor, cut) for value in values]
        found = [self.mapped_piece(piece, change) for piece in zip(*pieces, strict=True)]
        return found[0] if cut is None else torch.cat(found, cut)

    def mapped_piece(self, values: Sequence[Tensor], change: Callable[[Sequence[Any]], Any]) -> Tensor:
        first = values[0]
        each = -(-first.shape[0] // self.shard)
        padded = [np.zeros((self.shard * each, *first.shape[1:])) for _ in values]
        for here, value in zip(padded, values, strict=True):
            here[: first.shape[0]] = value.numpy()
        shards = [one.reshape(self.shard, -1) for one in padded]
        changed = np.stack([change([one[rank] for one in shards]) for rank in range(self.shard)])
        return torch.from_numpy(changed.reshape(-1, *first.shape[1:])[: first.shape[0]])


class KeepsWeights(Quantised):
    """Rounds gradients alone."""

    def round_row(self, rows: Sequence[Any]) -> Any:
        return rows[0]


class SumsAtOnce(Quantised):
    """Rounds no sums of nodes."""

    def reduced(self, rows: Sequence[Any]) -> Any:
        bits = int(self.given["gradients"].removeprefix("int"))
        return reduced(rows, [len(rows[0])], self.given["block"], bits, None)


class OtherBlocks(Quantised):
    """Blocks twice as long."""

    def __init__(self, spec: Spec, **more: Any) -> None:
        super().__init__(spec, **more)
        self.given = {**self.given, "block": 2 * self.given["block"]}


class RoundsWholeParameters(Quantised):
    """Blocks go across the shards of ranks."""

    def __init__(self, spec: Spec, **more: Any) -> None:
        super().__init__(spec, **more)
        self.shard = 1

    def sum(self, parameter: nn.Parameter, gradients: Sequence[Tensor]) -> Tensor:
        return self.mapped(parameter, gradients, self.reduced)
