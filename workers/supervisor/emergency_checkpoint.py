"""The step that the actors of a broken gang still hold, as an ordinary checkpoint, for an attempt on fewer devices to go on from.

Rules that it keeps: the trainers are dead, so that no snapshot changes; nothing is written but a step of which the rectangles that are
left, in snapshots and in their copies, make up every tensor; a step is not taken whose record would be told by nobody.
"""

import asyncio
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from ..checkpoint.errors import CheckpointError
from ..checkpoint.manifest import Manifest, Tensor
from ..checkpoint.safetensors_header import dtype_name
from ..snapshot.header import Inventory, Stored
from .event_merger import Story
from .hang_watchdog import within
from .ranks.members import Member

ANSWER_S: Final = 120.0
#: So long the slowest storage may take.
WRITE_S: Final = 3600.0


@dataclass(frozen=True)
class Salvaged:
    """A checkpoint made of memory. `told` is what rank 0 had told lately, which may have died with it on its way."""

    step: int
    path: str
    bytes: int
    seconds: float
    kept: Sequence[int] | None = None  # steps of the job's complete checkpoints after it; None: not known
    told: Sequence[tuple[str, dict[str, Any]]] = field(default=(), repr=False)


@dataclass(frozen=True)
class Ground:
    """Of which run, and what is told of it. Distrusted memory is not used."""

    run: Mapping[str, Any]
    world_size: int
    story: Story
    distrusted: bool = False

    @property
    def stages(self) -> int:
        return int(self.run["train"]["layout"]["pipeline"])

    def complete(self, ranks: Iterable[int]) -> bool:
        """Whether of each pipeline stage there is a rank, which knows all its tensors by name."""
        return {rank * self.stages // self.world_size for rank in ranks} == set(range(self.stages))


async def rescue(members: Sequence[Member], ground: Ground) -> str:
    """Save what is in memory and tell of it; returns in words from where the next attempt goes on."""
    try:
        saved = await salvage(members, ground)
    except CheckpointError as error:
        return f"{error}: the job goes on from its newest checkpoint"
    ground.story.again(saved.told)
    told = {"step": saved.step, "path": saved.path, "bytes": saved.bytes, "seconds": saved.seconds, "held_s": 0.0}
    told["kept"] = None if saved.kept is None else list(saved.kept)
    ground.story.fact({"seq": 0, "ts": time.time(), "kind": "checkpoint", "data": told}, saved.step)
    return f"the job goes on after step {saved.step}, which was in memory"


async def salvage(members: Sequence[Member], ground: Ground) -> Salvaged:
    """Raises `CheckpointError` where no step is whole, or it could not be written."""
    began = time.monotonic()
    if ground.distrusted:
        raise CheckpointError("what is in memory is not to be trusted")
    holders = await _holders(members)
    for step in sorted({step for _, step in holders}, reverse=True):
        if step <= ground.story.newest("checkpoint"):
            raise CheckpointError(f"step {step} is saved already")
        found = {rank: actor for (rank, held), actor in holders.items() if held == step}
        inventories = await _inventories(found, step)
        shares = divided({rank: one.stored for rank, one in inventories.items()})
        tells = 0 in inventories or step <= ground.story.told_step
        if tells and shares is not None and ground.complete(inventories):
            return await _write(found, inventories, shares, ground, began)
    raise CheckpointError("no step is whole in the memory that is left")


def divided(held: Mapping[int, Sequence[Stored]]) -> dict[int, list[Stored]] | None:
    """Which rank writes which of the rectangles that it holds, each once; None where they do not make up their tensors."""
    shares: dict[int, list[Stored]] = {}
    seen: set[tuple[str, tuple[int, ...], tuple[int, ...]]] = set()
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


def _overlap(rectangles: Iterable[tuple[str, tuple[int, ...], tuple[int, ...]]]) -> bool:
    """Whether two rectangles of a tensor have an element in common; those that fill it and overlap leave a hole."""
    by_name: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
    for name, offset, size in rectangles:
        others = by_name.setdefault(name, [])
        if any(_common(offset, size, *other) for other in others):
            return True
        others.append((offset, size))
    return False


def _common(a: tuple[int, ...], m: tuple[int, ...], b: tuple[int, ...], n: tuple[int, ...]) -> bool:
    ends = zip(a, m, b, n, strict=True)
    return all(max(low, other) < min(low + size, other + far) for low, size, other, far in ends)


async def _holders(members: Sequence[Member]) -> dict[tuple[int, int], Any]:
    """(rank, step) → an actor that lives and holds it, the rank's own where it does."""
    living = [member for member in members if member.actor is not None and not member.lost]
    told = await asyncio.gather(*(_asked(member.actor.holds.remote()) for member in living))
    found: dict[tuple[int, int], Any] = {}
    for member, held in zip(living, told, strict=True):
        for rank, steps in (held or {}).items():
            for step in steps:
                if rank == member.rank or (rank, step) not in found:
                    found[rank, step] = member.actor
    return found


async def _inventories(found: Mapping[int, Any], step: int) -> dict[int, Inventory]:
    told = await asyncio.gather(*(_asked(actor.inventory.remote(rank, step)) for rank, actor in found.items()))
    return {rank: one for rank, one in zip(found, told, strict=True) if one is not None}


async def _asked(reference: Any) -> Any:
    """The answer; None of an actor that is gone meanwhile."""
    from ray.exceptions import RayError

    try:
        return await within(ANSWER_S, reference)
    except (RayError, TimeoutError):
        return None


async def _write(
    found: Mapping[int, Any],
    inventories: Mapping[int, Inventory],
    shares: Mapping[int, list[Stored]],
    ground: Ground,
    began: float,
) -> Salvaged:
    from ray.exceptions import RayError

    edition = uuid.uuid4().hex[:8]
    names = {rank: f"rank-{rank:05d}-{edition}.safetensors" for rank in shares}
    leader = inventories[min(inventories)]
    where, step = ground.run["checkpoints"], leader.step
    try:
        calls = [found[rank].write_out.remote(rank, step, share, where, names[rank]) for rank, share in shares.items()]
        files = await asyncio.gather(*(within(WRITE_S, call) for call in calls))
        manifest = manifest_of(leader, shares.values(), dict(zip(names.values(), files, strict=True)), ground.run)
        keep = ground.run["train"]["checkpoint"]["keep"]
        path, kept = await within(WRITE_S, next(iter(found.values())).commit.remote(where, keep, manifest))
    except (RayError, TimeoutError) as error:
        why = str(getattr(error, "cause", None) or error).strip().splitlines() or [type(error).__name__]
        raise CheckpointError(f"step {step}, which was whole in memory, could not be written: {why[0]}") from error
    told = inventories[0].facts.get("told", ()) if 0 in inventories else ()
    return Salvaged(step, path, manifest.bytes, time.monotonic() - began, kept, told)


def manifest_of(
    leader: Inventory, shares: Iterable[Sequence[Stored]], files: Mapping[str, Any], run: Mapping[str, Any]
) -> Manifest:
    """What a trainer's checkpoint of that step would say; what was told lately is told by the gang itself."""
    tensors = {one.name: Tensor(dtype_name(one.name, one.dtype), one.shape) for share in shares for one in share}
    training = {
        **leader.facts["training"],
        **leader.facts["about"],
        "loop": leader.facts["loop"],
        "told": [],
        "told_in": [run["job"], run["attempt"]],
    }
    return Manifest(leader.step, training, tensors, files)
