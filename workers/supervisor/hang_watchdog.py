"""The hang watchdog: if no rank makes progress for too long, it examines every rank and names the culprit."""

import asyncio
from collections.abc import Sequence
from typing import Final

from ..messages.event_buffer import Spool
from ..messages.gang_spec import GangSpec
from .policies.diagnosis import diagnose
from .policies.examination import Examination
from .policies.failures import Failure
from .policies.hang import Progress, evidence, hung
from .ranks.handles import STACKS_S
from .ranks.members import Member

#: Minimum seconds between two examinations of a gang without progress.
LOOK_S: Final = 0.1


async def hang(spec: GangSpec, members: Sequence[Member], progress: Progress, spool: Spool) -> Failure:
    """Wait for a hang of this generation, with no time limit, and return it. Cancel the call when the generation ends."""
    while True:
        await asyncio.sleep(max(progress.left_s, LOOK_S))
        if spool.full:  # the ranks wait for the dispatcher
            progress.began()
        if progress.left_s > 0:
            continue
        found = await _examine(members)
        limit_s = progress.limit_s
        if not hung(found, limit_s, max(limit_s, spec.timeout_s)):
            progress.began()
        elif progress.left_s == 0:
            return await _failure(found, members, progress.idle_s)


async def _examine(members: Sequence[Member]) -> list[Examination]:
    """The status of every rank; empty for a rank whose actor does not answer."""
    facts = await asyncio.gather(*(member.placed.examine() for member in members), return_exceptions=True)
    pairs = zip(members, facts, strict=True)
    return [Examination.of(m.rank, {} if isinstance(found, BaseException) else found) for m, found in pairs]


async def _failure(found: Sequence[Examination], members: Sequence[Member], idle_s: float) -> Failure:
    verdict = diagnose(found)
    await _write_stacks([members[one.rank] for one in found if not one.answered])
    node = None if verdict.rank is None else members[verdict.rank].node
    message = f"no progress for {idle_s:.0f} s: {verdict.message}"
    return Failure("hang", verdict.rank, message, node, evidence=evidence(found))


async def _write_stacks(silent: Sequence[Member]) -> None:
    """Have trainers that cannot answer write their stacks to their logs. The incident includes a log's last lines."""
    await asyncio.gather(*(member.placed.write_stacks() for member in silent), return_exceptions=True)
    if silent:
        await asyncio.sleep(STACKS_S)
