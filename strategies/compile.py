"""Compile: each block's forward pass by torch.compile, one block at a time, so that equal blocks share their code.

The instance's `forward` is replaced in place: parameter names, hooks of data strategies and checkpoints stay as they are. It comes
after recompute, which the compiler must see, and before data parallelism, whose hooks it must not. Off by default: every start pays for
it (tens of seconds on a CPU), a CPU needs a C++ compiler on each node, and the gain there is small. Memory: what a block keeps is the
compiler's choice. Traffic: unchanged.
"""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

from . import cxx_compiler
from .layout import Refusal


def apply_compile(blocks: Iterable[nn.Module], device: torch.device) -> None:
    """Compile every block at its first use. Raises `Refusal` where the machine has no compiler."""
    if device.type == "cpu":
        _use_whole_compiler()
    for block in blocks:
        block.forward = torch.compile(block.forward)


def _use_whole_compiler() -> None:
    """Inductor's compiler from now on, of this process."""
    from torch._inductor import config
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    found = cxx_compiler.found()
    if found is None:
        raise Refusal(
            "compile",
            "compiling for a CPU needs a C++ compiler on every node, and this one has none.",
            "Install g++, or set compile to false.",
        )
    if not Path(found).name.startswith("whole-"):
        config.cpp.cxx = (None, str(cxx_compiler.whole(found, Path(cache_dir()))))
