"""The hang watchdog: if no rank makes progress for too long, it examines every rank and names the culprit.

On NCCL it also asks NCCL's RAS subsystem, some seconds before the verdict is due. The verdict never waits for that answer.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ..messages.gang_spec import GangSpec
from ..messages.nccl_report import RasReport
from .policies.diagnosis import diagnose
from .policies.examination import Examination
from .policies.failures import ABORTED, Failure
from .policies.hang import Progress, evidence, hung
from .policies.witness import join, witness_of
from .ranks.members import Member

#: Minimum seconds between two examinations of a gang without progress.
POLL_S: Final = 0.1
#: Seconds before the verdict in which NCCL's RAS is asked, if that is less than half of the time without progress. An actor takes 3 s.
WITNESS_S: Final = 4.0
#: Nodes of which one actor each asks. One answer is enough: each is about the whole job.
ASKED: Final = 3
#: Seconds in which a trainer whose stacks cannot be read writes them to its log.
WRITTEN_S: Final = 1.0
#: For `failures.ABORTED` in the message of a hang that was found by NCCL's watchdog.
ENDED: Final = "a collective did not end, and NCCL's watchdog aborted the trainer"


async def hang(spec: GangSpec, members: Sequence[Member], progress: Progress, is_held: Callable[[], bool]) -> Failure:
    """Wait for a hang of this generation, with no time limit, and return it. Cancel the call when the generation ends.

    `is_held`: whether the ranks wait for the dispatcher.
    """
    while True:
        ahead_s = min(WITNESS_S, progress.limit_s / 2) if spec.device == "cuda" else 0.0
        await asyncio.sleep(max(progress.left_s - ahead_s, POLL_S))
        if is_held():
            progress.began()
        if progress.left_s > ahead_s:
            continue
        asking = asyncio.ensure_future(_ask_nccl(spec, members))
        try:
            await asyncio.sleep(progress.left_s)
            if is_held():
                progress.began()
            if progress.left_s > 0:
                continue
            found = await _examine([member for member in members if member.absence is None])
            limit_s = progress.limit_s
            left = [one for one in found if not members[one.rank].done]  # one that is done waits for its release
            if not left or not hung(left, limit_s, max(limit_s, spec.timeout_s)):
                progress.began()
            elif progress.left_s == 0:
                idle_s, report = progress.idle_s, asking.result() if asking.done() else None
                found, written = await _with_stacks(found, members)
                if progress.left_s == 0 or written:  # what a trainer writes looks like progress
                    return _failure(found, members, idle_s, report)
        finally:
            asking.cancel()


async def after_abort(abort: Failure, members: Sequence[Member], limit_s: float) -> Failure:
    """The hang for which NCCL's watchdog has ended trainers. Those that it has not ended yet are examined at once.

    A rank is named only if it lives, has made no progress for `limit_s`, and waits for no rank.
    """
    living = [member for member in members if not (member.exited or member.lost)]
    found = [one for one in await _examine(living) if one.answered or one.stopped]
    verdict = diagnose(found, len(members)) if found else None
    named = next((one for one in found if verdict is not None and one.rank == verdict.rank), None)
    message = abort.message.replace(ABORTED, ENDED, 1)
    if verdict is None or named is None or not (named.stopped or (named.is_free and named.idle_s >= limit_s)):
        return Failure("hang", None, message, evidence=evidence(found, verdict))
    node = members[named.rank].node
    return Failure("hang", named.rank, f"{verdict.message}; {message}", node, evidence=evidence(found, verdict))


async def _examine(members: Sequence[Member]) -> list[Examination]:
    """The status of every rank; empty for a rank whose actor does not answer."""
    facts = await asyncio.gather(*(member.placed.examine() for member in members), return_exceptions=True)
    pairs = zip(members, facts, strict=True)
    return [Examination.of(m.rank, {} if isinstance(found, BaseException) else found) for m, found in pairs]


async def _ask_nccl(spec: GangSpec, members: Sequence[Member]) -> RasReport | None:
    """The first report of NCCL's RAS subsystem; None without one. gloo has none, and is not asked."""
    if spec.device != "cuda":
        return None
    one_per_node = {member.node: member for member in reversed(members) if member.living and not member.exited}
    asking = [asyncio.ensure_future(_report(member)) for member in list(one_per_node.values())[:ASKED]]
    try:
        for answer in asyncio.as_completed(asking):
            if (report := await answer) is not None:
                return report
    finally:
        for one in asking:
            one.cancel()
    return None


async def _report(member: Member) -> RasReport | None:
    with contextlib.suppress(Exception):  # a call to another process
        return await member.placed.ask_nccl()
    return None


def _failure(
    found: Sequence[Examination], members: Sequence[Member], idle_s: float, report: RasReport | None
) -> Failure:
    witness = witness_of(report, found)
    verdict = join(diagnose(found, len(members)), found, witness)
    node = None if verdict.rank is None else members[verdict.rank].node
    message = f"no progress for {idle_s:.0f} s: {verdict.message}"
    seen = evidence(found, verdict) | ({"nccl_ras": witness.evidence} if witness.lines else {})
    return Failure("hang", verdict.rank, message, node, evidence=seen)


async def _with_stacks(found: Sequence[Examination], members: Sequence[Member]) -> tuple[list[Examination], bool]:
    """With the stacks of trainers that have not answered; and whether some could not be read, so that logs may have them."""
    silent = [one for one in found if not one.answered]
    reading = (members[one.rank].placed.read_stacks() for one in silent)
    texts = dict(zip((one.rank for one in silent), await asyncio.gather(*reading, return_exceptions=True), strict=True))
    written = any(text == "" or isinstance(text, TimeoutError) for text in texts.values())
    if written:
        await asyncio.sleep(WRITTEN_S)
    read = {rank: text for rank, text in texts.items() if isinstance(text, str)}
    return [replace(one, read=read.get(one.rank, "")) for one in found], written
