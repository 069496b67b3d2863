"""A mode that sees every operator below autograd. Torch documents `TorchDispatchMode`, but keeps it in a private module."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from torch.utils import _python_dispatch
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


def entered_modes() -> list[TorchDispatchMode]:
    """The modes that this thread is in, the outermost first. Another thread is in none of them until it enters them itself."""
    modes: list[TorchDispatchMode] = _python_dispatch._get_current_dispatch_mode_stack()
    return modes


#: Torch's notes on whether a thread is in a mode of some kind.
_NOTES: Final = (
    "_is_in_torch_dispatch_mode",
    "_is_in_non_infra_torch_dispatch_mode",
    "_is_in_any_mode_without_ignore_compile_internals",
)


@contextmanager
def notes_kept() -> Iterator[None]:
    """Restore torch's notes on entered modes at the end.

    They are of the process. A mode restores what it has found, which is wrong if two threads enter and leave theirs by turns.
    """
    before = {name: getattr(_python_dispatch, name) for name in _NOTES}
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(_python_dispatch, name, value)
        cast(Any, _python_dispatch).set_is_in_mode_without_ignore_compile_internals(before[_NOTES[-1]])
