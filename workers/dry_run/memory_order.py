"""Whether every access to a block of memory comes after the accesses that it depends on: a read after the last write, a write after all.

The block of a freed tensor goes back to the stream that allocated it, and is handed out again at once, as by CUDA's caching allocator. So
what another stream does with it must come first, unless the tensor was recorded there (`record_stream`). Pure; imports no torch.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from .vector_clocks import Actor


class Race(RuntimeError):
    """Two accesses to the same memory that nothing orders. The text names both, with their lines of code."""


@dataclass(frozen=True, slots=True)
class Place:
    """An operator, and the line of code that starts it."""

    operator: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"`{self.operator}` at {self.file}:{self.line}" if self.file else f"`{self.operator}` (backward)"


@dataclass(frozen=True, slots=True)
class Access:
    """Action `time` of `actor`."""

    actor: Actor
    time: int
    place: Place
    verb: str  # reads or writes

    def __str__(self) -> str:
        return f"{self.place} {self.verb} on {self.actor.name}"


@dataclass(slots=True)
class _Block:
    """The memory of a storage. `made_on`: the stream whose memory it is; None if that is not known, and for memory of the host."""

    made_on: Actor | None
    on_host: bool
    write: Access | None = None
    reads: dict[Actor, Access] = field(default_factory=dict)
    recorded: set[Actor] = field(default_factory=set)


class MemoryOrder:
    """Blocks by key. Each method raises `Race` if nothing orders the new access after one that must come first."""

    def __init__(self) -> None:
        self._blocks: dict[Hashable, _Block] = {}
        self._freed: dict[Actor, list[Access]] = defaultdict(
            list
        )  # accesses to freed blocks of a stream that may still run

    def __contains__(self, key: Hashable) -> bool:
        return key in self._blocks

    def add(self, key: Hashable, on_host: bool = False) -> None:
        """A block that is not handed out again by a stream."""
        self._blocks[key] = _Block(None, on_host)

    def allocate(self, key: Hashable, stream: Actor, place: Place) -> None:
        """`stream` allocates a block: maybe one that was freed."""
        for access in self._freed.pop(stream, ()):
            if not stream.comes_after(access.actor, access.time):
                raise Race(
                    f"{place} on {stream.name} may get the memory of a freed tensor, of which {access}. "
                    "Nothing orders the two: wait first, or record the stream."
                )
        self._blocks[key] = _Block(stream, on_host=False)

    def record(self, key: Hashable, stream: Actor) -> None:
        """The block is not handed out again before what `stream` does until it is freed."""
        self._blocks[key].recorded.add(stream)

    def free(self, key: Hashable) -> None:
        """Raises nothing: memory that is not handed out again may be in use."""
        block = self._blocks.pop(key, None)
        if block is None or block.made_on is None:
            return
        last = [*block.reads.values(), *([block.write] if block.write else [])]
        own = block.made_on
        self._freed[own] += [one for one in last if one.actor is not own and one.actor not in block.recorded]

    def read(self, key: Hashable, actor: Actor, place: Place) -> None:
        """`actor` reads the block in its next action, which has begun."""
        block, access = self._blocks[key], Access(actor, actor.clock[actor], place, "reads")
        _check(access, [block.write] if block.write else [])
        block.reads[actor] = access

    def read_all(self, actor: Actor, place: Place) -> None:
        """`actor` reads all memory of the host in its next action."""
        actor.tick()
        for key, block in self._blocks.items():
            if block.on_host:
                self.read(key, actor, place)

    def write(self, key: Hashable, actor: Actor, place: Place) -> None:
        """`actor` writes the block in its next action, which has begun."""
        block, access = self._blocks[key], Access(actor, actor.clock[actor], place, "writes")
        _check(access, [*block.reads.values(), *([block.write] if block.write else [])])
        block.write, block.reads = access, {}


def _check(access: Access, before: Iterable[Access]) -> None:
    for one in before:
        if not access.actor.comes_after(one.actor, one.time):
            raise Race(f"{one}; {access} the same memory. Nothing orders the two.")
