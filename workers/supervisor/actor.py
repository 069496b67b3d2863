"""The supervisor actor: it owns the ranks of one attempt and is the only one who speaks for them.

Rules that it keeps: all ranks or none; one death ends the generation, and the gang where it may not be repaired; the root
cause is told before the `state` that it brings, of which the final one is the last event, told when the devices are free again;
events are numbered once, in order, and forgotten only when the dispatcher has acknowledged them; when nobody takes them, ranks
wait rather than lose steps. It outlives the control plane, but not for ever.

When it dies, Ray starts it again, and it goes on from its journal in the phase in which it died; whatever it orders of a rank may be
ordered twice. Meanwhile the ranks train on, each for a lease's length.

A repair kills the trainers that are left (which frees any collective), replaces the actors that died (by spares, where there are some),
forks all trainers anew, and lets them go on from the newest step that all of them have in memory; else from the newest checkpoint.
"""

import asyncio
import contextlib
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from ..messages.event_buffer import Spool
from ..messages.fault_request import Fault
from ..messages.rendezvous import Reservation
from ..messages.trace_request import Trace
from ..rank.lease import leave
from .emergency_checkpoint import Ground, rescue
from .event_merger import Story
from .event_pump import Hearing
from .fault_orders import Docket, Faults
from .gang_state import GangState, JournalUnreadable, Phase, Repair
from .hang_watchdog import LAST_WORD_S, PULL_S, START_S, hang, leases_kept, within
from .journal.journal import Journal, until_answered
from .node_loss import lost_node
from .policies.failures import Failure, brief
from .policies.hang import Progress
from .policies.loss_spike import Spikes
from .policies.repair_budget import NOT_FROM_MEMORY, Budget
from .policies.straggler import Stragglers
from .rank_samples import Samples
from .ranks.members import Member, coordinates, nodes, pair
from .ranks.placement import Seats
from .ranks.placement_group import NoRoom, Order, bundle_nodes, find_actor, rank_actors, remove_remains
from .ranks.spares import Spare, Spares, share_out
from .restore_point import agree
from .trace_orders import Book, Traces

#: What the dispatcher has not taken is kept in the journal too, in the memory of the cluster's head.
SPOOL_BYTES: Final = 16 << 20
#: So long an event waits for company before the dispatcher gets it: that of the other ranks, whose steps end together.
LINGER_S: Final = 0.05
#: After a failure, so long for a better cause: peers notice each other's deaths before they tell their own.
ROOT_CAUSE_S: Final = 1.0
STOP_GRACE_S: Final = 1.0
DRAIN_S: Final = 2.0
#: So long the ranks may take to end after a common step and to save it; whoever is in haste cancels.
SAVE_S: Final = 3600.0
#: An ended gang keeps its last events so long for a control plane that is away; it holds no device then.
ABANDONED_S: Final = 7 * 24 * 3600.0


