"""Reads come after the last write, writes after all, and freed memory goes back to the stream that allocated it."""

import pytest

from shardyard.workers.dry_run.memory_order import MemoryOrder, Place, Race
from shardyard.workers.dry_run.vector_clocks import Actor

WRITES, READS, ALLOCATES = (Place(name, "a.py", line) for line, name in enumerate(("writes", "reads", "allocates"), 1))


def memory(stream: Actor) -> MemoryOrder:
    """One block that `stream` wrote."""
    found = MemoryOrder()
    found.allocate("block", stream, ALLOCATES)
    stream.tick()
    found.write("block", stream, WRITES)
    return found


def test_a_read_on_another_stream_comes_after_the_write() -> None:
    first, second = Actor("first"), Actor("second")
    found = memory(first)
    second.tick()
    with pytest.raises(Race, match=r"`writes` at a\.py:1 writes on first; `reads` at a\.py:2 reads on second"):
        found.read("block", second, READS)
    second.follow(first.clock)
    found.read("block", second, READS)


def test_reads_may_come_in_any_order_and_a_write_comes_after_all() -> None:
    first, second, third = Actor("first"), Actor("second"), Actor("third")
    found = memory(first)
    for reader in (second, third):
        reader.follow(first.clock)
        reader.tick()
        found.read("block", reader, READS)
    first.follow(second.clock)
    first.tick()
    with pytest.raises(Race, match="reads on third"):
        found.write("block", first, WRITES)
    first.follow(third.clock)
    found.write("block", first, WRITES)


@pytest.mark.parametrize("how", ["waits", "records", "another stream allocates", "nothing"])
def test_freed_memory_is_handed_out_after_what_other_streams_do_with_it(how: str) -> None:
    first, second = Actor("first"), Actor("second")
    found = memory(first)
    second.follow(first.clock)
    second.tick()
    found.read("block", second, READS)
    if how == "records":
        found.record("block", second)
    found.free("block")
    if how == "waits":
        first.follow(second.clock)
    if how == "nothing":
        with pytest.raises(Race, match="may get the memory of a freed tensor"):
            found.allocate("next", first, ALLOCATES)
    else:
        found.allocate("next", Actor("third") if how == "another stream allocates" else first, ALLOCATES)


def test_memory_of_the_host_is_read_as_a_whole() -> None:
    stream, host = Actor("stream"), Actor("host")
    found = MemoryOrder()
    found.add("copy", on_host=True)
    stream.tick()
    found.write("copy", stream, WRITES)
    with pytest.raises(Race):
        found.read_all(host, READS)
    host.follow(stream.clock)
    found.read_all(host, READS)
