"""The sums of gradients that `fully_shard` has yet to reduce, where a schedule computes gradients of weights later than those of inputs.

In mixed precision torch adds up a stage's micro-batches in the dtype in which gradients are reduced: a hook at the end of each backward
pass adds the pass's gradients. Passes for weights alone call no hook, and would add one gradient to the next in the compute dtype.
"""

from collections.abc import Iterator, Sequence

from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam

from ..torch_version import require


class WideSums:
    """Adds gradients of `modules` that no hook has added."""

    def __init__(self, modules: Sequence[FSDPModule]) -> None:
        require("FSDPParam.to_accumulated_grad_if_needed")
        self._modules = modules

    def collect(self) -> None:
        """Add what the pass that has just run left in the parameters' gradients."""
        for one in self._gathered():
            one.accumulate_unsharded_grad_if_needed()
            one.to_accumulated_grad_if_needed()

    def _gathered(self) -> Iterator[FSDPParam]:
        for module in self._modules:
            for group in module._get_fsdp_state()._fsdp_param_groups:
                yield from (one for one in group.fsdp_params if hasattr(one, "_unsharded_param"))
