"""The emergency checkpoint: a step that the actors of a broken gang still have in memory, for an attempt on fewer devices.

Rules that it keeps: the trainers are dead, so that no snapshot changes; a step is written only if the slices in snapshots and replicas
make up every tensor, and if its record was emitted or can be.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeVar

from ...strategies.layout import Layout
from ..checkpoint.errors import CheckpointError
from ..checkpoint.manifest import Manifest, Tensor
from ..checkpoint.safetensors_header import dtype_name
from ..snapshot.header import UNFINISHED, SnapshotHeader, StoredSlice
from .event_merger import EventMerger
from .ranks.handles import RankHandle
from .ranks.members import Member

T = TypeVar("T")
Ints = tuple[int, ...]


@dataclass(frozen=True)
class EmergencyCheckpoint:
    """A checkpoint made of memory. `events` are rank 0's latest, of which some may have been lost with it."""

    step: int
    path: str
    bytes: int
    seconds: float
    kept: Sequence[int] | None = None  # steps of the job's complete checkpoints after it; None: not known
    events: Sequence[tuple[str, dict[str, Any]]] = field(default=(), repr=False)
    digest: str | None = None  # checksum of the manifest


@dataclass(frozen=True)
class BrokenGang:
    """The run whose trainers are dead, and its events. Distrusted memory is not used."""

    run: Mapping[str, Any]
    world_size: int
    merger: EventMerger
    distrusted: bool = False

    @property
    def trains(self) -> bool:
        """Whether its ranks run Shardyard's loop, which keeps snapshots."""
        return "train" in self.run

    @property
    def stages(self) -> int:
        return int(self.run["train"]["layout"]["pipeline"])

    def complete(self, ranks: Iterable[int]) -> bool:
        """Whether these ranks include one of each pipeline stage, whose snapshot names all tensors of the stage.

        A parameter server's snapshot names its own tensors only, so all servers are needed.
        """
        servers = Layout.model_validate(self.run["train"]["layout"]).servers
        if servers:
            return set(ranks) >= set(range(self.world_size - servers, self.world_size))
        return {rank * self.stages // self.world_size for rank in ranks} == set(range(self.stages))


async def save_and_emit(members: Sequence[Member], broken: BrokenGang) -> str:
    """Save what is in memory and emit its events; returns text: from where the next attempt continues.

    What a program of the user's own has in memory is known to it alone.
    """
    if not broken.trains:
        return "the command starts again, and continues from its newest checkpoint if it has one"
    try:
        saved = await save_from_memory(members, broken)
    except CheckpointError as error:
        return f"{error}: the job continues from its newest checkpoint"
    broken.merger.replay(saved.events)
    data = {"step": saved.step, "path": saved.path, "bytes": saved.bytes, "seconds": saved.seconds, "held_s": 0.0}
    data |= {"kept": None if saved.kept is None else list(saved.kept), "digest": saved.digest}
    broken.merger.fact({"seq": 0, "ts": time.time(), "kind": "checkpoint", "data": data}, saved.step)
    return f"the job continues after step {saved.step}, which was in memory"


async def save_from_memory(members: Sequence[Member], broken: BrokenGang) -> EmergencyCheckpoint:
    """Save the newest complete step. Raises `CheckpointError` if no step is complete, or if it could not be written."""
    began = time.monotonic()
    if broken.distrusted:
        raise CheckpointError("what is in memory is not trusted")
    holders = await _holders(members)
    for step in sorted({step for _, step in holders}, reverse=True):
        if step <= broken.merger.newest("checkpoint"):
            raise CheckpointError(f"step {step} is saved already")
        found = {rank: actor for (rank, held), actor in holders.items() if held == step}
        inventories = await _inventories(found, step)
        # On a thread: a large model takes seconds, and the actors end if they are not asked for a lease.
        shares = await asyncio.to_thread(divided, {rank: one.slices for rank, one in inventories.items()})
        reported = 0 in inventories or step <= broken.merger.newest_step
        if reported and shares is not None and broken.complete(inventories):
            return await _write(found, inventories, shares, broken, began)
    raise CheckpointError("no step is whole in the memory that is left")


def divided(held: Mapping[int, Sequence[StoredSlice]]) -> dict[int, list[StoredSlice]] | None:
    """Which rank writes which of the slices that it holds, each once; None if they do not make up their tensors."""
    shares: dict[int, list[StoredSlice]] = {}
    seen: set[tuple[str, Ints, Ints]] = set()
    left: dict[str, int] = {}
    for rank, stored in sorted(held.items()):
        for one in stored:
            left.setdefault(one.name, prod(one.shape))
            key = (one.name, one.offset, one.size)
            if one.elements and key not in seen:
                seen.add(key)
                left[one.name] -= one.elements
                shares.setdefault(rank, []).append(one)
    return shares if left and not any(left.values()) and not _overlap(seen) else None


def _overlap(slices: Iterable[tuple[str, Ints, Ints]]) -> bool:
    """Whether two slices of a tensor have an element in common; those that fill it and overlap leave a hole."""
    by_name: dict[str, list[tuple[Ints, Ints]]] = {}
    for name, offset, size in slices:
        by_name.setdefault(name, []).append((offset, size))
    return any(len(found) > 1 and _overlap_in_tensor(found) for found in by_name.values())


def _overlap_in_tensor(slices: Sequence[tuple[Ints, Ints]]) -> bool:
    """As `_overlap`, of (offset, size) in one tensor.

    A slice is compared with those that reach its start in the dimension with the most cuts: of N rows or N columns with the one before.
    """
    cuts = [len(set(starts)) for starts in zip(*(offset for offset, _ in slices), strict=True)]
    if not cuts:
        return True  # a tensor without dimensions has one element
    axis = cuts.index(max(cuts))
    reaching: list[tuple[Ints, Ints]] = []
    for offset, size in sorted(slices, key=lambda one: one[0][axis]):
        reaching = [(start, far) for start, far in reaching if start[axis] + far[axis] > offset[axis]]
        if any(_common(offset, size, *other) for other in reaching):
            return True
        reaching.append((offset, size))
    return False


def _common(a: Ints, m: Ints, b: Ints, n: Ints) -> bool:
    ends = zip(a, m, b, n, strict=True)
    return all(max(low, other) < min(low + size, other + far) for low, size, other, far in ends)


async def _holders(members: Sequence[Member]) -> dict[tuple[int, int], RankHandle]:
    """(rank, step) → a living actor that has the snapshot, if possible the rank's own."""
    living = [(member.rank, member.living) for member in members if member.living is not None]
    answers = await asyncio.gather(*(_answer(handle.snapshots.all_steps()) for _, handle in living))
    found: dict[tuple[int, int], RankHandle] = {}
    for (own, handle), held in zip(living, answers, strict=True):
        for rank, steps in (held or {}).items():
            for step in steps:
                if rank == own or (rank, step) not in found:
                    found[rank, step] = handle
    return found


async def _inventories(found: Mapping[int, RankHandle], step: int) -> dict[int, SnapshotHeader]:
    calls = (_answer(handle.snapshots.snapshot_header(rank, step)) for rank, handle in found.items())
    answers = await asyncio.gather(*calls)
    return {rank: one for rank, one in zip(found, answers, strict=True) if one is not None}


async def _answer(call: Awaitable[T]) -> T | None:
    """The answer; None if the actor is gone."""
    from ray.exceptions import RayError

    try:
        return await call
    except (RayError, TimeoutError):
        return None


async def _write(
    found: Mapping[int, RankHandle],
    inventories: Mapping[int, SnapshotHeader],
    shares: Mapping[int, list[StoredSlice]],
    broken: BrokenGang,
    began: float,
) -> EmergencyCheckpoint:
    from ray.exceptions import RayError

    edition = uuid.uuid4().hex[:8]
    names = {rank: f"rank-{rank:05d}-{edition}.safetensors" for rank in shares}
    leader = inventories[min(inventories)]
    where, step = broken.run["checkpoints"], leader.step
    try:
        calls = [
            found[rank].snapshots.write_out(rank, step, share, where, names[rank]) for rank, share in shares.items()
        ]
        files = await asyncio.gather(*calls, return_exceptions=True)
        if failed := [one for one in files if isinstance(one, BaseException)]:
            await _discard(found.values(), where, step, [*names.values()])
            raise failed[0]
        manifest = manifest_of(leader, shares.values(), dict(zip(names.values(), files, strict=True)), broken.run)
        keep = broken.run["train"]["checkpoint"]["keep"]
        path, kept = await next(iter(found.values())).snapshots.commit(where, keep, manifest)
    except (RayError, TimeoutError) as error:
        why = str(getattr(error, "cause", None) or error).strip().splitlines() or [type(error).__name__]
        raise CheckpointError(f"step {step}, which was whole in memory, could not be written: {why[0]}") from error
    events = inventories[0].facts.get("recent_events", ()) if 0 in inventories else ()
    seconds = time.monotonic() - began
    return EmergencyCheckpoint(step, path, manifest.bytes, seconds, kept, events, manifest.sha256)


async def _discard(actors: Iterable[RankHandle], where: str, step: int, names: Sequence[str]) -> None:
    """Remove the files that were written: later saves make no room of files of later steps.

    Storage that does not answer is left alone: it would answer no other actor.
    """
    from ray.exceptions import RayError

    for actor in actors:
        try:
            await actor.snapshots.discard(where, step, names)
        except RayError:
            continue  # another actor, as this one is gone
        except TimeoutError:
            pass
        return


def manifest_of(
    leader: SnapshotHeader, shares: Iterable[Sequence[StoredSlice]], files: Mapping[str, Any], run: Mapping[str, Any]
) -> Manifest:
    """The manifest of a trainer's checkpoint of that step, without its latest events, which the gang has emitted."""
    tensors = {one.name: Tensor(dtype_name(one.name, one.dtype), one.shape) for share in shares for one in share}
    training = {
        **leader.facts["training"],
        **leader.facts["about"],
        "loop": leader.facts["loop"],
        "recent_events": [],
        "events_attempt": [run["job"], run["attempt"]],
        UNFINISHED: bool(leader.facts.get(UNFINISHED)),
    }
    return Manifest(leader.step, training, tensors, files)
