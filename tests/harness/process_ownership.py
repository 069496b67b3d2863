"""Which rank actor owns which trainer: both hold the same snapshot memory, and the actor opened it before any that it guards."""

from pathlib import Path

import psutil


def rank_actors() -> list[psutil.Process]:
    """Of every Ray cluster on this machine, spares included."""
    return [p for p in psutil.process_iter(["cmdline"]) if "ray::Rank" in " ".join(p.info["cmdline"] or [])]


def actor_of(trainer: int) -> psutil.Process:
    """The rank actor of the trainer that is process `trainer`."""
    mine = _memory(trainer)
    assert mine, "a trainer without snapshots"
    memories = [(rank, _memory(rank.pid)) for rank in rank_actors()]
    return min((memory.index(mine[0]), rank.pid, rank) for rank, memory in memories if mine[0] in memory)[2]


def _memory(pid: int) -> list[int]:
    """Its slots by inode, its own before those that it guards; the second of its own may come later."""
    try:
        found = [_identity(fd) for fd in sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda fd: int(fd.name))]
    except OSError:
        return []
    return [inode for inode in found if inode is not None]


def _identity(fd: Path) -> int | None:
    try:
        return fd.stat().st_ino if str(fd.readlink()).startswith("/memfd:shardyard-snapshot") else None
    except OSError:
        return None
