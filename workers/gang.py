"""The supervisor actor: it owns the ranks of one attempt and is the only one who speaks for them.

Rules that it keeps: all ranks or none; one death ends the generation, and the gang where it may not be repaired; the root
cause is told before the `state` that it brings, of which the final one is the last event, told when the devices are free again;
events are numbered once, in order, and forgotten only when the dispatcher has acknowledged them; when nobody takes them, ranks
wait rather than lose steps. It outlives the control plane, but not for ever.

A repair kills the trainers that are left (which frees any collective), replaces the actors that died, forks all trainers anew, and
lets them go on from the newest step that all of them have in memory; else from the newest checkpoint.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from .coords import Coords
from .events import Event, Spool, Steps, merged
from .rank import Rank, Remains, Reservation, leave
from .repair import MENDABLE, Budget, agreed

NAMESPACE: Final = "shardyard"
SPOOL_BYTES: Final = 64 << 20
PLACEMENT_S: Final = 120.0
START_S: Final = 120.0
PULL_S: Final = 10.0
#: So long an event waits for company before the dispatcher gets it: each answer is a transaction, on cores that may train.
LINGER_S: Final = 0.2
#: A rank that is busy answers late; one that does not answer for so long is lost.
ANSWER_S: Final = 30.0
#: After a failure, so long for a better cause: peers notice each other's deaths before they tell their own.
ROOT_CAUSE_S: Final = 1.0
STOP_GRACE_S: Final = 1.0
DRAIN_S: Final = 2.0
#: In a repair, so long for an actor to tell its trainer's end; one that does not is replaced.
LAST_WORD_S: Final = 10.0
#: An ended gang keeps its last events so long for a control plane that is away; it holds no device then.
ABANDONED_S: Final = 7 * 24 * 3600.0

#: What a rank says when another one has gone; never the root cause while there is another.
SECONDARY: Final = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "socket timeout",
    "timed out",
    "remote process exited",
    "nccl communicator was aborted",
    "recvvalue failed",
    "sendbytes failed",
    "recv, 0 bytes",
)


@dataclass(frozen=True)
class Order:
    """One attempt: what to run, on how many devices of which kind."""

    name: str  # shardyard-{job}-{attempt}
    run: dict[str, Any]  # a `Run` as JSON
    world_size: int
    tensor: int = 1  # ranks of one tensor group are neighbours and share a node
    device: str = "cpu"
    submitted_at: float = 0.0  # unix seconds of the job's creation
    cpus_per_rank: float = 0.25  # CPU ranks only
    entry: str = ""  # `module:function` that trains; empty: this package's own loop
    timeout_s: float = 600.0  # of collectives
    lease_s: float = 30.0
    repairs: int = 0  # so often the gang is repaired in place after it lost a rank


@dataclass(frozen=True)
class Failure:
    """Why a gang ends before its work is done."""

    cause: str  # `exception`, `rank_lost`, `placement_timeout`, `start_failed`, `gang_error`
    rank: int | None
    message: str
    node: str | None = None
    traceback: str | None = None

    @property
    def secondary(self) -> bool:
        """Probably only the echo of another rank's end; a pipeline wraps it, and only the traceback tells."""
        told = f"{self.message}\n{self.traceback or ''}".lower()
        return self.cause == "exception" and any(sign in told for sign in SECONDARY)

    @property
    def mendable(self) -> bool:
        """Whether the machines are to blame; a peer's echo is, too, when nobody tells a better cause."""
        return self.cause in MENDABLE or self.secondary

    def text(self) -> str:
        who = "" if self.rank is None else f"rank {self.rank}: "
        return who + self.message + (f"\n\n{self.traceback}" if self.traceback else "")


