import os

import pytest

from shardyard.workers import slots


def test_new_slots_are_empty(fds: list[int]) -> None:
    assert len(fds) == slots.COUNT
    assert slots.steps(fds) == []


def test_a_slot_is_complete_from_its_seal_until_it_is_emptied(fds: list[int]) -> None:
    slots.stretch(fds[0], 3 * slots.START)
    assert slots.steps(fds) == []
    slots.seal(fds[0], slots.Header(7, 10, 3 * slots.START))
    slots.stretch(fds[1], slots.START)
    slots.seal(fds[1], slots.Header(9, 10, slots.START))
    assert slots.steps(fds) == [7, 9]
    slots.empty(fds[0])
    assert slots.steps(fds) == [9]


def test_half_a_header_is_none(fds: list[int]) -> None:
    slots.stretch(fds[0], slots.START)
    whole = slots.Header(7, 10, slots.START).pack()
    for length in range(len(whole)):
        os.pwrite(fds[0], whole[:length] + bytes(len(whole) - length), 0)
        assert slots.read_header(fds[0]) is None, length
    os.pwrite(fds[0], whole, 0)
    assert slots.read_header(fds[0]) == slots.Header(7, 10, slots.START)


def test_every_flipped_bit_of_a_header_is_seen(fds: list[int]) -> None:
    slots.stretch(fds[0], slots.START)
    whole = slots.Header(7, 10, slots.START).pack()
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        os.pwrite(fds[0], bytes(flipped), 0)
        assert slots.read_header(fds[0]) is None, bit


def test_a_header_that_promises_more_than_there_is_is_none(fds: list[int]) -> None:
    slots.stretch(fds[0], slots.START)
    slots.seal(fds[0], slots.Header(7, 10, slots.START + 1))
    assert slots.read_header(fds[0]) is None


def test_another_process_can_take_slots_over_and_they_outlive_their_maker() -> None:
    made = slots.make()
    slots.stretch(made[0], slots.START)
    slots.seal(made[0], slots.Header(3, 0, slots.START))
    taken = slots.take_over(os.getpid(), made)
    for fd in made:
        os.close(fd)
    assert slots.steps(taken) == [3]
    for fd in taken:
        os.close(fd)


def test_only_slots_are_taken_over() -> None:
    reader, writer = os.pipe()
    with pytest.raises(FileNotFoundError, match="no longer"):
        slots.take_over(os.getpid(), [reader])
    os.close(reader)
    os.close(writer)
    with pytest.raises(FileNotFoundError):
        slots.take_over(os.getpid(), [reader])
