"""Groups of tensors have the disk's values in any order of use, through few buffers; an order that repeats is read ahead."""

import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from harness.memory_cgroup import run_within

from shardyard.strategies.activation_memory import state_file
from shardyard.strategies.activation_memory.disk_read_ahead import DiskReadAhead
from shardyard.strategies.activation_memory.state_file import PAGE, StateDiskError, StateFile

#: The root's parameters and those of blocks; a group has tensors that are no whole pages.
SHAPES = [[(1500, 2), (3,)], *([[(700,), (40, 40)]] * 5)]
#: Both passes, as `fully_shard` requests them: the last block twice.
PASSES = [0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1]


def groups(file: StateFile) -> list[list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [[file.copy(torch.randn(shape, generator=generator)) for shape in shapes] for shapes in SHAPES]


def made(file: StateFile, buffers: int = 3) -> tuple[list[list[torch.Tensor]], DiskReadAhead]:
    kept, ahead = groups(file), DiskReadAhead(file, buffers)
    assert [ahead.add(tensors) for tensors in kept] == list(range(len(kept)))
    return kept, ahead


def use(ahead: DiskReadAhead, kept: Sequence[Sequence[torch.Tensor]], order: Sequence[int]) -> list[bool]:
    """Use the groups in this order; of each, whether it was read ahead."""
    found = []
    for group in order:
        found.append(any(slot.group == group for slot in ahead._slots))
        with ahead.values(group) as values:
            assert len(values) == len(kept[group])
            assert all(torch.equal(*pair) for pair in zip(values, kept[group], strict=True))
            assert not any(ahead._file.holds(value) for value in values)
    return found


def change(ahead: DiskReadAhead, kept: Sequence[Sequence[torch.Tensor]]) -> None:
    """What an update does: other values, which are written to the disk."""
    ahead.pause()
    for tensors in kept:
        for tensor in tensors:
            tensor.add_(1)
            ahead._file.flush(tensor)
    ahead.resume()


@pytest.mark.parametrize("buffers", [1, 2, 3, 99])
def test_any_order_has_the_values_of_the_disk(buffers: int, tmp_path: Path) -> None:
    draw = random.Random(buffers)
    kept, ahead = made(StateFile(tmp_path), buffers)
    for _ in range(8):
        use(ahead, kept, [draw.randrange(len(kept)) for _ in range(25)])
        change(ahead, kept)


@pytest.mark.parametrize("kind", ["blocks", "page cache"])
def test_passes_that_repeat_are_read_ahead(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All groups from the second step on, also the first ones after an update."""
    if kind == "page cache":
        monkeypatch.setattr(state_file, "_opened_for_blocks", lambda *_: None)
    kept, ahead = made(StateFile(tmp_path))
    assert not all(use(ahead, kept, PASSES))
    for _ in range(3):
        change(ahead, kept)
        assert all(use(ahead, kept, PASSES))


def test_micro_batches_and_validation_are_read_ahead_but_for_where_they_begin(tmp_path: Path) -> None:
    kept, ahead = made(StateFile(tmp_path))
    use(ahead, kept, PASSES)
    change(ahead, kept)
    for order in (3 * PASSES, PASSES[:6] + PASSES[:6], 3 * PASSES):
        found = use(ahead, kept, order)
        assert found.count(False) <= 2
        change(ahead, kept)


def test_buffers_are_bounded_and_a_group_that_is_held_is_not_read_again(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    kept, ahead = made(file)
    sizes = [sum(-(-tensor.nbytes // PAGE) * PAGE for tensor in tensors) for tensors in kept]
    use(ahead, kept, PASSES)
    change(ahead, kept)
    file.take_use()
    for _ in range(3):
        use(ahead, kept, PASSES)
        change(ahead, kept)  # reads the first three groups of the next step
        used = file.take_use()
        # Once forward, and again backward but for the last three, which the buffers have at the turn.
        assert used.gathered == sum(sizes) + sum(sizes[1:3])
        assert (used.read, used.written) == (0, 0) and used.gather_waited_s >= 0
        assert ahead.buffer_bytes == 3 * max(sizes)


def test_few_groups_need_as_many_buffers(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    ahead = DiskReadAhead(file)
    for tensors in groups(file)[:2]:
        ahead.add(tensors)
    with ahead.values(1):
        assert len(ahead._slots) == 2


def test_a_disk_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    kept, ahead = made(file)
    use(ahead, kept, PASSES)
    change(ahead, kept)
    use(ahead, kept, PASSES[:3])
    broken = os.open(f"/proc/self/fd/{file._file}", os.O_WRONLY)
    os.dup2(broken, file._blocks)
    os.close(broken)
    with pytest.raises(StateDiskError, match="bad file descriptor") as caught:
        use(ahead, kept, PASSES[3:])
    assert caught.value.facts == {"cause": "state_disk_failed"}


#: A small group is used before the process joins its cgroup: the first tensors of any file import much.
IN_A_CGROUP = """
import os, sys, torch
from pathlib import Path
from shardyard.strategies.activation_memory.disk_read_ahead import DiskReadAhead
from shardyard.strategies.activation_memory.state_file import StateFile

where, procs, folder = sys.argv[1:]
file = StateFile(Path(folder))
first = DiskReadAhead(file)
with first.values(first.add([file.copy(torch.full((1,), 7.0))])) as (values,):
    assert values[-1] == 7
ahead = DiskReadAhead(file)
Path(procs).write_text(str(os.getpid()))
kept, group = [], torch.empty(1 << 20)  # one for all: those of the heap would leave gaps
for number in range(32):
    group.fill_(number)
    kept.append(file.copy(group) if where == "disk" else group.clone())
    if where == "disk":
        file.flush(kept[-1])
if where == "disk":
    for one in kept:
        ahead.add([one])
for _ in range(2):
    for number, one in enumerate(kept):
        if where == "disk":
            with ahead.values(number) as (values,):
                assert values[-1] == number
"""


@pytest.mark.full
@pytest.mark.parametrize(("where", "status"), [("disk", 0), ("memory", -signal.SIGKILL)])
def test_host_memory_is_that_of_the_buffers(where: str, status: int, tmp_path: Path) -> None:
    """128 MiB of parameters in a cgroup of 64 MiB. In memory the kernel kills the process."""
    done = run_within(64 << 20, IN_A_CGROUP, where, tmp_path)
    assert done.returncode == status, done.stderr
