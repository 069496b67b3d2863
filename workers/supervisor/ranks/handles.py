"""Typed calls to a rank's actor. Each waits for a limited time, and raises TimeoutError or RayError without an answer."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...messages.exec_request import Exec, ExecEnd
from ...messages.fault_request import Fault
from ...messages.profile_request import Profile
from ...messages.rendezvous import RankAssignment
from ...messages.secret import Secret
from ...messages.trace_request import Trace
from ...rank.profiler import Outcome

if TYPE_CHECKING:
    from ...checkpoint.manifest import File, Manifest
    from ...messages.event_buffer import Event
    from ...messages.nccl_report import RasReport
    from ...messages.rendezvous import Reservation, SnapshotHandle
    from ...snapshot.header import SnapshotHeader, StoredSlice

T = TypeVar("T")

#: Seconds for a busy rank to answer. A rank that does not is lost.
ANSWER_S: Final = 30.0
#: Seconds for which a rank may hold a pull when it has no events.
PULL_S: Final = 10.0
#: A rank that starts imports, forks and reserves memory.
START_S: Final = 120.0
#: Seconds in a repair until an actor has reported its trainer's end; one that has not is replaced.
TRAINER_END_S: Final = 10.0
#: Seconds in a repair for what the ranks have left, while they report it: up to 8 MB each after a long absence of the dispatcher.
REST_S: Final = 300.0
#: Stacks of a trainer that cannot answer: more than their reading takes at most (`rank_orders.STACKS_S`).
STACKS_S: Final = 10.0
#: A profile or a command beyond its own seconds: it may wait for another one, and its file for slow storage.
PROFILE_S: Final = 300.0
#: Reading headers of snapshots, on a machine whose disks and cores are busy.
SNAPSHOTS_S: Final = 120.0
#: A replica crosses the network once, at 10 MB/s at worst.
TRANSFER_S: Final = 3600.0
#: The slowest storage may take this long for a checkpoint.
WRITE_S: Final = 3600.0


async def within(timeout_s: float, reference: Awaitable[T]) -> T:
    """An actor's answer; TimeoutError when it takes longer."""
    try:
        async with asyncio.timeout(timeout_s):
            return await reference
    except TimeoutError as error:
        if str(error):  # the answer is one
            raise
        raise TimeoutError(f"no answer within {timeout_s:g} s") from error


class SnapshotCalls:
    """Calls about the snapshots in an actor's memory: its rank's own, and those that it holds for other ranks."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def steps(self) -> list[int]:
        """Steps of which the rank's own state is complete. Call it when the trainer has ended."""
        steps: list[int] = await within(SNAPSHOTS_S, self._actor.snapshot_steps.remote())
        return steps

    async def steps_of(self, rank: int) -> list[int]:
        """Steps of which this actor has a replica of another rank's state."""
        steps: list[int] = await within(SNAPSHOTS_S, self._actor.replica_steps.remote(rank))
        return steps

    async def all_steps(self) -> dict[int, list[int]]:
        """Rank → steps of which its state is in this actor's memory."""
        steps: dict[int, list[int]] = await within(SNAPSHOTS_S, self._actor.all_steps.remote())
        return steps

    async def hold(self, rank: int, snapshots: "SnapshotHandle") -> "SnapshotHandle | None":
        """Hold the snapshot memory of another rank on this node, so that it outlives that rank's actor."""
        held: SnapshotHandle | None = await within(START_S, self._actor.hold_snapshots.remote(rank, snapshots))
        return held

    async def forget(self, after: int) -> None:
        """Empty all snapshots and replicas in this actor's memory of later steps than `after`; 0: all."""
        await within(START_S, self._actor.forget_snapshots.remote(after))

    async def restore_to(self, rank: int, step: int, new: "RankHandle") -> None:
        """Send the replica of a rank's state to the rank's new actor."""
        await within(TRANSFER_S, self._actor.restore_to.remote(rank, step, new.actor))

    async def snapshot_header(self, rank: int, step: int) -> "SnapshotHeader | None":
        found: SnapshotHeader | None = await within(SNAPSHOTS_S, self._actor.snapshot_header.remote(rank, step))
        return found

    async def write_out(self, rank: int, step: int, wanted: Sequence["StoredSlice"], where: str, name: str) -> "File":
        """Write these slices of a rank's state as a file of the checkpoint of `step`."""
        file: File = await within(WRITE_S, self._actor.write_out.remote(rank, step, wanted, where, name))
        return file

    async def discard(self, where: str, step: int, names: Sequence[str]) -> None:
        """Remove files of the checkpoint of `step`, which is not made."""
        await within(SNAPSHOTS_S, self._actor.discard.remote(where, step, names))

    async def commit(self, where: str, keep: int, manifest: "Manifest") -> tuple[str, Sequence[int] | None]:
        """Make a checkpoint of the files; returns its address, and the steps of all checkpoints that there are then."""
        committed: tuple[str, Sequence[int] | None] = await within(
            WRITE_S, self._actor.commit.remote(where, keep, manifest)
        )
        return committed


