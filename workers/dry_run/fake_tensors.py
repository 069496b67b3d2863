"""Torch's fake tensors and its fake process group, which it keeps in private modules."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConverter, unset_fake_temporarily
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.testing._internal.distributed.fake_pg import FakeStore

from ...strategies.dispatch_mode import DispatchMode
from ...strategies.tensor_parallel.functional_collectives import WAIT

__all__ = [
    "DeviceAnswers",
    "FakeStore",
    "FakeTensor",
    "FakeTensorMode",
    "constants_forgotten",
    "unset_fake_temporarily",
]

_DEVICE: Final = torch.ops.prim.device.default


class _Forgetful(FakeTensorConverter):
    """Keeps no reference to what an operator returns, not even a weak one: `Module.to` swaps no parameter that has one."""

    def set_tensor_memo(self, t: torch.Tensor, v: FakeTensor) -> None:
        pass


class FakeTensorMode(fake_tensor.FakeTensorMode):
    """Torch's, in which a module of the user's own can be moved to a device, and waiting for a tensor makes no second one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.fake_tensor_converter = _Forgetful()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is WAIT:
            return args[0]
        return super().__torch_dispatch__(func, types, args, kwargs)


@contextmanager
def constants_forgotten(mode: FakeTensorMode) -> Iterator[None]:
    """Within it a parameter that is registered has no value, not even one that its code wrote out, such as `torch.tensor(0.1)`.

    Of a tensor with such a value the mode keeps two weak references, with which `Module.to` could not swap it.
    """

    def forget(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:  # noqa: ARG001
        if not isinstance(parameter, FakeTensor) or parameter.constant is None:
            return
        converter = mode.fake_tensor_converter
        converter.invalidate_constant_aliases(parameter.constant)
        made = converter.meta_converter.tensor_memo
        for key in [key for key, value in made.items() if value is parameter]:
            del made[key]

    handle = register_module_parameter_registration_hook(forget)
    try:
        yield
    finally:
        handle.remove()


class DeviceAnswers(DispatchMode):
    """Says at once where a fake tensor is. Enter it last: torch asks more often than it calls operators, and through all modes."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE:
            return args[0].fake_device
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it comes again, as plain tensors
        return func(*args, **(kwargs or {}))
