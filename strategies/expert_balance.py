"""Experts' loads kept even by a bias for each (2408.15664; DeepSeek-V3, 2412.19437, section 2.1.2), the same on every layout.

A mixture chooses experts by affinity + bias. After each optimizer step every bias takes a step of fixed size: up if its expert had
fewer of the global batch's tokens than the mean, down if it had more. Loads are integers summed over all micro-batches and replicas,
so no order of sums matters and every replica has the same biases. No gradient and no decay changes them.

Traffic: one all-reduce of layers · experts 8-byte integers per step over the replicas. Loads stay on the device: no host waits.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .mesh import REPLICA, Mesh
from .param_shard import ParamShard
from .telemetry.current import wait_on


@runtime_checkable
class Biased(Protocol):
    """A mixture that chooses by `expert_bias` [experts], and adds each micro-batch's choices to `loads` [experts] int64.

    `bias_update_speed`: the size of a step; None: it chooses without biases.
    """

    expert_bias: Tensor | None
    loads: Tensor
    bias_update_speed: float | None


class ExpertBalance:
    """The biases of this rank's mixtures, which have equally many experts and one speed.

    `shards`: the biases as state to be saved and compared. They have `dtype`, but at least fp32.
    """

    def __init__(self, parts: Sequence[nn.Module], mesh: Mesh, dtype: torch.dtype) -> None:
        self._mesh = mesh
        modules = [pair for part in parts for pair in part.named_modules()]
        found = [(name, each) for name, each in modules if isinstance(each, Biased)]
        mixtures = [(name, each, each.bias_update_speed) for name, each in found if each.bias_update_speed is not None]
        self._speed = mixtures[0][2] if mixtures else 0.0
        shape = (len(mixtures), len(mixtures[0][1].loads) if mixtures else 0)
        self._biases = torch.zeros(shape, dtype=torch.promote_types(dtype, torch.float32), device=mesh.device)
        self._loads = torch.zeros(shape, dtype=torch.int64, device=mesh.device)
        self.shards: list[ParamShard] = []
        for (name, mixture, _), bias, loads in zip(mixtures, self._biases, self._loads, strict=True):
            mixture.expert_bias, mixture.loads = bias, loads
            self.shards.append(ParamShard(f"{name}.expert_bias", tuple(bias.shape), (0,), bias, frozenset()))

    @torch.no_grad()
    def update(self) -> None:
        """Move the biases by the loads since the last call. Collective over the replicas."""
        if not self.shards:
            return
        if self._mesh.size(REPLICA) > 1:
            group = self._mesh.group(REPLICA)
            wait_on(lambda: dist.all_reduce(self._loads, group=group), "all_reduce", group)
        self._biases.add_(directions(self._loads).to(self._biases.dtype), alpha=self._speed)
        self.forget()

    def forget(self) -> None:
        """Drop the loads of a step that updates nothing."""
        self._loads.zero_()


def directions(loads: Tensor) -> Tensor:
    """The sign of the mean load − the expert's own, for `loads` [layers, experts]: −1, 0 or 1, exact in integers."""
    return (loads.sum(1, keepdim=True) - loads.shape[1] * loads).sign()
