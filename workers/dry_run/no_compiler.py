"""Lets torch call its functions as they are. It keeps many of them from its compiler, by a wrapper that takes longer than a fake operator.

A dry run compiles nothing.
"""

from collections.abc import Callable
from typing import Any

import torch._dynamo as dynamo

from ...strategies.torch_version import require


def install() -> None:
    """Wrap no more functions in this process."""
    require("torch._dynamo.disable")
    module: Any = dynamo
    module.disable = unwrapped


def unwrapped(fn: Callable[..., Any] | None = None, recursive: bool = True, **_: Any) -> Any:  # noqa: ARG001  (torch's signature)
    """`fn`; without one a decorator that returns what it is given."""
    return fn if fn is not None else unwrapped