class RankHandle:
    """One rank's actor, or a spare's."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor  # as Ray has it
        self.snapshots = SnapshotCalls(actor)

    async def stand_by(self) -> str:
        """Prepare a spare for a rank; returns its node."""
        node: str = await within(START_S, self.actor.stand_by.remote())
        return node

    async def reserve(self, rank: int, generation: int, snapshots: "SnapshotHandle | None") -> "Reservation":
        """Fork a trainer for this rank. `snapshots`: those of the rank's dead actor, as a neighbour holds them."""
        reservation: Reservation = await within(START_S, self.actor.reserve.remote(rank, generation, snapshots))
        return reservation

    async def start(
        self,
        run: Mapping[str, Any],
        assignment: RankAssignment,
        holder: "RankHandle | None",
        replicas: Sequence[int],
        secrets: Sequence[Secret] | None,
    ) -> bool:
        """Give the trainer its run. `holder` takes replicas of its snapshots; it holds those of the ranks `replicas`.

        `secrets`: None if they are not here. Returns whether the trainer has its run, which it may have got before.
        """
        actor = None if holder is None else holder.actor
        values = None if secrets is None else [secret.to_json() for secret in secrets]
        calling = self.actor.start.remote(run, assignment.to_json(), actor, replicas, values)
        started: bool = await within(PULL_S + ANSWER_S, calling)
        return started

    async def pull(self, after: int, wait_s: float) -> "list[Event]":
        """Events after number `after`; acknowledges those up to it. Waits up to `wait_s` for the first."""
        events: list[Event] = await within(wait_s + ANSWER_S, self.actor.pull.remote(after, wait_s))
        return events

    async def heartbeat(self, timeout_s: float = PULL_S + ANSWER_S) -> None:
        """Send a heartbeat, which renews the rank's lease."""
        await within(timeout_s, self.actor.heartbeat.remote())

    async def examine(self) -> dict[str, Any]:
        """The trainer's status."""
        facts: dict[str, Any] = await within(ANSWER_S, self.actor.examine.remote())
        return facts

    async def ask_nccl(self) -> "RasReport | None":
        """What NCCL's RAS subsystem reports of the job; None if the rank's node has no answer about it."""
        report: RasReport | None = await within(ANSWER_S, self.actor.ask_nccl.remote())
        return report

    async def read_stacks(self) -> str:
        """The stacks of a trainer that does not answer. Empty if its log will have them."""
        found: str = await within(STACKS_S, self.actor.read_stacks.remote())
        return found

    async def inject(self, fault: Fault, checkpoints: str | None) -> str | None:
        """Apply a fault, once; returns what was done, None when nothing was."""
        done: str | None = await within(ANSWER_S, self.actor.inject.remote(fault.to_json(), checkpoints))
        return done

    async def trace(self, trace: Trace) -> None:
        """Record a trace with all other ranks, once."""
        await within(ANSWER_S, self.actor.trace.remote(trace.to_json()))

    async def lose(self, rank: int) -> None:
        """Go on without another rank, which is gone."""
        await within(ANSWER_S, self.actor.send.remote({"lost": rank}))

    async def profile(self, order: Profile) -> Outcome | None:
        """Take a profile of the rank's process, once; None if it has none now."""
        found: dict[str, Any] | None = await within(
            order.seconds + PROFILE_S, self.actor.act.remote("profile", order.to_json())
        )
        return None if found is None else Outcome.from_json(found)

    async def execute(self, order: Exec) -> ExecEnd | None:
        """Run a command beside the rank, once; None if it has no process now."""
        calling = self.actor.act.remote("exec", order.to_json())
        found: dict[str, Any] | None = await within(order.seconds + PROFILE_S, calling)
        return None if found is None else ExecEnd.from_json(found)

    async def release(self) -> None:
        """Let the trainer exit: every rank is done."""
        await within(START_S, self.actor.send.remote({"release": True}))

    async def save(self) -> None:
        """End after a step that all ranks choose together, and save it."""
        await within(START_S, self.actor.send.remote({"stop": "save"}))

    async def stop(self, grace_s: float, timeout_s: float) -> None:
        """End after the present step; the trainer is killed after `grace_s`."""
        await within(timeout_s, self.actor.stop.remote(grace_s))