class Supervisor:
    """The gang of one attempt, a detached Ray actor named like the gang."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.pull_s = min(PULL_S, order.lease_s / 3)  # a rank counts a call as a word from us when it ends, too
        self.spool = Spool(SPOOL_BYTES)
        self.story = Story(self.spool, order.world_size, order.submitted_at)
        self.journal = Journal(order.name, self.spool, lambda: self.to_state().to_json())
        self.seats = Seats(self)
        self.hearing = Hearing(self)
        self.members: list[Member] = []
        self.spares = Spares(order, self.journal.settled)
        self.failures: list[Failure] = []
        self.stopping: str | None = None
        self.phase: Phase = "placing"
        self.repair: Repair | None = None  # the newest one
        self.generation = 0
        self.distrusted = False  # what is in memory; the gang goes on from a checkpoint then
        self.restore: int | None = None  # the step whose snapshots this generation began with
        self.budget = Budget(order.repairs)
        self.docket = Docket()
        self.faults = Faults(self)
        self.book = Book()
        self.traces = Traces(self)
        self.progress = Progress(order.hang_s or math.inf)
        self.stragglers = Stragglers(order.straggler)
        self.spikes = Spikes(order.loss_spike)
        self.samples = Samples(order.world_size)
        self.spoken = time.monotonic()
        self._ended = asyncio.Event()
        self._pulled = asyncio.Event()
        self._first_after = 0  # of the first pull
        self._beginning = asyncio.Lock()
        self._life: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        if _restarted():
            self._waking = asyncio.get_running_loop().create_task(self.begin(again=True))

    async def begin(self, again: bool = False) -> None:
        """Start the gang, or go on with it; harmless when that is done. `again`: only if it was started before."""
        self.spoken = time.monotonic()
        async with self._beginning:
            if self._life is not None:
                return
            life = await self._recalled() or (None if again else self._live())
            if life is not None:
                self._life = asyncio.get_running_loop().create_task(life)

    async def pull(self, after: int, wait_s: float) -> dict[str, Any]:
        """Events after `after` (at most 1000), waiting up to `wait_s`; acknowledges those up to `after`."""
        await self.begin()
        if not self._pulled.is_set():
            self._first_after = after
            self._pulled.set()
        self.spool.take(after)
        await self.spool.wait(after, wait_s, LINGER_S)
        if self.spool.last > self.journal.last:
            await self.journal.settled()
        self.spoken = time.monotonic()
        written = self.journal.last
        return {"events": [event for event in self.spool.take(after) if event["seq"] <= written], "last": written}

    async def stop(self, reason: str) -> None:
        """End the gang; returns when its final event is told. `reason`: `preempt` saves before, `cancel` is in haste and ends that, too."""
        await self.begin()
        if self.stopping is None or reason == "cancel":
            self.stopping = reason
            self._ended.set()
        assert self._life is not None
        await asyncio.wait([self._life])

    async def inject(self, fault: dict[str, Any]) -> None:
        """A fault that somebody asked for (`faults.py`); returns when the order cannot be lost any more."""
        await self.begin()
        await self.faults.order(Fault.from_json(fault))

    async def trace(self, order: dict[str, Any]) -> None:
        """A trace that somebody asked for (`traces.py`); returns when the order cannot be lost any more. Harmless when it comes again."""
        await self.begin()
        await self.traces.order(Trace.from_json(order))

    async def status(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "state": self.story.state,
            "last": self.spool.last,
            "ranks": [{"rank": m.rank, "node": m.node, "done": m.done, "exited": m.exited} for m in self.members],
            "spares": [{"name": spare.name, "node": spare.node} for spare in self.spares.all],
        }

    async def close(self) -> None:
        """Remove ranks and placement group. The supervisor then exits, and is not started again."""
        if self._life:
            self._life.cancel()
            await asyncio.wait([self._life], timeout=DRAIN_S)
        await self.journal.close()  # first: whoever finds the ranks removed must not repair the gang
        await self.seats.remove()
        asyncio.get_running_loop().call_later(0.1, leave)

    # The gang's life.

    async def _live(self) -> None:
        """From the placement group to the final event; a restarted supervisor begins in the phase that it remembers."""
        try:
            if self.phase == "placing":
                await self._start()
            elif self.phase == "repairing":
                async with leases_kept(self.members, self.order.lease_s):
                    await self._mend()
            await self._ended.wait()
            while self._may_be_mended() and await self._repair():
                await self._ended.wait()
        except Exception as error:
            self.fail(Failure("start_failed", None, brief(error)))
        if self.stopping == "preempt" and self.phase == "training" and not self.failures:
            await self._save()
        if self.phase != "ended":
            await self._end()
        self._watch = asyncio.get_running_loop().create_task(self._leave_when_abandoned())

    async def _start(self) -> None:
        """Ranks with their trainers waiting, then everybody's orders. Returns early when the gang is stopped, or to be repaired."""
        from ray.exceptions import RayActorError

        await self.journal.settled()
        try:
            placed = await self.seats.place()
        except NoRoom as error:
            self.fail(Failure("placement_timeout", None, str(error)))
            return
        if not placed:
            return
        groups, others = share_out(self.order, await asyncio.to_thread(bundle_nodes, self.seats.group))
        ranks = range(self.order.world_size)
        self.members = self.members or [Member(n, groups[n // self.order.tensor], lost=True) for n in ranks]
        self.spares.begin(self.seats.group, others)
        await self.seats.replace_the_lost()
        try:
            if not await self._open():
                return
        except RayActorError as error:
            self.fail(Failure("rank_lost", None, f"a rank's actor died at the start: {brief(error)}"))
            return
        self.phase = "training"
        self.story.tell_state("starting", "placed", _placed(self.order.world_size, len(nodes(self.members))))

    async def _open(self) -> bool:
        """The next generation: trainers forked, everybody's orders given. False when the gang is stopped before."""
        self.generation += 1
        await self.journal.settled()  # so that no generation is opened twice
        reservations = await self._reserve()
        if reservations is None:
            return False
        for member, reservation in zip(self.members, reservations, strict=True):
            member.renew()
            member.reservation = reservation
        self.restore = await self._agree() if self.generation > 1 else None
        pair(self.members)
        for member, coords in zip(self.members, coordinates(self.order, self.members, self.restore), strict=True):
            member.reader = asyncio.get_running_loop().create_task(self.hearing.follow(member, coords))
        self._watch_over()
        return True

    def _watch_over(self) -> None:
        """While a generation trains: hold its snapshots, and look whether it still gets on."""
        self._guarding = asyncio.get_running_loop().create_task(self.seats.guard())
        self.progress.began()
        self._looking = asyncio.get_running_loop().create_task(self._look_for_a_hang())

    async def _look_for_a_hang(self) -> None:
        if self.order.hang_s is not None:
            self.fail(await hang(self.order, self.members, self.progress, self.spool))

    # After the supervisor's own death.

    def to_state(self) -> GangState:
        """What the journal keeps."""
        return GangState(
            phase=self.phase,
            stopping=self.stopping,
            generation=self.generation,
            restore=self.restore,
            distrusted=self.distrusted,
            repair=self.repair,
            failures=self.failures,
            budget=self.budget.to_state(),
            ranks=[member.to_state() for member in self.members],
            spares=[spare.to_state() for spare in self.spares.all],
            merger=self.story.to_state(),
            stragglers=self.stragglers.to_state(),
            loss_spike=self.spikes.to_state(),
            faults=self.docket.to_state(),
            traces=self.book.to_state(),
        )

    def from_state(self, state: GangState) -> None:
        """Go on where a predecessor was. Actors are found by their names (`_adopt`)."""
        self.phase, self.stopping, self.failures = state.phase, state.stopping, state.failures
        self.generation, self.restore, self.distrusted = state.generation, state.restore, state.distrusted
        self.repair = state.repair
        self.budget = Budget.from_state(self.order.repairs, state.budget)
        self.members = [Member.from_state(rank) for rank in state.ranks]
        self.spares.all = [Spare.from_state(spare) for spare in state.spares]
        self.story.resume(state.merger)
        self.stragglers = Stragglers.from_state(self.order.straggler, state.stragglers)
        self.spikes = Spikes.from_state(self.order.loss_spike, state.loss_spike)
        self.docket = Docket.from_state(state.faults)
        self.book = Book.from_state(state.traces)

    async def _recalled(self) -> Coroutine[Any, Any, None] | None:
        """The gang's life, where there was a predecessor; None when there was none. Ends this process where ranks cannot be adopted."""
        try:
            return self._live() if await self._recall() else None
        except JournalUnreadable as error:
            return self._give_up(Failure("journal_unreadable", None, str(error)))
        except Exception:  # without a supervisor that leads it, the gang is lost: the next attempt helps
            asyncio.get_running_loop().call_later(0.1, leave)
            raise

    async def _recall(self) -> bool:
        """Know again what the predecessor knew, and take over its ranks; False when there was none."""
        remembered = await self.journal.recall()
        if remembered is None:
            return False
        self.from_state(GangState.from_json(remembered))
        await self._adopt()
        if self.phase in ("placing", "training"):  # a repair goes on for the incident that began it
            message = f"another one took over its {len(self.members)} ranks, which went on meanwhile"
            self._tell_incident(Failure("supervisor_lost", None, message))
        if self.failures or self.stopping or self._all_done():
            self._ended.set()
        self.faults.go_on()
        self.traces.go_on()
        return True

    async def _give_up(self, failure: Failure) -> None:
        """End a gang whose journal cannot be read. Its ranks are found by name; events go on after the dispatcher's newest."""
        await until_answered(lambda: remove_remains(self.order.name, rank_actors(self.order.name)))
        await self._pulled.wait()
        if self.spool.last < self._first_after:  # the journal did not say how many there were
            self.spool.refill([], self._first_after)
        self.failures = [failure]
        self._tell_end(success=False)
        self.phase = "ended"
        await self.journal.settled()
        self._watch = asyncio.get_running_loop().create_task(self._leave_when_abandoned())

    async def _adopt(self) -> None:
        """The ranks by their names, and in the midst of training or of its end their events."""
        for member in self.members:
            member.actor = await asyncio.to_thread(find_actor, member.name)
            member.lost = member.lost or member.actor is None
        await asyncio.to_thread(self.spares.find)
        if self.phase in ("training", "repairing"):
            await self.seats.find()
            self.spares.begin(self.seats.group)
        if self.phase in ("training", "repairing", "ending"):
            self._follow_again()

    def _follow_again(self) -> None:
        training = self.phase == "training"
        everybody = coordinates(self.order, self.members, self.restore) if training else [None] * len(self.members)
        for member, coords in zip(self.members, everybody, strict=True):
            if member.actor is not None and not member.exited:
                member.reader = asyncio.get_running_loop().create_task(self.hearing.follow(member, coords))
            elif not member.exited:
                self.hearing.lose(member, "the rank's actor died with its supervisor")
        if training:
            self._watch_over()

    # Repair in place.

    def _may_be_mended(self) -> bool:
        ends = self.stopping or self.phase in ("ending", "ended")
        return not ends and not self._all_done()

    async def _repair(self) -> bool:
        """However long it takes: until a node is missed, there is room, copies have arrived."""
        async with leases_kept(self.members, self.order.lease_s):
            if not await self._decide_to_mend():
                return False
            await self._mend()
        return True

    async def _decide_to_mend(self) -> bool:
        await self._await_root_cause()
        await self._look_for_a_lost_node()
        root = self._root_cause()
        if not self.budget.allows(root.is_repairable, self.story.told_step):
            return False
        self.distrusted = self.distrusted or root.cause in NOT_FROM_MEMORY
        self.phase = "repairing"
        self.repair = Repair(root.cause, root.rank, began=time.time())
        self._tell_incident(root)
        self.story.tell_state("recovering", root.cause, root.text())
        return True

    async def _look_for_a_lost_node(self) -> None:
        """Where a node is gone, that is the cause, and none of its ranks has anything more to say."""
        accused = {failure.rank for failure in self.failures if failure.rank is not None and failure.is_repairable}
        lost = await lost_node(self.members, accused) if self._root_cause().is_repairable else None
        if lost is not None:
            self.failures.insert(0, lost)
            self.spares.lose(lost.node)
            for member in self.members:
                if member.node == lost.node:
                    member.give_up()

    async def _mend(self) -> None:
        """End the generation and open the next. What fails meanwhile is the next repair's cause."""
        from ray.exceptions import RayError

        await asyncio.sleep(self.budget.back_off_s)
        await self.journal.settled()  # who has a successor must not end the trainers of that one's generation
        try:
            await self._end_generation()
            if await self._open():
                self.phase = "training"
                assert self.repair is not None
                self.repair.generation, self.repair.restored = self.generation, self.restore
                self.story.repaired = self.repair
        except NoRoom as error:
            self.failures = [await self._give_way(str(error))]
            self._ended.set()
        except (RayError, TimeoutError) as error:
            self.fail(Failure("rank_lost", None, f"the repair failed: {brief(error)}"))

    async def _give_way(self, no_room: str) -> Failure:
        """There are no devices for a repair: what is in memory becomes a checkpoint, where the job may go on with fewer."""
        if self.order.elastic_grace_s is None:
            return Failure("placement_timeout", None, no_room)
        await self.journal.settled()  # who is cut off, or has a successor, saves nothing
        await self._each(lambda member: member.actor.stop.remote(0.0), LAST_WORD_S)
        await self._drain(LAST_WORD_S)
        self.hearing.rest()
        ground = Ground(self.order.run, self.order.world_size, self.story, self.distrusted)
        return Failure("devices_lost", None, f"{no_room}; {await rescue(self.members, ground)}")

    async def _end_generation(self) -> None:
        """All trainers dead and all that they told taken in, and other actors in the place of those that died."""
        self.spares.training(False)
        dead = [member for member in self.members if member.lost]
        stopping = self._each(lambda member: member.actor.stop.remote(0.0), LAST_WORD_S)
        await asyncio.gather(self.seats.replace(dead), stopping)  # at once: a new process takes longest
        for member in await self._drain(LAST_WORD_S):
            member.lost = True  # who has not told its trainer's exit would tell it to the next generation
        self.hearing.rest()
        assert self.repair is not None
        self.traces.generation_ends(f"a repair ended it ({self.repair.cause})")
        self.stragglers.renew()
        await self.seats.replace_the_lost(but=dead)
        self._look_no_more()
        self.failures.clear()
        if not self.stopping:
            self._ended.clear()

    async def _reserve(self) -> list[Reservation] | None:
        """Every rank's reservation, or None when the gang is stopped before. Raises what a rank raises, and TimeoutError."""
        calls = [within(START_S, m.actor.reserve.remote(m.rank, self.generation, m.remains)) for m in self.members]
        reserving: asyncio.Future[list[Reservation]] = asyncio.gather(*calls)
        ended = asyncio.ensure_future(self._ended.wait())
        both: list[asyncio.Future[Any]] = [reserving, ended]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if ended.cancel():
            return await reserving
        reserving.cancel()
        return None

    async def _agree(self) -> int | None:
        """The step from which all ranks go on; None when no snapshot is of all of them."""
        if self.distrusted:
            await asyncio.gather(*(within(START_S, member.actor.forget_snapshots.remote()) for member in self.members))
            self.distrusted = False
        return await agree(self.members)

    # What its hearing has to say to it.

    def fail(self, failure: Failure) -> None:
        """The generation is over, and this may be why."""
        self.failures.append(failure)
        self._ended.set()

    def end_when_done(self) -> None:
        if self._all_done():
            self._ended.set()

    def _all_done(self) -> bool:
        return bool(self.members) and all(member.done for member in self.members)

    # The end.

    async def _save(self) -> None:
        """Let all ranks end after the same step and save it; until they have, one has failed, or a cancel has more haste."""
        self._ended.clear()
        await self._each(lambda member: member.actor.save.remote(), START_S)
        if self._all_done() or self.failures or self.stopping == "cancel":
            return
        with contextlib.suppress(TimeoutError):
            await within(SAVE_S, self._ended.wait())

    async def _end(self) -> None:
        """Stop what still runs, read last words, and tell how it ended."""
        self._look_no_more()
        self.phase = "ending"
        await self.journal.settled()
        success = self._all_done() and not any(member.stopped for member in self.members)
        if self._all_done():
            await self._each(lambda member: member.actor.release.remote(), START_S)
        elif self.stopping:
            await self._each(lambda member: member.actor.stop.remote(STOP_GRACE_S), STOP_GRACE_S + DRAIN_S)
        else:
            await self._await_root_cause()
            await self._each(lambda member: member.actor.stop.remote(0.0), DRAIN_S)
        await self._drain(DRAIN_S)
        self.hearing.rest()
        self.traces.gang_ends()
        await self.seats.remove()
        self._tell_end(success)
        self.phase = "ended"

    def _tell_end(self, success: bool) -> None:
        if success:
            self.story.tell_state("succeeded", "completed", "")
        elif self.stopping:
            if self.failures and self.stopping == "preempt":
                self._tell_incident(self._root_cause())
            self.story.tell_state("cancelled", self.stopping, "")
        else:
            root = self._root_cause()
            self._tell_incident(root)
            self.story.tell_state("failed", root.reason, root.text())

    def _tell_incident(self, root: Failure) -> None:
        log = [] if root.rank is None else self.members[root.rank].log
        self.story.tell_incident(root, self.generation, log)

    def _look_no_more(self) -> None:
        if self._looking:
            self._looking.cancel()

    def _root_cause(self) -> Failure:
        """The first failure that is no echo of another one."""
        primary = [failure for failure in self.failures if not failure.secondary]
        return (primary or self.failures)[0]

    async def _await_root_cause(self) -> None:
        for _ in range(20):
            if not self._root_cause().secondary:
                return
            await asyncio.sleep(ROOT_CAUSE_S / 20)

    async def _drain(self, timeout_s: float) -> list[Member]:
        """Until every rank has told its trainer's exit, which is soon after a kill; returns those that have not."""
        readers = {member.reader: member for member in self.members if member.reader}
        if not readers:
            return []
        _, late = await asyncio.wait(readers, timeout=timeout_s)
        for reader in late:
            reader.cancel()
        return [readers[reader] for reader in late]

    async def _each(self, call: Callable[[Member], Awaitable[Any]], timeout_s: float) -> None:
        """Ask every rank that still lives; one that does not answer is killed later with its actor."""
        living = [member for member in self.members if member.actor is not None and not member.exited]
        calls = [within(timeout_s, call(member)) for member in living]
        await asyncio.gather(*calls, return_exceptions=True)

    async def _leave_when_abandoned(self) -> None:
        left = ABANDONED_S
        while left > 0:
            await asyncio.sleep(left)
            left = self.spoken + ABANDONED_S - time.monotonic()
        await self.close()


def _restarted() -> bool:
    """Whether this process took the place of a supervisor that died. One that has not imported Ray is no actor."""
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().was_current_actor_reconstructed


def _placed(ranks: int, nodes: int) -> str:
    return f"{ranks} rank{'s' if ranks > 1 else ''} on {nodes} node{'s' if nodes > 1 else ''}"
