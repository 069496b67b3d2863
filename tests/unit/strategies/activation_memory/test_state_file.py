"""A state file's two ways to its bytes agree, it leaves nothing behind, and a disk without room says so before anything is lost."""

import contextlib
import gc
import importlib.util
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from harness.disk import SmallDisk

from shardyard.strategies.activation_memory import state_file
from shardyard.strategies.activation_memory.state_file import PAGE, DiskUse, StateDiskError, StateFile


@pytest.fixture(params=["blocks", "page cache"])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFile:
    if request.param == "page cache":  # as on a file system that refuses O_DIRECT
        monkeypatch.setattr(state_file, "_opened_for_blocks", lambda *_: None)
    return StateFile(tmp_path / "scratch")


def test_what_one_way_writes_the_other_reads(file: StateFile) -> None:
    tensor = file.zeros_like(torch.empty(3 * PAGE // 4))
    place, room = file.place_of(tensor), mmap.mmap(-1, tensor.nbytes)
    assert not tensor.any()
    for turn in range(1, 4):
        tensor.fill_(turn)
        file.flush(tensor)
        file.read(memoryview(room), place)
        read = torch.frombuffer(room, dtype=torch.float32)
        assert (read == turn).all()
        read.fill_(-turn)
        file.write(memoryview(room), place)
        assert (tensor == -turn).all()
        del read


def test_tensors_have_pages_of_their_own_in_one_order(file: StateFile) -> None:
    matrix = torch.randn(5, 7).t()
    first, second = file.zeros_like(matrix), file.copy(torch.arange(9), torch.float64)
    assert first.stride() == matrix.stride() and first.shape == matrix.shape
    assert second.dtype == torch.float64 and second.tolist() == list(range(9))
    assert [file.place_of(one) for one in (first, second)] == [0, PAGE]
    assert file.bytes == 2 * PAGE
    assert file.holds(first[2:]) and not file.holds(matrix) and file.copy(second) is second
    assert first.untyped_storage().nbytes() == matrix.nbytes, "not that of all tensors"
    empty = file.zeros_like(torch.empty(0, 4))
    assert empty.shape == (0, 4) and file.bytes == 2 * PAGE


def test_tensors_have_pages_of_their_own_where_pages_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only whole pages can be flushed and unmapped."""
    monkeypatch.setattr(mmap, "PAGESIZE", 1 << 16)
    found = importlib.util.spec_from_file_location("state_file_of_large_pages", state_file.__file__)
    assert found is not None
    assert found.loader is not None
    large = importlib.util.module_from_spec(found)
    found.loader.exec_module(large)
    file = large.StateFile(tmp_path)
    places = [file.place_of(file.copy(torch.full((5,), float(number)))) for number in range(3)]
    assert places == [0, 1 << 16, 2 << 16]
    assert file.bytes == 3 << 16


def test_more_than_an_arena(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "_ARENA", 2 * PAGE)
    file = StateFile(tmp_path)
    tensors = [file.copy(torch.full((PAGE // 8,), float(number))) for number in range(9)]
    assert len({file.place_of(tensor) for tensor in tensors}) == 9
    for tensor in tensors:
        file.flush(tensor)
    room = mmap.mmap(-1, PAGE)
    for number, tensor in enumerate(tensors):
        file.read(memoryview(room), file.place_of(tensor))
        assert (torch.frombuffer(room, dtype=torch.float32, count=PAGE // 8) == number).all()
        assert (tensor == number).all()


def test_the_file_has_no_name_and_no_reader(file: StateFile, tmp_path: Path) -> None:
    tensor = file.zeros_like(torch.empty(PAGE))
    assert not any((tmp_path / "scratch").iterdir())
    assert (tmp_path / "scratch").stat().st_mode & 0o777 == 0o700
    assert tensor.numel() == PAGE


def _descriptors(of: os.stat_result) -> int:
    """Those of one file: other threads of this process open and close others."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed by now
            found += os.path.samestat(os.fstat(int(descriptor.name)), of)
    return found


def test_descriptors_are_closed_with_the_last_tensor(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    tensor = file.zeros_like(torch.empty(PAGE))
    written = os.fstat(file._file)
    assert _descriptors(written) > 0
    del file, tensor
    gc.collect()
    assert _descriptors(written) == 0


def test_a_disk_here_is_read_past_the_page_cache(tmp_path: Path) -> None:
    """Where the file system of the tests supports it, as ext4, xfs and a recent tmpfs do."""
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600))
    except OSError:
        pytest.skip("this file system has no O_DIRECT")
    assert StateFile(tmp_path).direct


@pytest.fixture
def small() -> Iterator[SmallDisk]:
    try:
        disk = SmallDisk()
    except OSError as error:
        pytest.skip(str(error))
    yield disk
    gc.collect()
    disk.end()


def test_a_full_disk_is_found_before_a_byte_is_written(small: SmallDisk) -> None:
    file = StateFile(small.folder)
    kept = file.copy(torch.ones(PAGE))
    with pytest.raises(StateDiskError, match="no room for 67,108,864 bytes") as caught:
        file.zeros_like(torch.empty(SmallDisk.BYTES // 4))
    assert caught.value.facts == {"cause": "state_disk_full"} and "SHARDYARD_SCRATCH" in str(caught.value)
    assert (kept == 1).all()
    small.fill()
    with pytest.raises(StateDiskError) as caught:
        StateFile(small.folder).zeros_like(torch.empty(1))
    assert caught.value.code == "state_disk_full"
    del file, kept, caught


def test_a_limit_of_file_size_counts_as_a_full_disk(tmp_path: Path) -> None:
    program = (
        "import resource, sys, torch; from pathlib import Path;"
        "from shardyard.strategies.activation_memory.state_file import StateFile, StateDiskError;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20));\n"
        "try: StateFile(Path(sys.argv[1])).zeros_like(torch.empty(1 << 20))\n"
        "except StateDiskError as error: print(error.code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "state_disk_full"


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "in-the-way").write_bytes(b"")
    with pytest.raises(StateDiskError, match="in-the-way cannot hold training state") as caught:
        StateFile(tmp_path / "in-the-way")
    assert caught.value.code == "state_disk_failed"


def test_use_is_counted_until_it_is_taken(file: StateFile) -> None:
    file.count(DiskUse(1, 2, 3.0, 0.5, 4, 0.25))
    file.count(DiskUse(10, 20, 30.0, 5.0, 40, 2.5))
    assert file.take_use() == DiskUse(11, 22, 33.0, 5.5, 44, 2.75)
    assert file.take_use() == DiskUse()
