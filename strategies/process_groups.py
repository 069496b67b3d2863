"""Process groups: forms them, in one call per mesh axis, and finds them by name."""

from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist

from .torch_version import require


def group_of_mine(
    parts: Sequence[Sequence[int]], description: str, limit: timedelta | None = None
) -> dist.ProcessGroup:
    """The group of this rank's part. `parts` divide the world's ranks. Collective over the world.

    `limit`: how long a collective of the group may take. None: torch's default, and not the world group's limit.

    A world group that is bound to a device, as on NCCL, is split: one call divides its communicator into those of all parts
    (`ncclCommSplit`). The parts get no gloo: what the host sends goes over the world. Otherwise each rank forms only its own group.
    """
    world = dist.group.WORLD
    assert world is not None
    if world.bound_device_id is None:
        mine = next(part for part in parts if dist.get_rank() in part)
        # All ranks form groups in the same order, so that none waits for a rank that waits for it.
        made = dist.new_group(list(mine), timeout=limit, use_local_synchronization=True, group_desc=description)
        return _formed(made)
    whole = [list(part) for part in parts]
    return _formed(dist.split_group(world, whole, timeout=limit, group_desc=description, backend="cuda:nccl"))


def group_of_one() -> dist.ProcessGroup:
    """A group of this rank alone, for torch's classes that want one and send nothing over it. No other rank takes part."""
    world = dist.group.WORLD
    assert world is not None
    if world.size() == 1:
        return world
    backend = None if world.bound_device_id is None else "gloo"  # a communicator of NCCL's would cost device memory
    return _formed(dist.new_group([dist.get_rank()], backend=backend, use_local_synchronization=True))


def reduces() -> bool:
    """Whether the backend's own reduce-scatter of n elements over N ranks moves n·(N−1)/N elements. gloo's moves twice as many."""
    return str(dist.get_backend()) != "gloo"


def _formed(group: dist.ProcessGroup | int | None) -> dist.ProcessGroup:
    assert isinstance(group, dist.ProcessGroup), "this rank is in no part"
    return group


def group_named(name: str) -> dist.ProcessGroup:
    """The group of this name, which this process is a member of. Raises `RuntimeError` if there is none."""
    require("torch.distributed.distributed_c10d._resolve_process_group")
    from torch.distributed.distributed_c10d import _resolve_process_group  # type: ignore[attr-defined]

    group: dist.ProcessGroup = _resolve_process_group(name)  # type: ignore[arg-type]
    return group
