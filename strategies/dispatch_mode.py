"""A mode that sees every operator below autograd. Torch documents `TorchDispatchMode`, but keeps it in a private module."""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from .torch_version import require


class DispatchMode(TorchDispatchMode):
    """Torch's mode. Raises `RuntimeError` on a version of torch that was not tried."""

    def __init__(self) -> None:
        require("torch.utils._python_dispatch")
        super().__init__()  # type: ignore[no-untyped-call]


def operator_name(op: Any) -> str:
    """`namespace::name` of an operator, without its overload."""
    name: str = op.name()
    return name.split(".", maxsplit=1)[0]
