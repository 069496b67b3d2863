"""The restore point of a repaired gang: the newest step of which every rank has a snapshot, its own or a replica on another node.

Rules that it keeps: one step for all ranks, or none (then the newest checkpoint is used); a rank whose own memory is gone gets its
replica back before any rank trains. Ranks without tensors may do without a snapshot (`trainer/restore.py`).
"""

import asyncio
from collections.abc import Collection, Sequence

from .ranks.members import Member
from .ranks.neighbours import Neighbours


def newest_common(available: Sequence[Collection[int]]) -> int | None:
    """The newest step that every rank has; None when there is none."""
    common = set(available[0]).intersection(*available[1:])
    return max(common, default=None)


async def choose_restore_step(members: Sequence[Member], dispensable: Collection[int] = ()) -> int | None:
    """The restore point, after every rank has got its snapshot of it. None if there is none. Raises RayError, TimeoutError.

    `dispensable`: the ranks that need none.
    """
    near = Neighbours(members)
    needing = [member for member in members if member.rank not in dispensable]
    own = await asyncio.gather(*(member.placed.snapshots.steps() for member in needing))
    pairs = list(zip(needing, own, strict=True))
    replicas = await asyncio.gather(*(_replicas(near, member) for member, mine in pairs if not mine))
    step = newest_common([mine for mine in own if mine] + replicas)
    if step is not None:
        await asyncio.gather(*(_restore(near, member, step) for member, mine in pairs if step not in mine))
    return step


async def _replicas(near: Neighbours, member: Member) -> list[int]:
    """The steps of which there is a replica of a rank that has none itself."""
    holder = near.replica_holder(member)
    return [] if holder is None else await holder.placed.snapshots.steps_of(member.rank)


async def _restore(near: Neighbours, member: Member, step: int) -> None:
    holder = near.replica_holder(member)
    assert holder is not None, "a step was chosen that this rank does not have"
    await holder.placed.snapshots.restore_to(member.rank, step, member.placed)
