"""A tensor's version counter, which every change in place raises, and copies without a graph that share it.

Torch has no public call for either. On a version of torch that was not tried, `checkpointing.py` uses torch's own policy instead.
"""

import torch
from torch import Tensor


def without_graph(tensor: Tensor) -> Tensor:
    """`tensor` without its graph, with the same memory and version counter."""
    # Below autograd only this lets a view share the version counter that reveals in-place changes.
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False):
        return tensor.detach()


def version(tensor: Tensor) -> int:
    """The number of changes in place of this memory."""
    return tensor._version