@dataclass
class Member:
    """The supervisor's view of one rank."""

    rank: int
    actor: Any
    reservation: Reservation | None = None
    done: bool = False
    exited: bool = False
    failed: bool = False  # told an exception
    pulled: int = 0  # number of the newest event taken from it
    step: int = 0  # the newest step that it reported
    reader: "asyncio.Task[None] | None" = field(default=None, repr=False)
    lost: bool = False  # its actor died
    remains: Remains | None = None  # its snapshots, as a neighbour on its node holds them

    def renew(self) -> None:
        """For the next generation."""
        self.done = self.exited = self.failed = self.lost = False
        self.reader = None


def rank_name(gang: str, rank: int, generation: int = 1) -> str:
    """A rank's actor that was made for a later generation has a name of its own: a dead one's is not free at once."""
    return f"{gang}-rank-{rank}" + (f".{generation}" if generation > 1 else "")


def placement(order: Order) -> list[dict[str, float]]:
    """Bundles of the gang's placement group: one per tensor group, which a bundle keeps on one node."""
    one = {"GPU": 1.0} if order.device == "cuda" else {"CPU": order.cpus_per_rank}
    bundle = {name: amount * order.tensor for name, amount in one.items()}
    return [dict(bundle) for _ in range(order.world_size // order.tensor)]


class Supervisor:
    """The gang of one attempt, a detached Ray actor named like the gang."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.pull_s = min(PULL_S, order.lease_s / 3)  # a rank counts a call as a word from us when it ends, too
        self.spool = Spool(SPOOL_BYTES)
        self.steps = Steps(order.world_size)
        self.told_step = 0
        self.held: deque[tuple[int, Event]] = deque()  # told by a rank after a step that others are still to report
        self.group: Any = None
        self.bundles: list[int] = []
        self.members: list[Member] = []
        self.failures: list[Failure] = []
        self.state = "placing"
        self.stopping: str | None = None
        self.generation = 0
        self.restore: int | None = None  # the step whose snapshots this generation began with
        self.budget = Budget(order.repairs)
        self.repaired: dict[str, Any] | None = None  # what is told of a repair with the first step after it
        self.told_facts: dict[str, int] = {}  # kind → the newest step of which one was told
        self.spoken = time.monotonic()
        self.first_step_at: float | None = None
        self._ended = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None

    # What the dispatcher calls.

    async def begin(self) -> None:
        """Start the gang; harmless when it has started."""
        self.spoken = time.monotonic()
        if self._life is None:
            self._life = asyncio.get_running_loop().create_task(self._live())

    async def pull(self, after: int, wait_s: float) -> dict[str, Any]:
        """Events after `after` (at most 1000), waiting up to `wait_s`; acknowledges those up to `after`."""
        await self.begin()
        self.spool.take(after)
        await self.spool.wait(after, wait_s, LINGER_S)
        self.spoken = time.monotonic()
        return {"events": self.spool.take(after), "last": self.spool.last}

    async def stop(self, reason: str) -> None:
        """End the gang; returns when its final event is told. `reason`: `cancel` or `preempt`."""
        await self.begin()
        self.stopping = self.stopping or reason
        self._ended.set()
        assert self._life is not None
        await asyncio.wait([self._life])

    async def status(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "last": self.spool.last,
            "ranks": [
                {"rank": m.rank, "node": m.reservation and m.reservation.node, "done": m.done, "exited": m.exited}
                for m in self.members
            ],
        }

    async def close(self) -> None:
        """Remove ranks and placement group. The supervisor then exits."""
        if self._life:
            self._life.cancel()
            await asyncio.wait([self._life], timeout=DRAIN_S)
        await self._remove()
        asyncio.get_running_loop().call_later(0.1, leave)

    # The gang's life.

    async def _live(self) -> None:
        """From the placement group to the final event."""
        try:
            await self._start()
            await self._ended.wait()
            while await self._may_go_on():
                await self._repair()
                await self._ended.wait()
        except Exception as error:
            self._fail(Failure("start_failed", None, _brief(error)))
        await self._end()
        self._watch = asyncio.get_running_loop().create_task(self._leave_when_abandoned())

    async def _start(self) -> None:
        """Ranks with their trainers waiting, then everybody's orders. Returns early when the gang is stopped."""
        group = await self._place()
        if group is None:
            return
        self.bundles = await asyncio.to_thread(self._bundles, group)
        self.group = group
        self.members = [Member(rank, None) for rank in range(self.order.world_size)]
        await asyncio.to_thread(self._create_actors, self.members)
        if await self._open():
            self._tell_state("starting", "placed", f"{self.order.world_size} ranks on {len(self._nodes())} nodes")

    async def _open(self) -> bool:
        """The next generation: trainers forked, everybody's orders given. False when the gang is stopped before."""
        self.generation += 1
        reservations = await self._reserve()
        if reservations is None:
            return False
        for member, reservation in zip(self.members, reservations, strict=True):
            member.renew()
            member.reservation = reservation
        self.restore = await self._agree() if self.generation > 1 else None
        for member, coords in zip(self.members, self._coordinates(), strict=True):
            member.reader = asyncio.get_running_loop().create_task(self._follow(member, coords))
        self._guarding = asyncio.get_running_loop().create_task(self._guard())
        return True

    # Repair in place.

    async def _may_go_on(self) -> bool:
        if self.stopping or all(member.done for member in self.members):
            return False
        await self._await_root_cause()
        return self.budget.allows(self._root_cause().mendable, self.told_step)

    async def _repair(self) -> None:
        """End the generation and open the next. What fails meanwhile is the next repair's cause."""
        from ray.exceptions import RayError

        root, began = self._root_cause(), time.time()
        self._tell_incident(root)
        self._tell_state("recovering", root.cause, root.text())
        await asyncio.sleep(self.budget.back_off_s)
        try:
            await self._end_generation()
            if await self._open():
                self.repaired = {"cause": root.cause, "rank": root.rank, "restored": self.restore, "began": began}
        except (RayError, TimeoutError) as error:
            self._fail(Failure("rank_lost", None, f"the repair failed: {_brief(error)}"))

    async def _end_generation(self) -> None:
        """All trainers dead and all that they told taken in; then new actors in the place of those that died."""
        await self._each(lambda member: member.actor.stop.remote(0.0), LAST_WORD_S)
        for member in await self._drain(LAST_WORD_S):
            member.lost = True  # who has not told its trainer's exit would tell it to the next generation
        for record in self.steps.rest():
            self._tell_step(record, time.time())
        self._tell_held(all_of_them=True)
        await asyncio.gather(*(self._look_after(member) for member in self.members))
        lost = [member for member in self.members if member.lost]
        await asyncio.to_thread(self._create_actors, lost)
        self.failures.clear()
        if not self.stopping:
            self._ended.clear()

    async def _look_after(self, member: Member) -> None:
        """Find out whether a rank's actor still lives."""
        from ray.exceptions import RayError

        if not member.lost:
            try:
                await _within(LAST_WORD_S, member.actor.beat.remote())
            except (RayError, TimeoutError):
                member.lost = True

    async def _agree(self) -> int | None:
        """The step from which all ranks go on; None when no snapshot is of all of them."""
        calls = [_within(START_S, member.actor.snapshots.remote()) for member in self.members]
        return agreed(await asyncio.gather(*calls))

    async def _guard(self) -> None:
        """Let each rank's snapshots be held by the next rank of its node, so that they outlive its actor."""
        from ray.exceptions import RayError

        for member in self.members:
            guard, here = self._neighbour(member), member.reservation
            if guard is None or here is None:
                member.remains = None
                continue
            mine = Remains(here.node, here.pid, here.slots)
            with contextlib.suppress(RayError, TimeoutError):
                member.remains = await _within(START_S, guard.actor.guard.remote(member.rank, mine))

    def _neighbour(self, member: Member) -> Member | None:
        node = self._node(member)
        same = [other for other in self.members if self._node(other) == node]
        guard = same[(same.index(member) + 1) % len(same)]
        return None if guard is member else guard

    async def _reserve(self) -> list[Reservation] | None:
        """Every rank's reservation, or None when the gang is stopped before. Raises what a rank raises, and TimeoutError."""
        calls = [_within(START_S, m.actor.reserve.remote(self.generation, m.remains)) for m in self.members]
        reserving: asyncio.Future[list[Reservation]] = asyncio.gather(*calls)
        ending = asyncio.ensure_future(self._ended.wait())
        both: list[asyncio.Future[Any]] = [reserving, ending]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if ending.cancel():
            return await reserving
        reserving.cancel()
        return None

    async def _place(self) -> Any:
        """The gang's placement group once it is ready; None, with a failure, when the cluster has no room for it."""
        from ray.util.placement_group import get_placement_group, placement_group

        def make() -> Any:
            with contextlib.suppress(ValueError):
                return get_placement_group(self.order.name)
            return placement_group(placement(self.order), "PACK", name=self.order.name, lifetime="detached")

        group = await asyncio.to_thread(make)
        deadline = time.monotonic() + PLACEMENT_S
        while time.monotonic() < deadline and not self.stopping:
            if await asyncio.to_thread(group.wait, 1):
                return group
        if self.stopping:
            return None
        message = f"the cluster had no room for {self.order.world_size} {self.order.device} ranks"
        self._fail(Failure("placement_timeout", None, f"{message} within {PLACEMENT_S:.0f} s"))
        return None

    def _bundles(self, group: Any) -> list[int]:
        """The placement group's bundles so ordered that groups on the same node get neighbouring ranks."""
        from ray.util.placement_group import placement_group_table

        nodes = placement_group_table(group).get("bundles_to_node_id", {})
        return sorted(range(self.order.world_size // self.order.tensor), key=lambda b: (str(nodes.get(b)), b))

    def _create_actors(self, members: list[Member]) -> None:
        """An actor for each of these ranks, in the place of what it had."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        cuda = self.order.device == "cuda"
        for member in members:
            if member.actor is not None:
                _kill(member.actor)
            bundle = self.bundles[member.rank // self.order.tensor]
            options = {
                "name": rank_name(self.order.name, member.rank, self.generation + 1),
                "namespace": NAMESPACE,
                "lifetime": "detached",
                "num_cpus": 0 if cuda else self.order.cpus_per_rank,
                "num_gpus": 1 if cuda else 0,
                "max_restarts": 0,
                "scheduling_strategy": PlacementGroupSchedulingStrategy(self.group, bundle),
            }
            actor = ray.remote(Rank).options(**options)
            member.actor = actor.remote(member.rank, self.order.device, self.order.entry, self.order.lease_s)
            member.pulled = 0

    def _nodes(self) -> list[str]:
        return sorted({m.reservation.node for m in self.members if m.reservation})

    def _coordinates(self) -> list[Coords]:
        places: dict[str, int] = {}
        first = self.members[0].reservation
        assert first is not None and first.port is not None
        coordinates = []
        for member in self.members:
            here = member.reservation
            assert here is not None
            local = places.get(here.node, 0)
            places[here.node] = local + 1
            coordinates.append(
                Coords(
                    rank=member.rank,
                    world_size=self.order.world_size,
                    local_rank=local,
                    master_host=first.host,
                    master_port=first.port,
                    generation=here.generation,
                    interface=here.interface,
                    device="cuda" if self.order.device == "cuda" else "cpu",
                    timeout_s=self.order.timeout_s,
                    restore=self.restore,
                )
            )
        return coordinates

    # One rank's events.

    async def _follow(self, member: Member, coords: Coords) -> None:
        """Give the rank its orders and pull its events until its trainer has ended."""
        from ray.exceptions import RayError

        try:
            await self._call(member.actor.start.remote(self.order.run, coords.to_json()))
            while not member.exited:
                if not await self.spool.room(self.pull_s):
                    await self._call(member.actor.beat.remote())
                    continue
                for event in await self._call(member.actor.pull.remote(member.pulled, self.pull_s)):
                    member.pulled = event["seq"]
                    self._take(member, event)
        except (RayError, TimeoutError) as error:
            member.exited = member.lost = True
            message = f"the rank's actor is lost: {_brief(error)}"
            self._fail(Failure("rank_lost", member.rank, message, self._node(member)))
        except Exception as error:  # a fault of ours must not leave the gang waiting for this rank
            self._fail(Failure("gang_error", member.rank, _brief(error), self._node(member)))
            raise

    async def _call(self, reference: Awaitable[Any]) -> Any:
        return await _within(PULL_S + ANSWER_S, reference)

    def _take(self, member: Member, event: Event) -> None:
        actions: dict[str, Callable[[Member, Event], None]] = {
            "step": self._take_step,
            "failed": self._take_failed,
            "done": self._take_done,
            "exit": self._take_exit,
            "log": self._take_log,
        }
        actions.get(event["kind"], self._take_fact)(member, event)

    def _take_log(self, _: Member, event: Event) -> None:
        self.spool.add("log", event["data"], event["ts"])

    def _take_step(self, member: Member, event: Event) -> None:
        member.step = int(event["data"]["step"])
        again = event["data"].pop("again", False)
        if member.rank == 0 and not again:
            self._tell_running(event["ts"], member.step)
        if member.step <= self.told_step:  # trained once more after a repair, to the same bits
            return
        records = [merged({member.rank: event["data"]})] if again else self.steps.add(member.rank, event["data"])
        for record in records:
            self._tell_step(record, event["ts"])

    def _tell_running(self, ts: float, step: int) -> None:
        """Rank 0 has trained a step: the first one of all, or of a generation. What the dead one still says is neither."""
        if self.first_step_at is None:
            self.first_step_at = ts
            self._tell_state("running", "first_step", "")
        elif self.repaired is not None:
            began = self.repaired.pop("began")
            told = self.repaired | {"generation": self.generation, "step": step, "seconds": ts - began}
            self.spool.add("repair", told)
            self._tell_state("running", "repaired", _in_words(told))
        self.repaired = None

    def _tell_step(self, record: dict[str, Any], ts: float) -> None:
        self.spool.add("step", record, ts)
        self.told_step = record["step"]
        self._tell_held()

    def _take_fact(self, member: Member, event: Event) -> None:
        """Plan, validation, checkpoint, summary: told as they come, but never before the step that they follow."""
        self.held.append((member.step, event))
        self._tell_held()

    def _tell_held(self, all_of_them: bool = False) -> None:
        while self.held and (all_of_them or self.held[0][0] <= self.told_step):
            _, event = self.held.popleft()
            data = dict(event["data"])
            data.pop("again", None)
            if not self._is_news(event["kind"], int(data.get("step") or 0)):
                continue
            if event["kind"] == "summary" and self.first_step_at is not None and self.order.submitted_at:
                data["time_to_first_step_s"] = self.first_step_at - self.order.submitted_at
            self.spool.add(event["kind"], data, event["ts"])

    def _is_news(self, kind: str, step: int) -> bool:
        """Whether no fact of this kind was told of this step or a later one: a repaired gang tells some again."""
        news = step > self.told_facts.get(kind, -1)
        self.told_facts[kind] = max(step, self.told_facts.get(kind, -1))
        return news

    def _take_failed(self, member: Member, event: Event) -> None:
        data = event["data"]
        member.failed = True
        message = f"{data['type']}: {data['message']}"
        self._fail(Failure("exception", member.rank, message, self._node(member), data["traceback"]))

    def _take_done(self, member: Member, _: Event) -> None:
        member.done = True
        if all(m.done for m in self.members):
            self._ended.set()

    def _take_exit(self, member: Member, event: Event) -> None:
        member.exited = True
        if not member.done and not member.failed:
            self._fail(Failure("rank_lost", member.rank, _ending(event["data"]["status"]), self._node(member)))

    def _node(self, member: Member) -> str | None:
        return member.reservation.node if member.reservation else None

    def _fail(self, failure: Failure) -> None:
        self.failures.append(failure)
        self._ended.set()

    # The end.

    async def _end(self) -> None:
        """Stop what still runs, read last words, and tell how it ended."""
        success = bool(self.members) and all(m.done for m in self.members)
        if success:
            await self._each(lambda member: member.actor.release.remote(), START_S)
        elif self.stopping:
            await self._each(lambda member: member.actor.stop.remote(STOP_GRACE_S), STOP_GRACE_S + DRAIN_S)
        else:
            await self._await_root_cause()
            await self._each(lambda member: member.actor.stop.remote(0.0), DRAIN_S)
        await self._drain(DRAIN_S)
        for record in self.steps.rest():
            self._tell_step(record, time.time())
        self._tell_held(all_of_them=True)
        await self._remove()
        self._tell_end(success)

    def _tell_end(self, success: bool) -> None:
        if success:
            self._tell_state("succeeded", "completed", "")
        elif self.stopping:
            self._tell_state("cancelled", self.stopping, "")
        else:
            root = self._root_cause()
            self._tell_incident(root)
            self._tell_state("failed", root.cause, root.text())

    def _tell_incident(self, root: Failure) -> None:
        incident = {"rank": root.rank, "node": root.node, "message": root.message, "traceback": root.traceback}
        incident |= {"generation": self.generation, "step": self.told_step}
        self.spool.add("incident", {"cause": root.cause, **incident})

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
        calls = [_within(timeout_s, call(member)) for member in living]
        await asyncio.gather(*calls, return_exceptions=True)

    def _tell_state(self, state: str, reason: str, message: str) -> None:
        self.state = state
        self.spool.add("state", {"state": state, "reason": reason, "message": message}, urgent=True)

    async def _remove(self) -> None:
        """Kill the rank actors (their trainers end with them) and give the devices back."""
        await asyncio.to_thread(remove_remains, self.order.name, [m.actor for m in self.members if m.actor is not None])

    async def _leave_when_abandoned(self) -> None:
        left = ABANDONED_S
        while left > 0:
            await asyncio.sleep(left)
            left = self.spoken + ABANDONED_S - time.monotonic()
        await self.close()


def _kill(actor: Any) -> None:
    import ray

    with contextlib.suppress(ray.exceptions.RayError, ValueError):
        ray.kill(actor, no_restart=True)


def _in_words(told: dict[str, Any]) -> str:
    start = "the newest checkpoint" if told["restored"] is None else f"step {told['restored']}, which was in memory"
    return f"generation {told['generation']} goes on after {start}; {told['seconds']:.1f} s were lost"


def remove_remains(gang: str, actors: list[Any]) -> None:
    """Kill these rank actors and remove the gang's placement group, if it is still there."""
    from ray.util.placement_group import get_placement_group, remove_placement_group

    for actor in actors:
        _kill(actor)
    with contextlib.suppress(ValueError):
        remove_placement_group(get_placement_group(gang))


async def _within(timeout_s: float, reference: Awaitable[Any]) -> Any:
    """An actor's answer; TimeoutError when it takes longer."""
    async with asyncio.timeout(timeout_s):
        return await reference


def _brief(error: BaseException) -> str:
    error = getattr(error, "cause", None) or error  # what Ray has wrapped
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"


def _ending(status: int | None) -> str:
    import signal

    if status is None:
        return "the node's fork server is gone, and the trainer with it"
    if status < 0:
        return f"the trainer was killed by {signal.Signals(-status).name}"
    return f"the trainer exited with status {status} without a word"
