"""The lifecycle of a gang: one driver, and one table of phases.

Rules that it keeps: all ranks or none; an incident is emitted before the `state` that follows from it; the final `state` is the last event,
emitted when the devices are free again. A restarted supervisor continues in the phase in which its predecessor died. It may send a rank
the same call a second time.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from ..messages.event import CheckpointEvent, ExecEvent, ProfileEvent
from .gang import Gang
from .gang_state import Phase
from .policies.failures import Failure, brief
from .ranks.handles import TRAINER_END_S, RankHandle, within
from .ranks.members import Member, call_each, leases_kept, nodes
from .ranks.neighbours import starts
from .ranks.placement_group import NoRoom, bundle_nodes, find_actor, rank_actors, remove_actors_and_group
from .ranks.room import node_places
from .ranks.spares import share_out
from .repair import Generations, RankNotStarted, choose_root_cause
from .until_answered import until_answered

#: Phase → the phases that may follow it.
MOVES: Final[dict[Phase, tuple[Phase, ...]]] = {
    "placing": ("training", "repairing", "ending"),
    "training": ("repairing", "ending"),
    "repairing": ("training", "repairing", "ending"),
    "ending": ("ended",),
    "ended": (),
}
STOP_GRACE_S: Final = 1.0
#: Seconds for the last events of ranks that are killed. Those of ranks that are done get `TRAINER_END_S`.
DRAIN_S: Final = 2.0
#: Seconds that the ranks may take to end after a common step and to save it; a cancel interrupts that.
SAVE_S: Final = 3600.0


class Lifecycle:
    """Takes one gang from its placement to its final event."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.generations = Generations(gang)
        self._faults: dict[str, asyncio.Task[None]] = {}
        self._traces: asyncio.Task[None] | None = None
        self._profiles: dict[str, asyncio.Task[None]] = {}
        self._execs: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Returns when the final event is emitted."""
        act: dict[Phase, Callable[[], Awaitable[Phase]]] = {
            "placing": self._place,
            "training": self._after_generation,
            "repairing": self._repair,
        }
        try:
            while self.gang.phase in act:
                self._move(await act[self.gang.phase]())
        except Exception as error:  # noqa: BLE001  (top of the actor's task: a gang ends by its final event)
            cause = "start_failed" if self.gang.phase == "placing" else "gang_error"
            self.generations.fail(Failure(cause, None, brief(error)))
            self._move("ending")
        if self.gang.phase == "ending":
            try:
                await self._end()
            except Exception as error:  # noqa: BLE001  (also the top: who removes the gang frees what is left of it)
                self.gang.merger.emit_state("failed", "gang_error", brief(error))
            self._move("ended")

    def _move(self, phase: Phase) -> None:
        assert phase in MOVES[self.gang.phase], f"no move from {self.gang.phase} to {phase}"
        self.gang.phase = phase

    def stop(self, reason: str) -> None:
        """End the gang. `preempt` saves a checkpoint first; `cancel` does not, and interrupts a running preempt."""
        if self.gang.stopping is None or reason == "cancel":
            self.gang.stopping = reason
            self.gang.ended.set()

    # The phases: each returns the next one.

    async def _place(self) -> Phase:
        """Reserve the devices, make the actors, and start the first generation."""
        from ray.exceptions import RayActorError

        gang = self.gang
        await gang.journal.settled()
        try:
            if not await gang.placement.place():
                return await self._after_generation()
            await self._make_actors()
            async with leases_kept(gang.members, gang.spec.lease_s):  # actors that are ready wait for the slowest one
                opened = await self.generations.open()
            if not opened:
                return await self._after_generation()
        except NoRoom as error:
            self.generations.fail(Failure("placement_timeout", None, str(error)))
            return await self._after_generation()
        except RankNotStarted as error:
            died = isinstance(error.__cause__, RayActorError)
            who = "it" if error.rank is not None else "the gang"
            message = f"{'its actor died at the start' if died else f'{who} did not start'}: {error}"
            cause = "rank_lost" if died else "start_failed"
            self.generations.fail(Failure(cause, error.rank, message, error.node))
            return await self._after_generation()
        except RayActorError as error:
            self.generations.fail(Failure("rank_lost", None, f"a rank's actor died at the start: {brief(error)}"))
            return await self._after_generation()
        gang.merger.emit_state("starting", "placed", _placed(gang.spec.world_size, len(nodes(gang.members))))
        return "training"

    async def _make_actors(self) -> None:
        gang = self.gang
        where = await asyncio.to_thread(bundle_nodes, gang.placement.group)
        groups, others = share_out(gang.spec, where, await asyncio.to_thread(node_places))
        if not gang.members:
            ranks = range(gang.spec.world_size)
            gang.members += [Member(rank, groups[rank // gang.spec.tensor], lost=True) for rank in ranks]
        gang.spares.begin(gang.placement.group, others)
        lost = await gang.placement.lost(gang.members)
        self.generations.assign(await gang.placement.create(lost, gang.generation + 1))

    async def _repair(self) -> Phase:
        """Repair the gang, with no time limit: wait for Ray to notice a node's death, for room, and for replicas."""
        async with leases_kept(self.gang.members, self.gang.spec.lease_s):
            repaired = await self.generations.repair()
        return "training" if repaired else await self._after_generation()

    async def _after_generation(self) -> Phase:
        """Wait until the generation ends, or has failed to start; returns the next phase. What a preempted one has trained is saved."""
        gang = self.gang
        await gang.ended.wait()
        if not (gang.stopping or gang.all_done):
            async with leases_kept(gang.members, gang.spec.lease_s):
                if await self.generations.decide():
                    return "repairing"
        if gang.stopping == "preempt" and gang.phase != "placing":
            await self._save()
        return "ending"

    async def _save(self) -> None:
        """Have all ranks end after the same step and save it. Returns when they have, a rank has failed, or the job is cancelled.

        Ranks that cannot save it together, or have not in time, save nothing: what they have in memory becomes the checkpoint.
        """
        gang = self.gang
        if gang.phase == "training" and not gang.failures:
            gang.ended.clear()
            await gang.journal.settled()  # so that a successor knows why they end
            await call_each(gang.members, RankHandle.save)
            if not (gang.all_done or gang.awaits_return or gang.failures or gang.stopping == "cancel"):
                with contextlib.suppress(TimeoutError):
                    await within(SAVE_S, gang.ended.wait())
        if await _is_broken(gang) and gang.stopping != "cancel":
            async with leases_kept(gang.members, gang.spec.lease_s):
                message = await self.generations.save_from_memory()
            # Else no reported step is to be trained again.
            if max(gang.merger.newest(CheckpointEvent.kind), 0) < gang.merger.newest_step:
                gang.emit_incident(Failure("checkpoint_failed", None, message))

    async def _end(self) -> None:
        """Stop what still runs, drain events, free the devices, and emit the final state."""
        gang = self.gang
        self.generations.stop_watching()
        await gang.journal.settled()
        success = gang.all_done and not any(member.stopped for member in gang.members)
        if gang.all_done:
            await call_each(gang.members, RankHandle.release)
        elif gang.stopping:
            if gang.failures and gang.stopping == "preempt":
                await choose_root_cause(gang)
            await self.generations.kill(STOP_GRACE_S + DRAIN_S, STOP_GRACE_S)
        else:
            await choose_root_cause(gang)
            await self.generations.kill(DRAIN_S)
        await gang.pump.drain(gang.members, TRAINER_END_S if gang.all_done else DRAIN_S)
        gang.traces.end_gang()
        await gang.placement.remove(gang.members)
        self._emit_end(success)

    def _emit_end(self, success: bool) -> None:
        gang = self.gang
        if success:
            gang.merger.emit_state("succeeded", "completed", "")
        elif gang.stopping:
            if gang.failures and gang.stopping == "preempt":
                gang.emit_root_cause(gang.root_cause)
            gang.merger.emit_state("cancelled", gang.stopping, "")
        else:
            root = gang.root_cause
            gang.emit_root_cause(root)
            gang.merger.emit_state("failed", gang.final_reason(root), root.text())

    async def give_up(self, failure: Failure, after: Awaitable[int]) -> None:
        """End a gang whose journal cannot be read. Its ranks are found by name; its events are numbered after the dispatcher's newest."""
        gang = self.gang
        gang.failures = [failure]
        self._move("ending")
        await until_answered(lambda: remove_actors_and_group(gang.spec.name, rank_actors(gang.spec.name)))
        newest = await after
        if gang.spool.last < newest:  # the journal did not say how many there were
            gang.spool.refill([], newest)
        self._emit_end(success=False)
        self._move("ended")

    # After the supervisor's own death.

    async def adopt(self) -> None:
        """Find the predecessor's actors, and continue with its ranks and orders. The journal knows of it then: ranks may be pulled."""
        gang = self.gang
        async with leases_kept(gang.members, gang.spec.lease_s):
            await _find_ranks(gang.members)
        async with leases_kept(gang.members, gang.spec.lease_s, at_once=True):
            await self._follow_found()
            if gang.phase in ("placing", "training"):  # a repair continues, for the incident that began it
                message = f"another one took over its {len(gang.members)} ranks, which trained on meanwhile"
                gang.emit_incident(Failure("supervisor_lost", None, message))
            if gang.failures or gang.stopping or gang.all_done or gang.awaits_return:
                gang.ended.set()
            self.run_orders()
            await gang.journal.settled()

    async def _follow_found(self) -> None:
        gang = self.gang
        await until_answered(gang.spares.find)
        if gang.phase in ("training", "repairing"):
            await gang.placement.find()
            gang.spares.begin(gang.placement.group)
        if gang.phase in ("training", "repairing", "ending"):
            self._follow_again()

    def _follow_again(self) -> None:
        gang, training = self.gang, self.gang.phase == "training"
        begun = starts(gang.spec, gang.members, gang.restore) if training else [None] * len(gang.members)
        if training:
            self.generations.absences.find()
        for member, start in zip(gang.members, begun, strict=True):
            if member.handle is not None and not member.exited:
                self.generations.follow(member, start)
            elif not member.exited:
                self.generations.lose(member, "the rank's actor died with its supervisor")
        if training:
            self.generations.watch_over()

    # Faults, traces, profiles and commands.

    def run_orders(self) -> None:
        """Carry out what is pending, each in a task of its own; traces one after the other."""
        gang = self.gang
        begin_each(self._faults, gang.faults.queue.pending, self._inject)
        begin_each(self._profiles, gang.profiles.queue.pending, self._profile)
        begin_each(self._execs, gang.execs.queue.pending, self._execute)
        if gang.traces.queue.pending and (self._traces is None or self._traces.done()):
            tracing = gang.traces.carry_out(gang.members, lambda: gang.phase)
            self._traces = asyncio.get_running_loop().create_task(tracing)

    async def _execute(self, name: str) -> None:
        queue = self.gang.execs.queue
        end = await self.gang.execs.carry_out(queue.pending[name])
        if end is not None and not self.gang.merger.ended:
            order = queue.report(name).order
            event = ExecEvent(id=order.id, rank=order.rank, status=end.status, message=end.message)
            # Streams are in order of time, and the clock of an actor of an earlier version may be ahead of this one: its output must not
            # follow the command's end.
            self.gang.merger.emit(event, max(time.time(), end.at), urgent=True)

    async def _profile(self, name: str) -> None:
        queue = self.gang.profiles.queue
        outcome = await self.gang.profiles.carry_out(queue.pending[name])
        if outcome is not None and not self.gang.merger.ended:
            order = queue.report(name)
            event = ProfileEvent(
                id=order.id,
                profile=order.kind,
                rank=order.rank,
                done=outcome.file is not None,
                message=outcome.message,
                file=outcome.file,
            )
            self.gang.merger.emit(event, urgent=True)

    async def _inject(self, name: str) -> None:
        faults = self.gang.faults
        done = await faults.carry_out(faults.queue.pending[name])
        if done is not None and not self.gang.merger.ended:
            self.gang.merger.emit_fault(faults.queue.report(name).fault, done)


