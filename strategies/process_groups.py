"""Process groups: forms them, in one call per mesh axis and a few for neighbours in pipelines, and finds them by name."""

from collections.abc import Mapping, Sequence
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


def pairs_of_mine(
    lines: Sequence[Sequence[int]], ends_meet: bool, description: str, limit: timedelta | None = None
) -> dict[int, dist.ProcessGroup]:
    """Groups of two: this rank and each of its neighbours in its line. The neighbour's rank in the world → their group.

    `lines` divide the world's ranks, and have one length p of at least 3. `ends_meet`: the last rank of a line and its first one are
    neighbours, too. Collective over the world: 2 calls of `group_of_mine`, or 3 where ends meet and p is odd.
    """
    mine = dist.get_rank()
    found: dict[int, dist.ProcessGroup] = {}
    for numbers in _calls_of_pairs(len(lines[0]), ends_meet):
        # A rank without a pair is alone in its part: torch's names of groups have the number of groups that a rank has formed before, so
        # all ranks form equally many.
        parts = [[line[place] for place in part] for line in lines for part in numbers]
        group = group_of_mine(parts, description, limit)
        found |= {rank: group for part in parts if mine in part for rank in part if rank != mine}
    return found


def _calls_of_pairs(length: int, ends_meet: bool) -> list[list[tuple[int, ...]]]:
    """The pairs (0, 1), (1, 2), … of places of a line, divided so that no place is twice in a call: by turns, and the ends where they fit.

    What no pair of a call has is alone in it.
    """
    pairs = [(place, place + 1) for place in range(length - 1)]
    ends = (0, length - 1)
    calls: list[list[tuple[int, ...]]] = [[*pairs[::2]], [*pairs[1::2]]]
    if length % 2 == 0:
        calls[1].append(ends)
    elif ends_meet:
        calls.append([ends])
    return [call + [(place,) for place in range(length) if not any(place in pair for pair in call)] for call in calls]


def in_pairs(operations: Sequence[dist.P2POp], pairs: Mapping[int, dist.ProcessGroup]) -> list[dist.P2POp]:
    """The same messages, each over the group in `pairs` (see `pairs_of_mine`) of this rank and the other one, if there is one."""
    return [
        dist.P2POp(one.op, one.tensor, one.peer, pairs[one.peer], one.tag) if one.peer in pairs else one
        for one in operations
    ]


def group_of_one() -> dist.ProcessGroup:
    """A group of this rank alone, for torch's classes that want one and send nothing over it. No other rank takes part."""
    world = dist.group.WORLD
    assert world is not None
    if world.size() == 1:
        return world
    backend = None if world.bound_device_id is None else "gloo"  # a communicator of NCCL's would cost device memory
    return _formed(dist.new_group([dist.get_rank()], backend=backend, use_local_synchronization=True))


def runs_in_order() -> bool:
    """Whether what is started over a group runs one after the other, messages too, as on NCCL where the world is bound to a device.

    So what may not wait for each other has groups of its own. gloo runs all at the same time. The backend of dry runs stands for NCCL.
    """
    return str(dist.get_backend()) != "gloo"


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
