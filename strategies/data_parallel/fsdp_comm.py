"""Collectives of `fully_shard` on CPUs: sent in the compute dtype's size, and while the rank computes.

Without streams torch waits for every collective where it starts it. Its hooks for custom collectives may start one and return:

- An all-gather returns its `Work`. `fully_shard` waits for it when it copies the parameters out: blocks that it requests ahead
  (`set_modules_to_forward_prefetch`, and one in the backward pass) arrive while others compute.
- A reduce-scatter's result becomes the shard's gradient as it is (a view, no copy, when it is summed in the shard's dtype), and is
  not read before `settle`. There are two exceptions: if the module already has a sum, of a micro-batch before or of another use of it
  in this one, `fully_shard` adds to it at once, and HSDP's all-reduce reads every sum at once (`at_once`).

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


class SumsInTransit:
    """The sums that the modules have started and that have not arrived: at most `depth`."""

    def __init__(self, depth: int, at_once: bool = False) -> None:
        self._depth = 0 if at_once else depth
        self._pending: deque[Pending] = deque()
        self._summed: set[Allocate] = set()

    def add(self, pending: Pending, reducer: Allocate) -> None:
        """Let a sum that a module's `reducer` has started be in transit, unless torch adds it at once to the one before."""
        self._pending.append(pending)
        self.settle(0 if reducer in self._summed else self._depth)
        self._summed.add(reducer)

    def settle(self, left: int = 0) -> None:
        """Wait until at most `left` sums are in transit."""
        while len(self._pending) > left:
            self._pending.popleft()()

    def forget(self) -> None:
        """No module has a gradient any more."""
        self._summed.clear()


class GlooReduceScatter(Allocate):
    """For `set_custom_reduce_scatter` of one module, whose sums are among those of all, `sums`."""

    def __init__(self, sums: SumsInTransit) -> None:
        self._sums = sums

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
        self._sums.add(exchange_and_sum(rows, group, output_tensor), self)
