"""What a grid and a cube of ranks have in common: the forward passes of modules that hold a part of their parameters."""

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from ...strategies.tensor_parallel.grid_norm import Over, grid_layer_norm, grid_rms_norm
from .norms import LayerNorm, RMSNorm


def norm_over(module: LayerNorm | RMSNorm, over: Over) -> None:
    """The norm of a hidden state that ranks divide by its width: [..., own columns] → the same. Its parameters are cut already."""

    def forward(x: Tensor) -> Tensor:
        if isinstance(module, RMSNorm):
            return grid_rms_norm(x, module.weight, over)
        return grid_layer_norm(x, module.weight, module.bias, over)

    module.forward = forward  # type: ignore[method-assign]


def logits_over(own: Tensor, vocab: int, columns: DeviceMesh) -> Tensor:
    """Own columns of the logits [batch, seq, own] as a DTensor [batch, seq, vocab] that `columns` divides by vocabulary."""
    shape = torch.Size((*own.shape[:-1], vocab))
    stride = (shape[1] * vocab, vocab, 1)
    return DTensor.from_local(own, columns, [Shard(-1)], run_check=False, shape=shape, stride=stride)
