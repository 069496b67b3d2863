"""The experts of a mixture, stacked. Three ways compute them; each gives every row the result of its own expert.

- `by_loop` multiplies expert by expert. The host must know how many rows each one has: it waits for the device.
- `by_groups` is one grouped product for all experts. Its offsets stay on the device.
- `by_batches` is one batched product, where every expert has equally many rows.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...strategies.expert_rules import groups_experts, rows_fit


class Weights(NamedTuple):
    """`gate`, `up` [experts, hidden, dim] and `down` [experts, dim, hidden]."""

    gate: Tensor
    up: Tensor
    down: Tensor


class Experts(nn.Module):
    """SwiGLUs stacked: `gate`, `up` [experts, hidden, dim] and `down` [experts, dim, hidden]."""

    #: The hidden width's dimension of each: the one that tensor parallelism shards, by column and then by row.
    tensor_dims = {"gate": 1, "up": 1, "down": 2}  # noqa: RUF012  (a constant of the class)

    def __init__(self, experts: int, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.empty(experts, hidden, dim))
        self.up = nn.Parameter(torch.empty(experts, hidden, dim))
        self.down = nn.Parameter(torch.empty(experts, dim, hidden))

    def forward(self, rows: Tensor, counts: Tensor | None) -> Tensor:
        """`rows` [n, dim], the first `counts[0]` of them for the first expert and so on → [n, dim]; zeros for rows of no expert.

        Without `counts`, `rows` [experts, n, dim] → [experts, n, dim].
        """
        weights = Weights(self.gate, self.up, self.down)
        if counts is None:
            return by_batches(rows, weights)
        return way_for(rows, weights)(rows, counts, weights)


def way_for(rows: Tensor, weights: Weights) -> Callable[[Tensor, Tensor, Weights], Tensor]:
    """`by_groups` where torch's grouped product is fast and right, else `by_loop`.

    That is in bf16 on the NVIDIA GPUs of `strategies/expert_rules.py`. The memory plan reads the same rule.
    """
    fits = rows_fit(weights.gate.shape[1:], rows.element_size())
    if rows.device.type != "cuda" or rows.dtype != torch.bfloat16 or not fits or not len(rows):
        return by_loop
    capability = torch.cuda.get_device_capability(rows.device)
    return by_groups if groups_experts(capability) and torch.version.hip is None else by_loop


def by_loop(rows: Tensor, counts: Tensor, weights: Weights) -> Tensor:
    """`Experts.forward`, expert by expert."""
    each: list[int] = counts.tolist()
    # unbind, not indexing: its backward pass stacks the experts' gradients once.
    parts = zip(rows.split([*each, len(rows) - sum(each)]), _unbound(weights), strict=False)
    done = [F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down) for x, (gate, up, down) in parts]
    of_none = rows.new_zeros(len(rows) - sum(each), rows.shape[1])
    return torch.cat([*done, of_none] if len(of_none) else done)


def _unbound(weights: Weights) -> Sequence[tuple[Tensor, ...]]:
    return list(zip(*(each.unbind() for each in weights), strict=True))


def by_groups(rows: Tensor, counts: Tensor, weights: Weights) -> Tensor:
    """`Experts.forward` as three grouped products (`torch.nn.functional.grouped_mm`)."""
    ends = counts.cumsum(0, dtype=torch.int32)
    # The product leaves rows behind the last end unwritten, in its result and in the gradient of its input.
    has_expert = torch.arange(len(rows), device=rows.device).unsqueeze(1) < ends[-1]
    inputs = rows.where(has_expert, 0.0)
    gate, up = (F.grouped_mm(inputs, each.transpose(1, 2), offs=ends) for each in (weights.gate, weights.up))
    hidden = (F.silu(gate) * up).where(has_expert, 0.0)
    return F.grouped_mm(hidden, weights.down.transpose(1, 2), offs=ends).where(has_expert, 0.0)


def by_batches(rows: Tensor, weights: Weights) -> Tensor:
    """`rows` [experts, n, dim], n for each expert → [experts, n, dim]."""
    gate, up, down = (each.transpose(1, 2) for each in weights)
    return (F.silu(rows @ gate) * (rows @ up)) @ down
