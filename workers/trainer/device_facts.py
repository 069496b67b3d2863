"""The facts about a gang's devices by which `auto` options are decided. All ranks get the same facts, and so decide alike.

A rank that computed in another dtype than its peers, or that alone compiled, would hold other values than its replicas.
"""

import torch
import torch.distributed as dist

from ...strategies.compile import missing_for_gpus
from ...strategies.layout import ModelFacts
from ..device_choices import Capability, Choices, DeviceFacts, choices
from ..spec import TrainSpec


def decided(train: TrainSpec, facts: ModelFacts, device: torch.device) -> Choices:
    """The choices of the whole gang. Collective where an option is `auto` and the devices are GPUs."""
    asks = "auto" in (train.precision.compute, train.compile)
    if not asks or device.type != "cuda":
        return choices(train, facts, DeviceFacts("cpu" if device.type == "cpu" else "cuda"))
    mine = DeviceFacts("cuda", capability_of(device), missing_for_gpus())
    everyone = [mine] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return choices(train, facts, weakest(everyone))


def capability_of(device: torch.device) -> Capability | None:
    """The compute capability of a GPU, which decides what kernels its formulas assume; None: a CPU."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def weakest(everyone: list[DeviceFacts]) -> DeviceFacts:
    """The facts of a gang of such ranks: its oldest GPU, and whether a node of it cannot compile."""
    capabilities = [one.capability for one in everyone if one.capability is not None]
    lacking = (one.no_compiler for one in everyone if one.no_compiler is not None)
    return DeviceFacts(everyone[0].kind, min(capabilities, default=None), next(lacking, None))
