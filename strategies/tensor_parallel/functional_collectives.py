"""Collectives that return a tensor to wait for, as operators: the compiler and selective recompute see them.

Torch's public collectives write into given buffers and return handles, which neither can follow. `apply.py` refuses a version of
torch that was not tried, before a model uses these.
"""

from typing import Final, cast

import torch
from torch import Tensor

#: The operators' private namespace.
API = "torch.ops._c10d_functional"
#: Waits for what an operator has started. Its result is its argument.
WAIT: Final = torch.ops._c10d_functional.wait_tensor.default


def all_gather(part: Tensor, size: int, group: str) -> Tensor:
    """Start to join the parts of all `size` ranks along dim 0."""
    return cast(Tensor, torch.ops._c10d_functional.all_gather_into_tensor(part, size, group))


def reduce_scatter(rows: Tensor, size: int, group: str) -> Tensor:
    """Start to sum over ranks; this rank's part of dim 0."""
    return cast(Tensor, torch.ops._c10d_functional.reduce_scatter_tensor(rows, "sum", size, group))


def all_reduce(part: Tensor, group: str) -> Tensor:
    """Start to sum over ranks."""
    return cast(Tensor, torch.ops._c10d_functional.all_reduce(part, "sum", group))


def arrived(started: Tensor) -> Tensor:
    """Wait for what was started."""
    return cast(Tensor, torch.ops._c10d_functional.wait_tensor(started))
