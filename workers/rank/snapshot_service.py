"""The rank actor's remote methods about snapshots: `SnapshotCalls` of the supervisor (`supervisor/ranks/handles.py`) calls them.

Every call by a supervisor renews the actor's lease. A base class of the actor, because Ray calls an actor's methods by their names.
"""

from collections.abc import Sequence
from typing import Any

from ..checkpoint.manifest import File, Manifest
from ..messages.rendezvous import SnapshotHandle
from ..snapshot.header import SnapshotHeader, StoredSlice
from ..snapshot.replication import Chunk
from .lease import Lease
from .snapshot_store import SnapshotStore


class SnapshotService:
    """Serves the snapshots in one actor's memory."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.store = SnapshotStore()

    async def hold_snapshots(self, rank: int, handle: SnapshotHandle) -> SnapshotHandle | None:
        """Hold the snapshot memory of another rank on this node, so that it outlives that rank's actor."""
        self.lease.renew()
        return self.store.hold(rank, handle)

    async def snapshot_steps(self) -> list[int]:
        """Steps of which this rank's whole state is in memory. Call it when the trainer has ended."""
        self.lease.renew()
        return self.store.steps()

    async def forget_snapshots(self, after: int) -> None:
        """Empty all snapshots and replicas here of later steps than `after`; 0: all. Call it before a trainer has its run."""
        self.lease.renew()
        self.store.forget(after)

    async def write_replica(self, chunk: Chunk) -> bool:
        """Write a part of another rank's replica, or of this rank's own snapshot; returns whether the sender should continue."""
        return await self.store.write(chunk)

    async def replica_steps(self, rank: int) -> list[int]:
        """Steps of which another rank's whole state is in this actor's memory."""
        self.lease.renew()
        return self.store.replica_steps(rank)

    async def all_steps(self) -> dict[int, list[int]]:
        """Rank → steps of which its whole state is in this actor's memory. Call it when the trainers have ended."""
        self.lease.renew()
        return self.store.all_steps()

    async def snapshot_header(self, rank: int, step: int) -> SnapshotHeader | None:
        """The header of a rank's snapshot of `step`; None if this actor has none."""
        self.lease.renew()
        return self.store.snapshot_header(rank, step)

    async def write_out(self, rank: int, step: int, wanted: Sequence[StoredSlice], where: str, name: str) -> File:
        """Write these slices of a rank's state as its file of the checkpoint of `step` below `where`."""
        return await self.store.write_out(rank, step, wanted, where, name)

    async def discard(self, where: str, step: int, names: Sequence[str]) -> None:
        """Remove files that were written for the checkpoint of `step`, which is not made."""
        await self.store.discard(where, step, names)

    async def commit(self, where: str, keep: int, manifest: Manifest) -> tuple[str, tuple[int, ...] | None]:
        """Make a checkpoint of the files that all ranks have written; returns its address, and the steps of all checkpoints."""
        return await self.store.commit(where, keep, manifest)

    async def restore_to(self, rank: int, step: int, actor: Any) -> None:
        """Send the replica of a rank's state of `step` to the rank's new actor."""
        self.lease.renew()
        await self.store.send(rank, step, actor.write_replica.remote)
