"""The optimizer works on shards: plain tensors, whatever the layout.

Its state exists from the start, so that memory and checkpoints never change shape.
"""

import math
from collections.abc import Sequence

import torch

from ...strategies.activation_memory.disk_home import DiskHome
from ...strategies.activation_memory.host_optimizer import HostOptimizer
from ...strategies.activation_memory.state_file import StateFile
from ...strategies.memory_options import DISK_BUCKET_BYTES
from ...strategies.param_shard import ParamShard, with_elements
from ..spec import OptimizerSpec, ScheduleSpec


def make_optimizer(
    shards: Sequence[ParamShard], spec: OptimizerSpec, on_host: float = 0.0, file: StateFile | None = None
) -> torch.optim.Optimizer:
    """AdamW or SGD over `shards`; only matrices decay, embeddings and the head included. The share `on_host` is updated on the host.

    That share's state is in `file`, if it is given. Shards without an element have no state: they only count in what the host updates.
    """
    if on_host and file is not None:
        home = DiskHome(file)
        return HostOptimizer(shards, on_host, lambda some: make_optimizer(some, spec), DISK_BUCKET_BYTES, home)
    if on_host:
        return HostOptimizer(shards, on_host, lambda some: make_optimizer(some, spec))
    shards = with_elements(shards)
    counter = [] if shards else [_counter()]
    groups = [
        {"params": [p.tensor for p in shards if p.is_matrix], "weight_decay": spec.weight_decay},
        {"params": [*counter, *(p.tensor for p in shards if not p.is_matrix)], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if spec.name == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(groups, lr=spec.lr, momentum=spec.beta1)
    else:
        betas = (spec.beta1, spec.beta2)
        optimizer = torch.optim.AdamW(groups, lr=spec.lr, betas=betas, eps=spec.eps, fused=True)
    for tensor in (*counter, *(shard.tensor for shard in shards)):
        optimizer.state[tensor] = _first_state(tensor, spec)
    return optimizer


def _counter() -> torch.Tensor:
    """An empty tensor that always has a gradient: by it a rank without shards, whose parameters are on servers, counts its updates."""
    counter = torch.zeros(0)
    counter.grad = torch.zeros(0)
    return counter


def _first_state(tensor: torch.Tensor, spec: OptimizerSpec) -> dict[str, torch.Tensor]:
    if spec.name == "sgd":
        return {"momentum_buffer": torch.zeros_like(tensor)}
    step = torch.zeros((), dtype=torch.float32, device=tensor.device)
    return {"step": step, "exp_avg": torch.zeros_like(tensor), "exp_avg_sq": torch.zeros_like(tensor)}


def optimizer_shards(shards: Sequence[ParamShard], optimizer: torch.optim.Optimizer) -> list[ParamShard]:
    """The optimizer's own tensors as shards named `optimizer.exp_avg.<parameter>` and so on."""
    found = []
    for shard in shards:
        for key, value in optimizer.state[shard.tensor].items():
            if value.shape == shard.tensor.shape and key != "step":
                found.append(shard.like(f"optimizer.{key}.{shard.name}", value))
    return found


def updates_done(optimizer: torch.optim.Optimizer) -> int:
    """Updates so far (steps less those that were skipped); 0 for SGD, which does not count."""
    return next((int(state["step"].item()) for state in optimizer.state.values() if "step" in state), 0)


def set_updates_done(optimizer: torch.optim.Optimizer, updates: int) -> None:
    """Continue after `updates` updates. Call it after the param shards have their values."""
    if isinstance(optimizer, HostOptimizer):
        optimizer.values_changed()
    for state in optimizer.state.values():
        if "step" in state:
            state["step"].fill_(updates)


def learning_rate(step: int, steps: int, peak: float, spec: ScheduleSpec) -> float:
    """The rate of the 1-based `step` of `steps`: up in `warmup` equal parts to `peak`, then down to `min_ratio · peak` at the last step.

    Step `warmup` has the peak; without a warm-up step 1 has it.
    """
    top = max(1, spec.warmup)
    if step <= top:
        return peak * step / top
    if spec.name == "constant":
        return peak
    done = (step - top) / (steps - top)
    left = 1 - done if spec.name == "linear" else (1 + math.cos(math.pi * done)) / 2
    return peak * (spec.min_ratio + (1 - spec.min_ratio) * left)
