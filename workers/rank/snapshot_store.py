"""Snapshot memory that outlives the trainer: this rank's own, a neighbour's on the same node, and copies from other nodes.

Read its steps and headers only when the trainers have ended: a running trainer overwrites them.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Collection, Sequence

from ..checkpoint import from_snapshot
from ..checkpoint.manifest import File, Manifest
from ..checkpoint.retention import folder
from ..messages.rendezvous import SnapshotHandle
from ..snapshot import shared_memory
from ..snapshot.header import SnapshotHeader, StoredSlice, segment_of
from ..snapshot.header import read as read_header
from ..snapshot.replication import Chunk, Give, ReplicaStore, Replicator, Stale, send
from ..storage.open_folder import folder_at
from .host import node_id


class SnapshotStore:
    """The snapshots that one rank actor holds."""

    def __init__(self) -> None:
        self.rank, self.generation = -1, 0
        self.own: list[int] = []
        self.guarded: dict[int, list[int]] = {}  # rank → its segments, held here too in case its actor dies
        self.replicas = ReplicaStore()  # of other nodes' snapshots
        self._writing_out = asyncio.Lock()

    def reserve(self, rank: int, generation: int, handle: SnapshotHandle | None) -> None:
        """Provide memory for a rank: the present one, else that which `handle` names on this node, else a new one."""
        self.rank, self.generation = rank, generation
        self.own = self.own or _adopt(handle) or shared_memory.allocate()

    def hold(self, rank: int, handle: SnapshotHandle) -> SnapshotHandle | None:
        """Hold the memory of another rank on this node; None if its actor is gone: then what was held before stays."""
        try:
            held = shared_memory.adopt(handle.pid, list(handle.fds))
        except OSError:
            return None
        for fd in self.guarded.pop(rank, []):
            os.close(fd)
        self.guarded[rank] = held
        return SnapshotHandle(node_id(), os.getpid(), tuple(held))

    def steps(self) -> list[int]:
        """Steps of which this rank's whole state is in memory."""
        return shared_memory.steps(self.own)

    def forget(self, after: int) -> None:
        """Empty all memory here of later steps than `after`: this rank's, and that of others."""
        for fds in (self.own, *self.guarded.values()):
            shared_memory.empty_after(fds, after)
        self.replicas.empty_after(after)

    async def write(self, chunk: Chunk) -> bool:
        """Write a part of another rank's snapshot, or of this rank's own; returns whether the sender should continue. Raises `Stale`."""
        self.refuse_earlier(chunk.rank, chunk.generation)
        if chunk.rank == self.rank:
            return await asyncio.to_thread(self.replicas.write_into, chunk, self.own)
        return await asyncio.to_thread(self.replicas.write, chunk)

    def refuse_earlier(self, rank: int, generation: int) -> None:
        """Raise `Stale` for what is of an earlier generation than this actor."""
        if generation < self.generation:
            raise Stale(f"rank {rank} is of generation {generation}, this is {self.generation}")

    def replica_steps(self, rank: int) -> list[int]:
        """Steps of which another rank's whole state is in this actor's memory."""
        return shared_memory.steps(self.replicas.of(rank))

    def _held(self, rank: int) -> list[int]:
        """Segments with this rank's own state, or those held or replicated here for another rank."""
        return self.own if rank == self.rank else [*self.guarded.get(rank, []), *self.replicas.of(rank)]

    def all_steps(self) -> dict[int, list[int]]:
        """Rank → steps of which its whole state is in this actor's memory."""
        ranks = {self.rank, *self.guarded, *self.replicas.segments}
        return {rank: steps for rank in ranks if (steps := shared_memory.steps(self._held(rank)))}

    def snapshot_header(self, rank: int, step: int) -> SnapshotHeader | None:
        """The header of a rank's snapshot of `step`; None if this actor has none."""
        fd = segment_of(self._held(rank), step)
        return None if fd is None else read_header(fd)

    async def write_out(self, rank: int, step: int, wanted: Sequence[StoredSlice], where: str, name: str) -> File:
        """Write these slices of a rank's state as its file of the checkpoint of `step` below `where`.

        One file at a time: each is built in memory first, and the node has room for one copy.
        """
        fd = segment_of(self._held(rank), step)
        assert fd is not None, "write_out was called for a step that snapshot_header does not list"
        async with self._writing_out:
            return await asyncio.to_thread(from_snapshot.write, folder_at(where), step, name, fd, wanted)

    async def discard(self, where: str, step: int, names: Sequence[str]) -> None:
        """Remove files that were written for the checkpoint of `step`, which is not made."""
        await asyncio.to_thread(from_snapshot.remove, folder(folder_at(where), step), names)

    async def commit(self, where: str, keep: int, manifest: Manifest) -> tuple[str, tuple[int, ...] | None]:
        """Make a checkpoint of the files that all ranks have written; returns its address, and the steps of all checkpoints."""
        kept = await asyncio.to_thread(from_snapshot.publish, folder_at(where), keep, manifest)
        return str(folder(folder_at(where), manifest.step)), kept

    async def send(self, rank: int, step: int, give: Give) -> None:
        """Send the replica of a rank's state of `step` to the rank's new actor."""
        for fd in self.replicas.of(rank):
            header = shared_memory.read_header(fd)
            if header is not None and header.step == step:
                await send(fd, rank, self.generation, give)

    async def replicate(
        self, end: socket.socket, give: Give, ranks: Collection[int], warn: Callable[[str], None]
    ) -> None:
        """Replicate what the trainer at `end` seals, until it ends. Once all ranks have new replicas, keep only those of `ranks`."""
        replicator = Replicator(end, self.own, self.rank, warn)
        with contextlib.suppress(OSError):
            await replicator.run(self.generation, give, lambda: self.drop_replicas_except(ranks))

    def drop_replicas_except(self, ranks: Collection[int]) -> None:
        """Free the replicas of all ranks but these."""
        self.replicas.drop_except(ranks)


def _adopt(handle: SnapshotHandle | None) -> list[int]:
    if handle is not None and handle.node == node_id():
        with contextlib.suppress(OSError):
            return shared_memory.adopt(handle.pid, list(handle.fds))
    return []
