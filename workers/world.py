"""The world's process group of a rank, on gloo for CPUs and NCCL for GPUs; that of torchrun's environment, too."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]

#: On GPUs the world has gloo beside NCCL for what the host sends: objects such as checkpoint plans, and the clocks of traces. The groups
#: of the mesh have NCCL only.
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


class DeviceFailed(RuntimeError):
    """The rank's device cannot be used."""

    facts: Final = {"cause": "device_failed"}


@contextmanager
def formed_by_torchrun(kind: str) -> Iterator[torch.device]:
    """The world's process group from torchrun's environment (a world of one without it); yields this rank's device.

    What is raised on a GPU ends the process: it is printed first.
    """
    alone = "RANK" not in os.environ
    if alone:
        os.environ |= {
            "RANK": "0",
            "WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "0",
            "LOCAL_RANK": "0",
        }
    device = device_of(kind, int(os.environ.get("LOCAL_RANK", "0")))
    place: dict[str, Any] = {"store": HashStore(), "rank": 0, "world_size": 1} if alone else {}
    form_world(device, timeout=timedelta(minutes=10), **place)
    try:
        yield device
    except Exception:
        if device.type == "cuda":
            _end_with_error()
        raise
    finally:
        dist.destroy_process_group()


def _end_with_error() -> NoReturn:
    """End with the error that is being handled. NCCL's groups would wait for the other ranks, which wait for this one in a collective."""
    traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def form_world(device: torch.device, **place: Any) -> None:
    """Form the world's group. `place`: the arguments of `init_process_group` that say which rank this is of which world.

    On GPUs the group is bound to the device: NCCL connects at once, so that the groups of the mesh can be split from it.
    """
    bound = device if device.type == "cuda" else None
    dist.init_process_group(BACKENDS[device.type], device_id=bound, **place)


def device_of(kind: str, index: int) -> torch.device:
    """This rank's device, chosen for the process; on a CPU torch has one thread from now on. Raises DeviceFailed."""
    if kind == "cpu":
        torch.set_num_threads(1)
        return torch.device("cpu")
    if not torch.backends.cuda.is_built():
        remedy = "Install torch's CUDA build there, or train on CPUs."
        raise DeviceFailed(f"the rank cannot use a GPU: torch {torch.__version__} of this node has no CUDA. {remedy}")
    try:
        torch.cuda.set_device(index)
    except RuntimeError as error:  # the user's code has not run yet
        raise DeviceFailed(f"the rank cannot use its GPU: {error}") from error
    return torch.device("cuda", index)
