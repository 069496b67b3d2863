"""fp8: the blocks' linear layers multiply in 8 bits (Micikevicius et al., 2209.05433), with torchao's kernels on CUDA.

Inputs and weights are rounded to e4m3, gradients to e5m2, each tensor by a scale of its own maximum, computed when it is used.
Weights, their masters, what is kept for the backward pass, reduction and optimizer are those of bf16, and so are memory and
traffic. Embedding, head, norms and attention stay in bf16. So do layers with a side that is not a multiple of 16, which the kernels
do not support.

A scale is computed from a rank's micro-batch: the same micro-batches give the same numbers on any layout, and other micro-batches
differ within rounding. In layouts in which a rank holds a part of a layer or of a sequence, scales would be those of parts:
`check_fp8` in `memory_options.py` refuses them. `fp8_halves.py` has the layers of schedules that split the backward pass, and of blocks
that are computed again.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from .layout import Refusal
from .memory_options import FP8_STEP
from .precision import Precision

#: The oldest compute capability with 8-bit tensor cores: Ada.
OLDEST = (8, 9)


def apply_fp8(
    blocks: Sequence[nn.Module],
    precision: Precision,
    device: torch.device,
    halves: bool = False,
    recomputed: bool = False,
) -> None:
    """Convert the linear layers of `blocks` in place; names and parameters do not change.

    `halves`: a schedule runs the backward passes of these blocks in two halves. `recomputed`: the blocks are computed again as they are,
    not in compiled code, which leaves out what is not needed. Raises `Refusal` if they cannot multiply in fp8.
    """
    if not precision.fp8:
        return
    if not precision.emulated:
        _check_device(device)
    convert = _converter(precision.emulated)
    own_layers = _own_layers(needed=halves) if halves or recomputed else None
    for block in blocks:
        if isinstance(block, nn.Linear):  # torchao would return another module in its place
            raise Refusal(
                "precision",
                f"a block that is a {type(block).__name__} alone cannot be converted to fp8 where it is.",
                "Set precision to bf16, or put the layer into a module that is the block.",
            )
        if not any(fits(module) for module in block.modules()):
            raise Refusal(
                "precision",
                f"{type(block).__name__} has no linear layer whose sides are multiples of {FP8_STEP}.",
                "Set precision to bf16, or use widths that are multiples of it.",
            )
        convert(block)
        if own_layers is not None:
            own_layers(block)


def fits(module: nn.Module) -> bool:
    """Whether the kernels support this layer."""
    return isinstance(module, nn.Linear) and module.in_features % FP8_STEP == 0 and module.out_features % FP8_STEP == 0


def _check_device(device: torch.device) -> None:
    if device.type != "cuda":
        raise Refusal("precision", f"fp8 needs CUDA devices, this rank computes on {device.type}.", "Use bf16.")
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST:
        raise Refusal(
            "precision",
            f"fp8 needs compute capability {'.'.join(map(str, OLDEST))}, "
            f"{torch.cuda.get_device_name(device)} has {'.'.join(map(str, capability))}.",
            "Use bf16, or Ada, Hopper or newer GPUs.",
        )


def _converter(emulated: bool) -> Callable[[nn.Module], Any]:
    try:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    except ImportError as error:
        raise Refusal(
            "precision",
            f"fp8 needs torchao, which cannot be imported here ({error}).",
            "Install it on every node with pip install 'shardyard[fp8]', or use bf16.",
        ) from error
    config = Float8LinearConfig(emulate=emulated)
    return lambda block: convert_to_float8_training(
        block, config=config, module_filter_fn=lambda module, _: fits(module)
    )


def _own_layers(needed: bool) -> Callable[[nn.Module], None] | None:
    """The function that converts torchao's layers; None for a version of torchao for which there is none, if it is not `needed`."""
    try:
        from .fp8_halves import split_backward
    except ImportError as error:
        if not needed:
            return None
        raise Refusal(
            "layout.schedule",
            f"this version of torchao has no layers whose backward pass can be split ({error}).",
            "Install torchao 0.18 on every node, or set layout.schedule to interleaved or 1f1b.",
        ) from error
    return split_backward
