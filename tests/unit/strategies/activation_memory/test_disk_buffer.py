"""A buffer's reads and writes happen in the order in which they are given, and pieces that touch are one transfer."""

import os
from pathlib import Path

import pytest
import torch

from shardyard.strategies.activation_memory.disk_buffer import DiskBuffer, Extent, add_extent
from shardyard.strategies.activation_memory.state_file import PAGE, StateFile


def test_what_is_written_is_read_again_in_order(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    kept = [file.copy(torch.full((PAGE // 4,), float(number))) for number in range(3)]
    one = [[Extent(file.place_of(tensor), 0, PAGE)] for tensor in kept]
    buffer = DiskBuffer(file, PAGE, "test")
    place = buffer.tensor(kept[0], 0)
    for turn in range(3):
        buffer.read(one[turn])
        buffer.write(one[(turn + 1) % 3])  # before it was waited for
        buffer.read(one[(turn + 1) % 3])
        buffer.wait()
        assert (place == 0).all()
    assert all((tensor == 0).all() for tensor in kept)


def test_a_tensor_of_it_has_the_order_in_memory_of_another(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    matrix = file.copy(torch.arange(12.0).reshape(3, 4))
    buffer = DiskBuffer(file, 1, "test")
    assert buffer.bytes == PAGE
    buffer.read([Extent(file.place_of(matrix), 0, PAGE)])
    buffer.wait()
    assert buffer.tensor(matrix.t(), 0).tolist() == matrix.t().tolist()
    assert buffer.tensor(matrix.t(), 0).stride() == (1, 4)


def test_no_child_of_the_process_has_its_memory(tmp_path: Path) -> None:
    """Else a fork during a read could leave the numbers that arrive to the child."""
    buffer = DiskBuffer(StateFile(tmp_path), 3 * PAGE, "test")
    address = buffer.tensor(torch.empty(1), 0).data_ptr()
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):  # a mapping begins
            first, _, end = name.partition("-")
            inside = int(first, 16) <= address < int(end, 16)
        elif inside and name == "VmFlags:":
            assert "dc" in rest  # do not copy on fork
            return
    pytest.fail("the buffer is in no mapping")


def test_pieces_that_follow_each_other_in_both_are_one() -> None:
    found: list[Extent] = []
    for start, place in ((0, 0), (1, 1), (3, 2), (4, 4), (5, 5)):
        add_extent(found, Extent(start * PAGE, place * PAGE, PAGE))
    assert found == [
        Extent(0, 0, 2 * PAGE),
        Extent(3 * PAGE, 2 * PAGE, PAGE),
        Extent(4 * PAGE, 4 * PAGE, 2 * PAGE),
    ]


def test_an_error_of_the_disk_is_raised_by_who_waits(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    kept = file.copy(torch.ones(PAGE))
    buffer = DiskBuffer(file, 4 * PAGE, "test")
    os.ftruncate(file._file, 0)
    buffer.read([Extent(file.place_of(kept), 0, 4 * PAGE)])
    with pytest.raises(OSError, match="ends too early"):
        buffer.wait()
