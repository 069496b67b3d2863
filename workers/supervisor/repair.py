"""Repair in place: end a generation of trainers, open the next.

Rules that it keeps: one death ends the generation, unless the others can train on without that rank (`absences.py`). They do until
their next meeting, with which their generation ends. All trainers are killed, which frees any collective; actors that died are
replaced, by hot spares where there are some; all trainers are forked again. They continue from the newest step that all of them have in
memory, else from the newest checkpoint. No generation is opened twice, as its number is in the journal before.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any, Final

from ..messages.rendezvous import Reservation
from .absences import Absences
from .emergency_checkpoint import BrokenGang, save_and_emit
from .event_pump import PumpedEvent, RankLost
from .gang import Gang
from .gang_state import Repair
from .hang_watchdog import after_abort, hang
from .node_loss import lost_nodes
from .policies.failures import Failure, brief, is_redundant
from .policies.repair_budget import NOT_FROM_MEMORY
from .ranks.handles import REST_S, TRAINER_END_S
from .ranks.members import Member, call_each
from .ranks.neighbours import Start, choose_replica_holders, starts
from .ranks.placement import RankReplaced
from .ranks.placement_group import NoRoom
from .restore_point import choose_restore_step

#: Seconds after a failure until its root cause is chosen: peers notice each other's deaths before they report their own.
ROOT_CAUSE_S: Final = 1.0


class RankNotStarted(Exception):
    """A rank's actor has not reserved: it died or raised an error, which is `__cause__`, or did not answer in time.

    `rank` None: ranks on several nodes have not answered, so that no node is blamed.
    """

    def __init__(self, rank: int | None, node: str | None, text: str) -> None:
        super().__init__(text)
        self.rank, self.node = rank, node


class Generations:
    """The generations of one gang's trainers."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self._holding: asyncio.Task[None] | None = None
        self._watchdog: asyncio.Task[None] | None = None
        self._kills = gang.phase == "ending"  # what a predecessor may have killed reports still
        self.absences = Absences(gang)

    # A generation's beginning.

    async def open(self) -> bool:
        """Fork all trainers and give them their assignments. False when the gang is stopped before.

        Raises RankNotStarted, RayError, TimeoutError.
        """
        gang = self.gang
        gang.generation += 1
        gang.snapshots_off = False
        await gang.journal.settled()  # so that no generation is opened twice
        reservations = await self._reserve()
        if reservations is None:
            return False
        for member, reservation in zip(gang.members, reservations, strict=True):
            member.renew()
            member.reservation = reservation
        gang.restore = await _restore_step(gang) if gang.generation > 1 else None
        for member, holder in zip(gang.members, choose_replica_holders(gang.members), strict=True):
            member.replica_holder = holder
        for member, start in zip(gang.members, starts(gang.spec, gang.members, gang.restore), strict=True):
            self.follow(member, start)
        self.watch_over()
        return True

    async def _reserve(self) -> list[Reservation] | None:
        """Every rank's reservation, or None when the gang is stopped before. Raises RankNotStarted.

        A rank that dies ends the wait at once. All have the same time to answer, so that who has not is known soon after the first is late.
        """
        gang = self.gang
        # Before: the bundle of an actor that dies with its node is soon on another one.
        where = {} if all(member.node for member in gang.members) else await gang.placement.nodes()
        calls = [
            _reserve_one(member, gang.generation, member.node or where.get(member.bundle)) for member in gang.members
        ]
        reserving: asyncio.Future[list[Reservation | RankNotStarted]] = asyncio.gather(*calls)
        ended = asyncio.ensure_future(gang.ended.wait())
        both: list[asyncio.Future[Any]] = [reserving, ended]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if ended.cancel():
            answers = await reserving
            if late := [answer for answer in answers if isinstance(answer, RankNotStarted)]:
                raise _not_answered(late)
            return [answer for answer in answers if not isinstance(answer, RankNotStarted)]
        reserving.cancel()
        return None

    def watch_over(self) -> None:
        """While a generation trains: have its snapshots held by neighbours, and watch for a hang."""
        loop = asyncio.get_running_loop()
        self._holding = loop.create_task(self._hold_snapshots())
        self.gang.watch.progress.began()
        self._watchdog = loop.create_task(self._watch_for_a_hang())

    async def _hold_snapshots(self) -> None:
        async for member, held in self.gang.placement.hold_snapshots(self.gang.members):
            member.snapshots = held

    async def _watch_for_a_hang(self) -> None:
        gang = self.gang
        if gang.spec.hang_timeout_s is None:
            return
        while True:
            self.fail(
                await hang(gang.spec, gang.members, gang.watch.progress, lambda: gang.spool.full or gang.secrets.missed)
            )
            if gang.ended.is_set():
                return
            gang.watch.progress.began()

    def stop_watching(self) -> None:
        for task in (self._holding, self._watchdog):
            if task:
                task.cancel()
        self.absences.end()

    # Its events.

    def follow(self, member: Member, start: Start | None) -> None:
        """Process a rank's events until its trainer has ended. `start` None: the trainer has its assignment."""
        member.reader = asyncio.get_running_loop().create_task(self._follow(member, start))

    async def _follow(self, member: Member, start: Start | None) -> None:
        try:
            async with contextlib.aclosing(self.gang.pump.pull_rank(self.gang.members, member, start)) as taken:
                async for one in taken:
                    self._apply(member, one)
        except Exception as error:  # an error in this code must not leave the gang waiting for this rank
            self.fail(Failure("gang_error", member.rank, brief(error), member.node))
            raise

    def _apply(self, member: Member, taken: PumpedEvent | RankLost) -> None:
        if isinstance(taken, RankLost):
            self.lose(member, taken.message)
            return
        member.pulled = taken.number
        member.news += not taken.beside
        member.done = member.done or taken.done
        member.stopped = member.stopped or taken.stopped
        member.exited = member.exited or taken.exited
        member.failed = member.failed or taken.failed
        self.gang.snapshots_off = self.gang.snapshots_off or taken.snapshots_off
        if taken.step is not None:
            member.step, member.trained = taken.step, True
        # `running`: rank 0 has trained a step of this generation, or started its program, which may have no steps.
        self.gang.spares.allow(self.gang.phase == "training" and self.gang.merger.state == "running")
        if taken.failure is not None and not (self._kills and taken.failure.secondary):
            self.fail(taken.failure)
        if taken.exited and not (taken.failure or member.done) and self.gang.phase == "training":
            self.absences.find()  # a predecessor may have ended it
        ends = (taken.done or taken.exited) and not self.gang.ended.is_set()
        if ends and (self.gang.all_done or self.gang.awaits_return):
            self.gang.ended.set()

    def lose(self, member: Member, message: str) -> None:
        """The rank's actor is gone, and its trainer with it."""
        member.exited = member.lost = True
        # A gang that ends removes its actors, and a dead supervisor may have done so.
        if self.gang.phase != "ending" or not (self._kills or self.gang.all_done):
            self.fail(Failure("rank_lost", member.rank, message, member.node))

    def fail(self, failure: Failure) -> None:
        """Record a failure that may be the cause of the generation's end, unless the others train on without its rank."""
        # Whichever failure is the root cause in the end.
        self.gang.distrusted = self.gang.distrusted or failure.cause in NOT_FROM_MEMORY
        accepted = self.absences.accepts(failure)
        # Of thousands of ranks that lose their connections, all tracebacks would be in every write of the journal.
        if not (accepted or is_redundant(failure, self.gang.failures)):
            self.gang.failures.append(failure)
        if not accepted or self.gang.awaits_return:
            self.gang.ended.set()

    # Its end.

    async def _end(self, repair: Repair) -> None:
        """Kill all trainers, drain their remaining events, and replace dead actors. Raises NoRoom."""
        gang = self.gang
        gang.spares.allow(training=False)
        lost = [member for member in gang.members if member.lost]
        # At once: a new process takes longest.
        await asyncio.gather(
            self._replace(lost, repair), call_each(gang.members, lambda rank: rank.stop(0.0, TRAINER_END_S))
        )
        for member in await drain_for_repair(gang):
            member.lost = True  # a trainer's exit that is still to be reported would be taken for the next one's
        gang.traces.end_generation(f"a repair ended it ({repair.cause})")
        gang.watch.stragglers.renew()
        others = [member for member in gang.members if member not in lost]
        for member in await gang.placement.lost(others):
            member.lost = True
        await self._replace([member for member in gang.members if member.lost], repair)
        self.stop_watching()
        gang.failures.clear()
        if not gang.stopping:
            gang.ended.clear()

    async def _replace(self, lost: Sequence[Member], repair: Repair) -> None:
        """Another actor for each of these ranks: a hot spare where one may be, else a new one."""
        if not lost:
            return
        gang = self.gang
        dead = [member.handle for member in lost]
        spares = gang.placement.promote_spares(lost)
        self.assign(spares)
        repair.spares += [one.rank for one in spares]
        others = [member for member in lost if member.rank not in {one.rank for one in spares}]
        self.assign(await gang.placement.replace(gang.members, others, dead, gang.generation + 1))

    async def kill(self, timeout_s: float, grace_s: float = 0.0) -> None:
        """Kill the gang's last trainers, after `grace_s` in which they may end. Connections that others lose by it are no failures."""
        self._kills = True
        await call_each(self.gang.members, lambda rank: rank.stop(grace_s, timeout_s))

    def assign(self, replaced: Sequence[RankReplaced]) -> None:
        for one in replaced:
            self.gang.members[one.rank].assign(one.handle, one.name, one.bundle)

    # Repair.

    async def decide(self) -> bool:
        """Whether this generation's failure is repaired; its incident is emitted then."""
        gang = self.gang
        root = await choose_root_cause(gang)
        if root.is_abort:
            limit_s = gang.spec.hang_timeout_s or gang.spec.timeout_s
            gang.failures.insert(0, await after_abort(root, gang.members, limit_s))
            root = gang.root_cause
        for other in await _find_lost_nodes(gang, root):
            gang.emit_incident(other)
        root = gang.root_cause
        if not gang.budget.allows(gang.is_repairable(root), gang.merger.newest_step):
            return False
        gang.repair = Repair(root.cause, root.rank, began=time.time())
        gang.emit_root_cause(root)
        gang.merger.emit_state("recovering", root.cause, root.text())
        return True

    async def repair(self) -> bool:
        """End the generation and open the next; False when it fails, which is the next repair's cause, or the gang is stopped."""
        from ray.exceptions import RayError

        gang = self.gang
        assert gang.repair is not None
        await asyncio.sleep(gang.budget.backoff_s)
        await (
            gang.journal.settled()
        )  # a supervisor that has a successor must not end the trainers of that one's generation
        try:
            await self._end(gang.repair)
            if gang.stopping or not await self.open():
                return False
        except NoRoom as error:
            gang.failures = [await self._yield_devices(str(error))]
            gang.ended.set()
            return False
        except RankNotStarted as error:
            self.fail(Failure("rank_lost", error.rank, f"the repair failed: {error}", error.node))
            return False
        except (RayError, TimeoutError) as error:
            self.fail(Failure("rank_lost", None, f"the repair failed: {brief(error)}"))
            return False
        gang.repair.generation, gang.repair.restored = gang.generation, gang.restore
        gang.merger.repair = gang.repair
        return True

    async def _yield_devices(self, no_room: str) -> Failure:
        """Save the state in memory as a checkpoint, as there are no devices for a repair, if the job may continue with fewer."""
        gang = self.gang
        if gang.spec.elastic_grace_s is None:
            return Failure("placement_timeout", None, no_room)
        return Failure("devices_lost", None, f"{no_room}; {await self.save_from_memory()}")

    async def save_from_memory(self) -> str:
        """Kill the trainers, and save the state in memory as a checkpoint; returns text: from where the next attempt continues."""
        gang = self.gang
        await gang.journal.settled()  # a partitioned supervisor, or one that has a successor, saves nothing
        await self.kill(TRAINER_END_S)
        await drain_for_repair(gang)
        broken = BrokenGang(gang.spec.run, gang.spec.world_size, gang.merger, gang.distrusted)
        return await save_and_emit(gang.members, broken)


