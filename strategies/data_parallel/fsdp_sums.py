"""The sums of gradients that `fully_shard` has yet to reduce, under a pipeline in mixed precision.

Torch adds up a stage's micro-batches in the dtype in which gradients are reduced: a hook at the end of each backward pass adds the pass's
gradients. Passes for weights alone call no hook, and would add one gradient to the next in the compute dtype. That is also the dtype of
torch's zeros for parameters that no pass has used, and it refuses these beside sums.
"""

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam

from ..torch_version import require


class WideSums:
    """Adds gradients of `modules` that no hook has added, and zeros for what has none."""

    def __init__(self, modules: Sequence[FSDPModule]) -> None:
        require("FSDPParam.to_accumulated_grad_if_needed")
        self._modules = modules

    def collect(self) -> None:
        """Add what the pass that has just run left in the parameters' gradients."""
        for one in self._gathered():
            one.accumulate_unsharded_grad_if_needed()
            one.to_accumulated_grad_if_needed()

    def complete(self, values: Collection[nn.Parameter]) -> None:
        """Let the trained ones of a stage's parameters `values` that no pass has used have sums of zero."""
        final = set(values)
        for one in self._gathered():
            whole = one._unsharded_param
            if one.sharded_param not in final or not whole.requires_grad:
                continue
            if whole.grad is None and one.unsharded_accumulated_grad is None:
                one.unsharded_accumulated_grad = torch.zeros_like(whole, dtype=one.reduce_dtype)

    def _gathered(self) -> Iterator[FSDPParam]:
        for module in self._modules:
            for group in module._get_fsdp_state()._fsdp_param_groups:
                yield from (one for one in group.fsdp_params if hasattr(one, "_unsharded_param"))
