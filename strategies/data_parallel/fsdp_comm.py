"""Collectives of `fully_shard` on CPUs: sent in the compute dtype's size, and while the rank computes.

Without streams torch waits for every collective where it starts it. Its hooks for custom collectives may start one and return:

- An all-gather returns its `Work`. `fully_shard` waits for it when it copies the parameters out: blocks that it requests ahead
  (`set_modules_to_forward_prefetch`, and one in the backward pass) arrive while others compute.
- A reduce-scatter's result becomes the shard's gradient as it is (a view, no copy, when it is summed in the shard's dtype), and is
  not read before `settle`. There are two exceptions: if a gradient is already there, `fully_shard` adds to it at once, and so does
  HSDP's all-reduce. For them `at_once` is set.

gloo's own reduce-scatter is an all-reduce inside: see `collectives.py`.
"""

from collections import deque
from collections.abc import Sequence

import torch
import torch.distributed as dist

from ..collectives import Pending, exchange_and_sum
from ..telemetry.current import WaitedWork, now


class Allocate:
    """Allocates memory for messages, new for each message."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class GlooAllGather(Allocate):
    """For `set_custom_all_gather`."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,  # noqa: ARG002  (torch's signature)
    ) -> dist.Work | None:
        """Start to gather `input_tensor` [n], which is a part of `output_tensor` [N·n]."""
        since = now()
        work: dist.Work | None = dist.all_gather_single(output_tensor, input_tensor, group=group, async_op=True)
        return work and WaitedWork(work, "all_gather", group, since)


class GlooReduceScatter(Allocate):
    """For `set_custom_reduce_scatter`, one for all modules: at most `depth` sums are in transit."""

    def __init__(self, depth: int, at_once: bool = False) -> None:
        self._depth, self.at_once = depth, at_once
        self._pending: deque[Pending] = deque()

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: object,  # noqa: ARG002
        async_op: bool = False,  # noqa: ARG002
    ) -> None:
        """Start to sum `input_tensor` [N·n] over `group` into `output_tensor` [n]. `op` is always a sum: see `fsdp.py`."""
        rows = input_tensor.view(dist.get_world_size(group), -1)
        self.add(exchange_and_sum(rows, group, output_tensor))

    def add(self, pending: Pending) -> None:
        """Let a sum that has been started be in transit, unless its result is read at once."""
        self._pending.append(pending)
        self.settle(0 if self.at_once else self._depth)

    def settle(self, left: int = 0) -> None:
        """Wait until at most `left` sums are in transit."""
        while len(self._pending) > left:
            self._pending.popleft()()
