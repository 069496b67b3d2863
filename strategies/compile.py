"""Compiles each block's forward pass with torch.compile, one block at a time, so that equal blocks share their code.

Replaces the instance's `forward` in place: parameter names, hooks of data strategies and checkpoints do not change. It is applied
after recompute, which the compiler must see, and before data parallelism, whose hooks it must not see.

Off by default: every start takes longer (tens of seconds on a CPU), a CPU needs a C++ compiler on each node, and the gain there is
small. Memory: the compiler chooses what a block keeps. Traffic: unchanged.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from . import cxx_compiler
from .layout import Refusal


def apply_compile(blocks: Iterable[nn.Module], device: torch.device) -> None:
    """Compile every block at its first use. Raises `Refusal` if the machine has no compiler."""
    options = _whole_compiler() if device.type == "cpu" else None
    for block in blocks:
        block.forward = torch.compile(block.forward, options=options)


def _whole_compiler() -> dict[str, Any]:
    """Options that make Inductor call its compiler through `cxx_compiler.py`."""
    found = cxx_compiler.found()
    if found is None:
        raise Refusal(
            "compile",
            "compiling for a CPU needs a C++ compiler on every node, and this node has none.",
            "Install g++, or set compile to false.",
        )
    return {"cpp.cxx": (None, str(cxx_compiler.whole(found, cxx_compiler.own_folder())))}
