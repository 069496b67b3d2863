"""The supervisor's look-out for a hang: when no rank gets on for too long, every rank is examined and the culprit named.

Also how it speaks to ranks: an answer is waited for so long and not longer, and in a long repair each rank hears from it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, Final

from ..messages.event_buffer import Spool
from .policies.failures import Failure
from .policies.hang import Examination, Progress, diagnose, evidence, hung
from .ranks.members import Member
from .ranks.placement_group import Order

#: A rank that is busy answers late; one that does not answer for so long is lost.
ANSWER_S: Final = 30.0
#: So long a rank may keep a call for its events waiting when it has none.
PULL_S: Final = 10.0
#: A rank that starts imports, forks and reserves memory.
START_S: Final = 120.0
#: In a repair, so long for an actor to tell its trainer's end; one that does not is replaced.
LAST_WORD_S: Final = 10.0
#: A trainer that cannot answer writes its stacks to its log, which takes so long.
STACKS_S: Final = 1.0
#: Between two looks at a gang whose time is up, at least so long.
BREATH_S: Final = 0.1


async def hang(order: Order, members: Sequence[Member], progress: Progress, spool: Spool) -> Failure:
    """Wait for a hang of this generation, if need be for ever, and say what it is. Cancel it when the generation ends."""
    while True:
        await asyncio.sleep(max(progress.left_s, BREATH_S))
        if spool.full:  # the ranks wait for the dispatcher, as they should
            progress.began()
        if progress.left_s > 0:
            continue
        found = await _examine(members)
        limit_s = progress.limit_s
        if not hung(found, limit_s, max(limit_s, order.timeout_s)):
            progress.began()
        elif progress.left_s == 0:
            return await _failure(found, members, progress.idle_s)


async def _examine(members: Sequence[Member]) -> list[Examination]:
    """What every rank does now; of one whose actor does not answer, nothing."""
    answers = [within(ANSWER_S, member.actor.examine.remote()) for member in members]
    facts = await asyncio.gather(*answers, return_exceptions=True)
    pairs = zip(members, facts, strict=True)
    return [Examination.of(m.rank, {} if isinstance(told, BaseException) else told) for m, told in pairs]


async def _failure(found: Sequence[Examination], members: Sequence[Member], idle_s: float) -> Failure:
    verdict = diagnose(found)
    await _write_stacks([members[one.rank] for one in found if not one.answered])
    node = None if verdict.rank is None else members[verdict.rank].node
    message = f"no progress for {idle_s:.0f} s: {verdict.message}"
    return Failure("hang", verdict.rank, message, node, evidence=evidence(found))


async def _write_stacks(silent: Sequence[Member]) -> None:
    """Who cannot answer is made to write its stacks to its log, of which an incident quotes the last lines."""
    calls = [within(STACKS_S, member.actor.write_stacks.remote()) for member in silent]
    await asyncio.gather(*calls, return_exceptions=True)
    if silent:
        await asyncio.sleep(STACKS_S)


@contextlib.asynccontextmanager
async def leases_kept(members: Sequence[Member], lease_s: float) -> AsyncIterator[None]:
    """While this lasts, no rank may think that its supervisor is gone, though nobody pulls its events."""
    beating = asyncio.get_running_loop().create_task(_beat(members, lease_s / 3))
    try:
        yield
    finally:
        beating.cancel()


async def _beat(members: Sequence[Member], every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        living = [member.actor for member in members if member.actor is not None and not member.lost]
        await asyncio.gather(*(within(every_s, actor.beat.remote()) for actor in living), return_exceptions=True)


async def within(timeout_s: float, reference: Awaitable[Any]) -> Any:
    """An actor's answer; TimeoutError when it takes longer."""
    async with asyncio.timeout(timeout_s):
        return await reference
