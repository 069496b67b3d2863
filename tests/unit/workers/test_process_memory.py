import os
import subprocess
import sys
from collections.abc import Iterator

from shardyard.workers.process_memory import MemorySampler, resident


def test_the_resident_bytes_of_a_process_grow_with_what_it_writes() -> None:
    code = "data = b'x' * (64 << 20); print('ready', flush=True); input()"
    small, large = (_waiting(code) for code in ("print('ready', flush=True); input()", code))
    try:
        more = (resident(large.pid) or 0) - (resident(small.pid) or 0)
        assert 60 << 20 < more < 70 << 20
    finally:
        for process in (small, large):
            process.communicate(b"\n")
    assert resident(small.pid) is None
    assert resident(None) is None


def _waiting(code: str) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_it_is_asked_seldom() -> None:
    numbers: Iterator[int] = iter(range(10))
    memory = MemorySampler(lambda: next(numbers), every_s=60.0)
    assert [memory.due() for _ in range(3)] == [0, None, None]
    assert MemorySampler(lambda: resident(os.getpid()), every_s=0.0).due()