async def _reserve_one(member: Member, generation: int, node: str | None) -> Reservation | RankNotStarted:
    """The rank's reservation, or that it has not answered in time. Raises RankNotStarted if it died, or raised an error."""
    from ray.exceptions import RayError

    try:
        return await member.placed.reserve(member.rank, generation, member.snapshots)
    except RayError as error:  # also a TimeoutError that the actor raised
        raise RankNotStarted(member.rank, node, brief(error)) from error
    except TimeoutError as error:
        return RankNotStarted(member.rank, node, brief(error))


async def _restore_step(gang: Gang) -> int | None:
    """The step that all ranks restore; None if no step has a snapshot for every rank.

    Snapshots of later steps are emptied, all of them for None: beside a later one the next snapshot would overwrite the common step.
    """
    step = None if gang.distrusted else await choose_restore_step(gang.members, gang.spec.dispensable)
    await asyncio.gather(*(member.placed.snapshots.forget(after=step or 0) for member in gang.members))
    gang.distrusted = False
    return step


def _not_answered(late: Sequence[RankNotStarted]) -> RankNotStarted:
    """The first of these ranks, if all are on its node. What is slow for several nodes is common to them, such as their storage."""
    nodes = {one.node for one in late}
    if len(late) == 1 or (len(nodes) == 1 and None not in nodes):
        return late[0]
    where = "" if None in nodes else f" on {len(nodes)} nodes"
    return RankNotStarted(None, None, f"{len(late)} ranks{where} have not answered: {late[0]}")