def begin_each(
    tasks: dict[str, asyncio.Task[None]],
    pending: Collection[str],
    carry_out: Callable[[str], Coroutine[Any, Any, None]],
) -> None:
    """Begin a task for each pending order that has none, by its id, and forget the tasks of those that were reported."""
    for name in [name for name in tasks if name not in pending]:
        del tasks[name]
    for name in pending:
        if name not in tasks:
            tasks[name] = asyncio.get_running_loop().create_task(carry_out(name))


async def _is_broken(gang: Gang) -> bool:
    """Whether ranks of this package's own loop cannot save together, although what they have in memory is whole.

    A repair has killed their trainers, one of them is gone, they have not ended in time, or a machine has failed.
    """
    if gang.all_done or gang.spec.entry:
        return False
    if gang.phase == "repairing" or gang.awaits_return or not gang.ended.is_set():
        return True
    return bool(gang.failures) and gang.is_repairable(await choose_root_cause(gang))


async def _find_ranks(members: Sequence[Member]) -> None:
    """Find their actors by name. A rank without one is lost."""
    for member in members:
        actor = await until_answered(partial(find_actor, member.name))
        member.handle = None if actor is None else RankHandle(actor)
        member.lost = member.lost or actor is None


def _placed(ranks: int, nodes: int) -> str:
    return f"{ranks} rank{'s' if ranks > 1 else ''} on {nodes} node{'s' if nodes > 1 else ''}"
