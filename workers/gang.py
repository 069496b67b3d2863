"""The supervisor actor: it owns the ranks of one attempt and is the only one who speaks for them.

Rules that it keeps: all ranks or none; one death ends the gang; the root cause is told before the final `state`, which
is the last event, told when the devices are free again; events are numbered once, in order, and forgotten only when the
dispatcher has acknowledged them; when nobody takes them, ranks wait rather than lose steps. It outlives the control
plane, but not for ever.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from .coords import Coords
from .events import Event, Spool, Steps
from .rank import Rank, Reservation, leave

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


@dataclass(frozen=True)
class Failure:
    """Why a gang ends before its work is done."""

    cause: str  # `exception`, `rank_lost`, `placement_timeout`, `start_failed`
    rank: int | None
    message: str
    node: str | None = None
    traceback: str | None = None

    @property
    def secondary(self) -> bool:
        """Probably only the echo of another rank's end."""
        return self.cause == "exception" and any(sign in self.message.lower() for sign in SECONDARY)

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


def rank_name(gang: str, rank: int) -> str:
    return f"{gang}-rank-{rank}"


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
        self.members: list[Member] = []
        self.failures: list[Failure] = []
        self.state = "placing"
        self.stopping: str | None = None
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
        except Exception as error:
            self._fail(Failure("start_failed", None, _brief(error)))
        await self._end()
        self._watch = asyncio.get_running_loop().create_task(self._leave_when_abandoned())

    async def _start(self) -> None:
        """Ranks with their trainers waiting, then everybody's orders. Returns early when the gang is stopped."""
        group = await self._place()
        if group is None:
            return
        self.members = [Member(rank, None) for rank in range(self.order.world_size)]
        await asyncio.to_thread(self._create_ranks, group)
        reservations = await self._reserve()
        if reservations is None:
            return
        for member, reservation in zip(self.members, reservations, strict=True):
            member.reservation = reservation
        for member, coords in zip(self.members, self._coordinates(), strict=True):
            member.reader = asyncio.get_running_loop().create_task(self._follow(member, coords))
        self._tell_state("starting", "placed", f"{self.order.world_size} ranks on {len(self._nodes())} nodes")

    async def _reserve(self) -> list[Reservation] | None:
        """Every rank's reservation, or None when the gang is stopped before. Raises what a rank raises, and TimeoutError."""
        calls = [_within(START_S, member.actor.reserve.remote(1)) for member in self.members]
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

    def _create_ranks(self, group: Any) -> None:
        """All actors at once; groups on the same node get neighbouring ranks."""
        import ray
        from ray.util.placement_group import placement_group_table
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        nodes = placement_group_table(group).get("bundles_to_node_id", {})
        bundles = sorted(range(self.order.world_size // self.order.tensor), key=lambda b: (str(nodes.get(b)), b))
        cuda = self.order.device == "cuda"
        for member in self.members:
            bundle = bundles[member.rank // self.order.tensor]
            options = {
                "name": rank_name(self.order.name, member.rank),
                "namespace": NAMESPACE,
                "lifetime": "detached",
                "num_cpus": 0 if cuda else self.order.cpus_per_rank,
                "num_gpus": 1 if cuda else 0,
                "max_restarts": 0,
                "scheduling_strategy": PlacementGroupSchedulingStrategy(group, bundle),
            }
            actor = ray.remote(Rank).options(**options)
            member.actor = actor.remote(member.rank, self.order.device, self.order.entry, self.order.lease_s)

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
            member.exited = True
            message = f"the rank's actor is lost: {_brief(error)}"
            self._fail(Failure("rank_lost", member.rank, message, self._node(member)))

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
        for record in self.steps.add(member.rank, event["data"]):
            self._tell_step(record, event["ts"])

    def _tell_step(self, record: dict[str, Any], ts: float) -> None:
        if self.first_step_at is None:
            self.first_step_at = ts
            self._tell_state("running", "first_step", "")
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
            if event["kind"] == "summary" and self.first_step_at is not None and self.order.submitted_at:
                data["time_to_first_step_s"] = self.first_step_at - self.order.submitted_at
            self.spool.add(event["kind"], data, event["ts"])

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
        await self._drain()
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
            incident = {"rank": root.rank, "node": root.node, "message": root.message, "traceback": root.traceback}
            self.spool.add("incident", {"cause": root.cause, **incident})
            self._tell_state("failed", root.cause, root.text())

    def _root_cause(self) -> Failure:
        """The first failure that is no echo of another one."""
        primary = [failure for failure in self.failures if not failure.secondary]
        return (primary or self.failures)[0]

    async def _await_root_cause(self) -> None:
        for _ in range(20):
            if not self._root_cause().secondary:
                return
            await asyncio.sleep(ROOT_CAUSE_S / 20)

    async def _drain(self) -> None:
        """Until every rank has told its trainer's exit: after a kill that is soon."""
        readers = [member.reader for member in self.members if member.reader]
        if readers:
            _, late = await asyncio.wait(readers, timeout=DRAIN_S)
            for reader in late:
                reader.cancel()

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


def remove_remains(gang: str, actors: list[Any]) -> None:
    """Kill these rank actors and remove the gang's placement group, if it is still there."""
    import ray
    from ray.util.placement_group import get_placement_group, remove_placement_group

    for actor in actors:
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(actor, no_restart=True)
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