async def drain_for_repair(gang: Gang) -> list[Member]:
    """As the pump's `drain`, with time for ranks that have much left. A cancel does not wait for it."""
    return await gang.pump.drain(gang.members, TRAINER_END_S, REST_S, lambda: gang.stopping != "cancel")


async def choose_root_cause(gang: Gang) -> Failure:
    """Wait for a failure that is no secondary error of another one; the first failure when there is none."""
    for _ in range(20):
        if not gang.failures or not all(failure.secondary for failure in gang.failures):
            break
        await asyncio.sleep(ROOT_CAUSE_S / 20)
    return gang.root_cause


async def _find_lost_nodes(gang: Gang, root: Failure) -> list[Failure]:
    """If nodes are gone, the first is the cause, and their ranks report nothing any more. Returns the failures of the others."""
    accused = {failure.rank for failure in gang.failures if failure.rank is not None and failure.is_repairable}
    # Perhaps of a rank whose node is gone, which is noticed later than its connections end; or ranks on several nodes were silent.
    if root.secondary or (root.cause == "rank_lost" and root.rank is None):
        accused = {member.rank for member in gang.members}
    lost = await lost_nodes(gang.members, accused) if root.is_repairable or root.secondary else []
    gang.failures[:0] = lost
    gone = {failure.node for failure in lost}
    for node in gone:
        gang.spares.lose(node)
    for member in gang.members:
        if member.node in gone:
            member.lose_node()
    return lost[1:]
