"""From which step a repaired gang goes on: the newest of which every rank has a snapshot, its own or a copy on another node.

Rules that it keeps: one step for all, or none (the newest checkpoint serves then); a rank whose own memory is gone has its copy
back before anyone trains.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from .hang_watchdog import within
from .policies.repair_budget import agreed
from .ranks.members import Member, keeper

ANSWER_S: Final = 120.0
#: A copy crosses the network once, at 10 MB/s at worst.
HAND_OVER_S: Final = 3600.0


async def agree(members: Sequence[Member]) -> int | None:
    """The step; every rank has its snapshot of it now. None when there is none. Raises RayError, TimeoutError."""
    own = await asyncio.gather(*(within(ANSWER_S, member.actor.snapshots.remote()) for member in members))
    pairs = list(zip(members, own, strict=True))
    copies = await asyncio.gather(*(_copies(members, member) for member, mine in pairs if not mine))
    step = agreed([mine for mine in own if mine] + copies)
    if step is not None:
        await asyncio.gather(*(_fetch(members, member, step) for member, mine in pairs if step not in mine))
    return step


async def _copies(members: Sequence[Member], member: Member) -> list[int]:
    """The steps that are kept for a rank that has nothing itself."""
    source = keeper(members, member)
    if source is None:
        return []
    kept: list[int] = await within(ANSWER_S, source.actor.kept.remote(member.rank))
    return kept


async def _fetch(members: Sequence[Member], member: Member, step: int) -> None:
    source = keeper(members, member)
    assert source is not None, "a step was agreed on that this rank does not have"
    await within(HAND_OVER_S, source.actor.hand_over.remote(member.rank, step, member.actor))
