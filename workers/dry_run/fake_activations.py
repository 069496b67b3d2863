"""Backward passes of activations by the one kernel that CUDA has. A CPU build of torch has none, and on a fake device would compute them
step by step: SiLU's with four more tensors of the feed-forward's width.
"""

import functools
from typing import Any, Final

import torch

#: The operators that torch both has CUDA kernels for and can take apart.
OPERATORS: Final = ("silu_backward", "mish_backward")


@functools.cache  # torch forgets what a library has registered when the library is gone
def install() -> torch.library.Library:
    """Register in this process, whose CUDA device is a fake one, that CUDA has these operators."""
    library = torch.library.Library("aten", "IMPL", "CUDA")
    for operator in OPERATORS:
        library.impl(operator, _never)
    return library


def _never(*_: Any) -> Any:
    """Fake tensors have shapes alone: no kernel runs."""
    raise AssertionError("a tensor on the fake device has memory")
