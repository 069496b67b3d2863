"""Torch's fake tensors and its fake process group, which it keeps in private modules."""

from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from ...strategies.dispatch_mode import DispatchMode

__all__ = ["DeviceAnswers", "FakeStore", "FakeTensor", "FakeTensorMode", "unset_fake_temporarily"]

_DEVICE: Final = torch.ops.prim.device.default


class DeviceAnswers(DispatchMode):
    """Says at once where a fake tensor is. Enter it last: torch asks more often than it calls operators, and through all modes."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE:
            return args[0].fake_device
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it comes again, as plain tensors
        return func(*args, **(kwargs or {}))
