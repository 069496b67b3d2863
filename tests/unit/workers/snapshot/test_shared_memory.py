import os

import pytest

from shardyard.workers.snapshot import shared_memory


def test_new_segments_are_empty(fds: list[int]) -> None:
    assert len(fds) == shared_memory.COUNT
    assert shared_memory.steps(fds) == []


def test_a_segment_is_complete_from_its_seal_until_it_is_emptied(fds: list[int]) -> None:
    shared_memory.reserve(fds[0], 3 * shared_memory.START)
    assert shared_memory.steps(fds) == []
    shared_memory.seal(fds[0], shared_memory.Header(7, 10, 3 * shared_memory.START))
    shared_memory.reserve(fds[1], shared_memory.START)
    shared_memory.seal(fds[1], shared_memory.Header(9, 10, shared_memory.START))
    assert shared_memory.steps(fds) == [7, 9]
    shared_memory.empty(fds[0])
    assert shared_memory.steps(fds) == [9]


def test_what_is_later_than_the_restored_step_is_overwritten_first(fds: list[int]) -> None:
    """Else the next snapshot would take the place of the restored one, the only step that all ranks have."""
    for fd, step in zip(fds, (7, 9), strict=True):
        shared_memory.reserve(fd, shared_memory.START)
        shared_memory.seal(fd, shared_memory.Header(step, 0, shared_memory.START))
    shared_memory.empty_after(fds, 7)
    assert shared_memory.steps(fds) == [7] and shared_memory.oldest(fds) == fds[1]
    shared_memory.empty_after(fds, 0)
    assert shared_memory.steps(fds) == []


def test_a_segment_that_grows_has_real_memory_throughout(fds: list[int]) -> None:
    page = shared_memory.START
    for size in (page + 1, 3 * page, 2 * page):
        shared_memory.reserve(fds[0], size)
    shared_memory.seal(fds[1], shared_memory.Header(7, 0, page))
    shared_memory.reserve(fds[1], 3 * page)
    assert [shared_memory.allocated(fd) for fd in fds] == [3 * page] * 2
    assert os.fstat(fds[0]).st_size == 3 * page


def test_half_a_header_is_none(fds: list[int]) -> None:
    shared_memory.reserve(fds[0], shared_memory.START)
    whole = shared_memory.Header(7, 10, shared_memory.START).pack()
    for length in range(len(whole)):
        os.pwrite(fds[0], whole[:length] + bytes(len(whole) - length), 0)
        assert shared_memory.read_header(fds[0]) is None, length
    os.pwrite(fds[0], whole, 0)
    assert shared_memory.read_header(fds[0]) == shared_memory.Header(7, 10, shared_memory.START)


def test_every_flipped_bit_of_a_header_is_seen(fds: list[int]) -> None:
    shared_memory.reserve(fds[0], shared_memory.START)
    whole = shared_memory.Header(7, 10, shared_memory.START).pack()
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        os.pwrite(fds[0], bytes(flipped), 0)
        assert shared_memory.read_header(fds[0]) is None, bit


def test_a_header_that_promises_more_than_there_is_is_none(fds: list[int]) -> None:
    shared_memory.reserve(fds[0], shared_memory.START)
    shared_memory.seal(fds[0], shared_memory.Header(7, 10, shared_memory.START + 1))
    assert shared_memory.read_header(fds[0]) is None


def test_another_process_can_take_segments_over_and_they_outlive_their_maker() -> None:
    made = shared_memory.allocate()
    shared_memory.reserve(made[0], shared_memory.START)
    shared_memory.seal(made[0], shared_memory.Header(3, 0, shared_memory.START))
    taken = shared_memory.adopt(os.getpid(), made)
    for fd in made:
        os.close(fd)
    assert shared_memory.steps(taken) == [3]
    for fd in taken:
        os.close(fd)


def test_only_segments_are_taken_over() -> None:
    reader, writer = os.pipe()
    with pytest.raises(FileNotFoundError, match="is not the process"):
        shared_memory.adopt(os.getpid(), [reader])
    os.close(reader)
    os.close(writer)
    with pytest.raises(FileNotFoundError):
        shared_memory.adopt(os.getpid(), [reader])
