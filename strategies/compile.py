"""Compiles each block's forward pass with torch.compile, one block at a time, so that equal blocks share their code.

Replaces the instance's `forward` in place: parameter names, hooks of data strategies and checkpoints do not change. It is applied
after recompute, which the compiler must see, and before data parallelism, whose hooks it must not see.

Off by default: every start takes longer (tens of seconds on a CPU), each node needs a compiler (of C++ for CPUs; of C for GPUs,
where Triton builds its launchers with it), and the gain on a CPU is small. Memory: the compiler chooses what a block keeps.
Traffic: unchanged.
"""

import importlib.util
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from . import cxx_compiler
from .layout import Refusal


def apply_compile(blocks: Iterable[nn.Module], device: torch.device) -> None:
    """Compile every block at its first use. Raises `Refusal` if the machine has no compiler for `device`."""
    options = None
    if device.type == "cpu":
        options = _whole_compiler()
    else:
        _check_triton()
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


def _check_triton() -> None:
    """Raise `Refusal` if Triton cannot run here. It would fail in the first step."""
    if importlib.util.find_spec("triton") is None:
        raise Refusal(
            "compile",
            "compiling for a GPU needs Triton, and this node's torch came without it.",
            "Install triton, or set compile to false.",
        )
    if cxx_compiler.found_for_c() is None:
        raise Refusal(
            "compile",
            "compiling for a GPU needs a C compiler on every node for Triton's launchers, and this node has none.",
            "Install gcc, or set compile to false.",
        )
