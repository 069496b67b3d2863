"""The status of one rank of a gang without progress: its process, its stacks, and the collectives that it waits in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from ...messages.collective_record import GroupRecord
from ...messages.rank_set import format_ranks
from ...messages.rank_status import BACKGROUND, QUICK

#: A process group on all ranks: torch's name of it, its axis, its ranks.
Key = tuple[str, str, tuple[int, ...]]
#: Frames that only wait for other ranks, where no collective is on record: messages of pipelines and rings.
MESSAGES: Final = (
    "distributed_c10d.py:",
    "distributed/pipelining/",
    "strategies/collectives.py:",
    "data_parallel/inbox.py:",
    "pipeline_parallel/forward_only.py:",
    "pipeline_parallel/neighbours.py:",
    "pipeline_parallel/tied_weights.py:",
    "workers/ready_ranks.py:",
)
#: Functions of torch in which the host waits for its device.
DEVICE_CALLS: Final = frozenset(
    {"tolist", "item", "cpu", "to", "copy_", "nonzero", "synchronize", "float", "int", "bool"}
)
#: Frames that wait for a device: torch's functions that have frames of their own.
DEVICE_FRAMES: Final = ("torch/cuda/",)


@dataclass(frozen=True)
class Waiting:
    """A collective, or a message to or from `peer`, that a rank has entered and that is not done."""

    group: str
    ranks: tuple[int, ...]
    seq: int
    op: str
    size: str = ""
    peer: int | None = None
    name: str = ""  # torch's, of the group
    started: bool = field(default=False, compare=False)  # by the device
    since_s: float = field(default=0.0, compare=False)

    @property
    def others(self) -> tuple[int, ...]:
        """The ranks without which it cannot be done."""
        return self.ranks if self.peer is None else (self.peer,)

    @property
    def key(self) -> Key:
        """Its group, on all ranks."""
        return self.name, self.group, self.ranks

    def __str__(self) -> str:
        if self.peer is not None:
            return f"a {self.op} of the {self.group} group"
        return f"{self.op} {self.seq} of the {self.group} group ({format_ranks(self.ranks)})"


@dataclass(frozen=True)
class Stack:
    """One thread: its frames, the innermost last, and the function that the innermost one calls."""

    thread: str
    frames: tuple[str, ...]
    call: str = ""

    def __str__(self) -> str:
        lines = [*self.frames, *([f"in a call of {self.call}"] if self.call else [])]
        return f"thread {self.thread}:\n  " + "\n  ".join(lines)


@dataclass(frozen=True)
class Examination:
    """The status of one rank."""

    rank: int
    state: str | None = None  # of its process, as /proc has it; None: it is gone
    answered: bool = False  # its control thread
    phase: str = ""
    step: int = 0
    idle_s: float = 0.0  # since the training thread's last beat
    stacks: tuple[Stack, ...] = ()  # the training thread's first
    records: tuple[GroupRecord, ...] = ()
    pid: int | None = None  # of a process on CUDA, as NCCL knows it, with its node's addresses
    hosts: tuple[str, ...] = ()
    read: str = ""  # the stacks of one that has not answered, as another process reads them

    @classmethod
    def of(cls, rank: int, facts: Mapping[str, Any]) -> "Examination":
        """From a rank actor's answer."""
        return cls(
            rank=rank,
            state=facts.get("state"),
            answered="phase" in facts,
            phase=facts.get("phase", ""),
            step=int(facts.get("step", 0)),
            idle_s=float(facts.get("idle_s", 0.0)),
            stacks=tuple(
                Stack(one["thread"], tuple(one["frames"]), one.get("call", "")) for one in facts.get("stacks", ())
            ),
            records=tuple(GroupRecord.from_json(one) for one in facts.get("collectives", ())),
            pid=facts.get("pid"),
            hosts=tuple(facts.get("hosts", ())),
        )

    @cached_property
    def waiting(self) -> tuple[Waiting, ...]:
        """What it has entered and is not done: the oldest collective of each group, and all messages."""
        return tuple(wait for record in self.records for wait in _waits(record))

    @cached_property
    def oldest(self) -> tuple[Waiting, ...]:
        """What it waits in: one collective, or messages of one batch. On NCCL its host may have entered others behind it."""
        since_s = max((wait.since_s for wait in self.waiting), default=0.0)
        return tuple(wait for wait in self.waiting if wait.since_s == since_s)

    def entered(self, wait: Waiting) -> int:
        """The number of the newest collective that it has entered in the group of `wait`."""
        record = self._by_group.get(wait.key)
        return 0 if record is None else record.entered

    def what(self, wait: Waiting) -> tuple[str, str] | None:
        """Name and size of the collective that it has entered as this number of the group; None if it is not on record."""
        record = self._by_group.get(wait.key)
        if record is None:
            return None
        if record.op and record.seq == wait.seq:
            return record.op, record.size
        return next(((op, size) for seq, op, size in record.recent if seq == wait.seq), None)

    @cached_property
    def _by_group(self) -> dict[Key, GroupRecord]:
        return {(record.name, record.group, record.ranks): record for record in self.records}

    @property
    def stopped(self) -> bool:
        return self.state in ("T", "t")

    @property
    def in_message(self) -> bool:
        """Whether a training thread waits in a message to or from another rank, which gloo's flight recorder does not record."""
        own = [stack.frames for stack in self.stacks if not stack.thread.startswith(BACKGROUND)]
        return any(any(sign in frame for sign in MESSAGES for frame in frames[-2:]) for frames in own)

    @property
    def in_device_wait(self) -> bool:
        """Whether the training thread waits for its own device, on which nothing waits for another rank."""
        return not self.waits and self.has_nccl_record and self.in_device_call

    @property
    def in_unknown_device_wait(self) -> bool:
        """Whether the training thread waits for its device, and no flight recorder says for what this waits: maybe another rank."""
        return self.pid is not None and self.in_device_call and not (self.waits or self.has_nccl_record)

    @property
    def has_nccl_record(self) -> bool:
        """Whether torch's flight recorder has a group on NCCL."""
        return any(record.nccl for record in self.records)

    @property
    def in_device_call(self) -> bool:
        """Whether the training thread is in a function that waits for its device."""
        if not self.stacks:
            return False
        main = self.stacks[0]
        return main.call in DEVICE_CALLS or any(sign in frame for sign in DEVICE_FRAMES for frame in main.frames[-1:])

    @property
    def waits(self) -> bool:
        """Whether the rank waits for another rank."""
        return bool(self.waiting) or self.in_message

    @property
    def is_free(self) -> bool:
        """Whether it waits for no rank and for no device."""
        return not (self.waits or self.in_device_wait)

    def moves(self, quick_s: float, slow_s: float) -> bool:
        """Whether the rank has made progress lately: within `quick_s`, or `slow_s` in a phase that may take long."""
        return self.answered and not self.stopped and self.idle_s < (quick_s if self.phase in QUICK else slow_s)


def _waits(record: GroupRecord) -> Iterator[Waiting]:
    for one in record.messages:
        op = f"{one.kind} {'to' if one.kind == 'send' else 'from'} rank {one.peer}"
        yield Waiting(record.group, record.ranks, one.seq, op, peer=one.peer, name=record.name, since_s=one.since_s)
    if record.op:
        place = (record.group, record.ranks, record.seq, record.op, record.size)
        yield Waiting(*place, name=record.name, started=record.started, since_s=record.since_s)
