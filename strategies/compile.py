"""Compiles each block's forward pass with torch.compile, one block at a time, so that equal blocks share their code.

Replaces the instance's `forward` in place: parameter names, hooks of data strategies and checkpoints do not change. It is applied
after recompute, which the compiler must see, and before data parallelism, whose hooks it must not see.

Every start takes longer (tens of seconds on a CPU), and each node needs a compiler (of C++ for CPUs; of C for GPUs, where Triton builds
its launchers with it). `workers/device_choices.py` says where it is the default. Memory: the compiler chooses what a block keeps.
Traffic: unchanged.
"""

import importlib.util
from collections.abc import Iterable
from typing import Any, Final

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


_NO_TRITON: Final = "compiling for a GPU needs Triton, and this node's torch came without it."
_NO_COMPILER: Final = (
    "compiling for a GPU needs a C compiler on every node for Triton's launchers, and this node has none."
)


def missing_for_gpus() -> str | None:
    """Why Triton cannot run here; None if it can."""
    if importlib.util.find_spec("triton") is None:
        return _NO_TRITON
    return _NO_COMPILER if cxx_compiler.found_for_c() is None else None


def _check_triton() -> None:
    """Raise `Refusal` if Triton cannot run here. It would fail in the first step."""
    missing = missing_for_gpus()
    if missing is not None:
        install = "triton" if missing == _NO_TRITON else "gcc"
        raise Refusal("compile", missing, f"Install {install}, or set compile to false.")
