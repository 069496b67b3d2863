"""Gradients that share memory with a tensor that autograd still needs, or with another gradient.

Autograd gives a parameter the tensor that has arrived, without a copy, if nothing else refers to that tensor. It may be a view: of
`x + w.unsqueeze(0)`, `w` gets a view of the gradient that `x` is still to get, and of `a.view(n, d) + b.view(n, d)` both get the same
memory. A sum over ranks, or over micro-batches, in place would change the other one, too.
"""

from typing import Final

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from ..torch_version import tried

#: References to the memory of one tensor: the tensor's own, and that of the Python object by which they are counted.
_ALONE: Final = 2


@torch.no_grad()
def is_shared(grad: torch.Tensor) -> bool:
    """Whether another tensor may have the memory of this gradient."""
    return not tried() or torch._C._storage_Use_Count(_local(grad).untyped_storage()._cdata) > _ALONE


@torch.no_grad()
def unshare(value: nn.Parameter) -> None:
    """Give the parameter's gradient memory of its own, before another one is added to it. A hook for the end of each accumulation.

    A partial gradient stays partial: `DTensor.clone` would sum it over its ranks.
    """
    if value.grad is not None and is_shared(value.grad):
        local = _local(value.grad)
        local.data = local.clone()


def _local(grad: torch.Tensor) -> torch.Tensor:
    return grad.to_local() if isinstance(grad, DTensor) else grad
