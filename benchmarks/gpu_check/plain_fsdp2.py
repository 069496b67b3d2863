"""The baseline: a plain torch loop as torchtitan writes it. FSDP2, mixed precision, fused AdamW, clipped gradients, compiled blocks.

It trains the same decoder as Shardyard, by torch alone: `fully_shard` of each block and of the whole, parameters in bf16, sums of
gradients in fp32, whole logits. As in torchtitan the host reads the loss only where it logs, here once per block of steps.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel

from shardyard.strategies.compile import apply_compile
from shardyard.strategies.fp8 import apply_fp8
from shardyard.strategies.precision import PRECISIONS
from shardyard.workers.models.init import initial_values
from shardyard.workers.models.normal_values import ParamSlice
from shardyard.workers.models.registry import make

from .checks import Place
from .engine import timed

#: torchtitan's order of preference (torchtitan/models/attention.py).
BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class PlainFsdp2:
    """One model, its optimizer and a batch. Raises `Refusal` where fp8 or compile cannot run."""

    def __init__(self, at: Place, spec: Mapping[str, Any]) -> None:
        train = at.run(spec).train
        arch = train.architecture(256)
        assert arch is not None
        self.at, self.clip_norm = at, train.optimizer.clip_norm
        with torch.device("meta"):
            self.model: nn.Module = make(arch)
        self.model.to_empty(device=at.device)
        with torch.no_grad():
            for name, value in self.model.named_parameters():
                whole = ParamSlice(tuple(value.shape), (0,) * value.dim(), tuple(value.shape))
                value.copy_(initial_values(name, whole, 0, arch, at.device))
        blocks = list(self.model.get_submodule("blocks").children())
        apply_fp8(blocks, PRECISIONS[train.precision.compute], at.device)
        if train.compile:
            apply_compile(blocks, at.device)
        mesh = init_device_mesh(at.device.type, (1,))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(self.model, mesh=mesh, mp_policy=policy)
        given = train.optimizer
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=given.lr, betas=(given.beta1, given.beta2), weight_decay=0.1, fused=True
        )
        shape = (train.global_batch, train.data.seq_len)
        self.x, self.y = (torch.randint(arch.vocab, shape, device=at.device) for _ in range(2))
        self.loss = torch.zeros((), device=at.device)

    def step(self) -> None:
        with sdpa_kernel(BACKENDS, set_priority=True):
            loss = _cross_entropy(self.model(self.x), self.y)
            loss.backward()
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.loss = loss.detach()

    def block(self, steps: int) -> float:
        seconds = timed(self.at, self.step, steps)
        self.loss.item()
        return seconds


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
