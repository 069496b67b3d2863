"""Where the state of an optimizer on the host is between its steps. Here: in host memory, where the step computes.

`disk_home.py` has the other one. A step reads each bucket's state before it computes, and writes it afterwards. Both do nothing here.
"""

from collections.abc import Sequence

import torch


class StateHome:
    """The state in host memory."""

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether `tensor` is in this home alone, and the device has no values of its own to which an update must be copied."""
        del tensor
        return False

    def kept(self, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor`, which is on the host, in this home. May be called once for each."""
        return tensor

    def copy_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Memory for a copy of `tensor`, which stays on the device; a tensor on the meta device if this home needs no copy."""
        return torch.empty_like(tensor, device="cpu", requires_grad=False)

    def zeros_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Zeros with the dtype, shape and order in memory of `tensor`, which is on the host."""
        return torch.zeros_like(tensor, device="cpu", requires_grad=False)

    def open(self, buckets: Sequence[Sequence[int]]) -> None:
        """Before the first `place`: the bytes of each tensor of each bucket, in the order in which they get their places."""

    def place(self, bucket: int, tensor: torch.Tensor) -> torch.Tensor:
        """Where the step computes with `tensor`, which is a part of one of this home, when it has `bucket`."""
        del bucket
        return tensor

    def begin(self) -> None:
        """A step begins. The first reads start."""

    def arrive(self, bucket: int) -> None:
        """Wait until the state of `bucket` is in its places."""

    def leave(self, bucket: int) -> None:
        """The state of `bucket` is updated. Start to write it."""

    def follow(self, bucket: int) -> None:
        """The places of `bucket` are not used any more. A read into them may start."""

    def end(self) -> None:
        """All buckets are updated. Wait until this home has them."""

    def changed(self, tensor: torch.Tensor) -> None:
        """This tensor of this home may have been set from elsewhere."""
