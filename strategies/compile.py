"""Compiles each block's forward pass with torch.compile, one block at a time, so that equal blocks share their code.

Replaces the instance's `forward` in place: parameter names, hooks of data strategies and checkpoints do not change. It is applied
after recompute, which the compiler must see, and before data parallelism, whose hooks it must not see. Under full recompute it is
applied before it, too: the compiler takes a recomputed block as one graph or not at all. Code that it compiles already is traced
through. Blocks of tensor ranks are then compiled inside alone: in the graph of a recomputed block torch does not keep DTensors' meshes.

Every start takes longer (tens of seconds on a CPU), and each node needs Python's headers and a compiler (of C++ for CPUs; of C for GPUs,
where Triton builds its launchers with it). `workers/device_choices.py` says where it is the default. Memory: the compiler chooses what
a block keeps. Traffic: unchanged.

Where a schedule runs backward passes in two halves, modules with parameters of their own run as they are, between compiled regions. A
compiled region is one node of autograd's graph, which computes all its gradients at once. If it had a weight, the second half would
compute every gradient again (pytorch issue 161904). Without one it runs in the first half alone. So each product runs once.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import torch
import torch._functorch.config
from torch import nn

from . import cxx_compiler
from .layout import Refusal
from .tensor_parallel.linear import ShardedColumns
from .torch_version import require


def apply_compile(blocks: Iterable[nn.Module], device: torch.device, halves: bool = False) -> None:
    """Compile every block at its first use. Raises `Refusal` if the machine has no compiler for `device`.

    So it does if a folder from which compiled code is loaded belongs to another user.

    `halves`: a schedule runs the backward passes of these blocks in two halves. Refuses a block with parameters of its own.
    """
    _check_folders()
    options = None
    if device.type == "cpu":
        options = _whole_compiler()
    else:
        _check_triton()
    if halves:
        _keep_for_the_second_half()
    for block in blocks:
        if halves:
            _leave_parameters_out(block)
        block.forward = torch.compile(block.forward, options=options)


class AsItIs:
    """Calls `forward` outside of compiled code.

    A class, because the compiler compares types where it would compare functions, and so equal blocks share their code.
    """

    __slots__ = ("_forward",)

    def __init__(self, forward: Callable[..., Any]) -> None:
        self._forward = forward

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward(*args, **kwargs)


def _leave_parameters_out(block: nn.Module) -> None:
    """Let what computes with parameters run as it is. Wraps the instances' `forward`; parameter names do not change."""
    if next(block.parameters(recurse=False), None) is not None:
        raise Refusal(
            "compile",
            f"{type(block).__name__} has parameters of its own, which cannot be left out of its compiled code, "
            "and the schedule splits the backward pass.",
            "Set compile to false, or move them into modules of the block.",
        )
    for module in block.modules():
        if next(module.parameters(recurse=False), None) is not None:
            module.forward = AsItIs(module.forward)
        columns = getattr(module, "columns", None)
        if isinstance(columns, ShardedColumns):  # it multiplies by the weights of the module's layers
            module.columns = AsItIs(columns)  # type: ignore[assignment]


def _keep_for_the_second_half() -> None:
    """Let torch keep the graph of a compiled region after its backward pass, as the schedule does for its second half."""
    require("torch._functorch.config")
    settings: Any = torch._functorch.config
    # The default: what is set holds for one thread, and on GPUs backward passes have threads of their own.
    settings._config["donated_buffer"].default = False


def _whole_compiler() -> dict[str, Any]:
    """Options that make Inductor call its compiler through `cxx_compiler.py`."""
    found = cxx_compiler.found()
    if found is None:
        raise Refusal(
            "compile",
            "compiling for a CPU needs a C++ compiler on every node, and this node has none.",
            "Install g++, or set compile to false.",
        )
    if not cxx_compiler.includes_python(found):
        raise Refusal("compile", f"compiling for a CPU needs {_NO_HEADERS}", _INSTALL.format(_HEADERS))
    return {"cpp.cxx": (None, str(cxx_compiler.whole(found, cxx_compiler.own_folder())))}


def _check_folders() -> None:
    """Raise `Refusal` if another user owns a folder from which compiled code is loaded.

    Torch's default one is used even if TORCHINDUCTOR_CACHE_DIR names another: for precompiled headers.
    """
    require("torch._inductor.runtime.cache_dir_utils")
    # Here, as the compiler's modules take a second to import.
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    try:
        cxx_compiler.own_folder()
        cxx_compiler.owned(Path(default_cache_dir()))
    except PermissionError as error:
        raise Refusal("compile", str(error), "Or set compile to false.") from None


_INSTALL: Final = "Install {}, or set compile to false."
_HEADERS: Final = f"Python's headers (python{sys.version_info.major}.{sys.version_info.minor}-dev)"
_NO_HEADERS: Final = "Python's headers on every node, and this node's compiler cannot include Python.h."


def missing_for_gpus() -> str | None:
    """Why Triton cannot run here; None if it can."""
    missing = _missing_for_gpus()
    return None if missing is None else missing[0]


def _missing_for_gpus() -> tuple[str, str] | None:
    """What Triton lacks here, and what to install."""
    if importlib.util.find_spec("triton") is None:
        return "compiling for a GPU needs Triton, and this node's torch came without it.", "triton"
    compiler = cxx_compiler.found_for_c()
    if compiler is None:
        return (
            "compiling for a GPU needs a C compiler on every node for Triton's launchers, and this node has none.",
            "gcc",
        )
    return None if cxx_compiler.includes_python(compiler) else (f"compiling for a GPU needs {_NO_HEADERS}", _HEADERS)


def _check_triton() -> None:
    """Raise `Refusal` if Triton cannot run here. It would fail in the first step."""
    missing = _missing_for_gpus()
    if missing is not None:
        raise Refusal("compile", missing[0], _INSTALL.format(missing[1]))
