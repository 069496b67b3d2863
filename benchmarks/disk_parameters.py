"""The share of a disk's bandwidth with which parameters are read ahead (`offload.to: disk` with `offload.parameters`), and its host memory.

    python benchmarks/disk_parameters.py [--folder /mnt/nvme] [--blocks 24] [--block-mb 16] [--rounds 5]

A round is a forward and a backward pass over the blocks, each of which is copied out of its buffer as an all-gather does, without other
computing, and one run of plain threads: direct reads of as many bytes in transfers of the same size, as many at a time. Printed are the
rates, and the ratio of the two of a round: median, minimum and maximum.
"""

import argparse
import mmap
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from shardyard.strategies.activation_memory.disk_read_ahead import DiskReadAhead
from shardyard.strategies.activation_memory.state_file import StateFile
from shardyard.strategies.memory_options import PARAMETER_BUFFERS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="a folder on the disk")
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--block-mb", type=int, default=16, help="MiB of one block's shards")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)  # as a rank on CPUs
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        _compare(StateFile(Path(folder)), options.blocks, options.block_mb << 20, options.rounds)


def _compare(file: StateFile, blocks: int, size: int, rounds: int) -> None:
    ahead, message = DiskReadAhead(file), torch.empty(size // 4)
    kept = [file.copy(torch.full((size // 4,), float(number))) for number in range(blocks)]
    for tensor in kept:
        ahead.add([tensor])
        file.flush(tensor)
    plain = _Threads(file, [file.place_of(tensor) for tensor in kept], size)
    plain()  # touches its memory
    _passes(ahead, blocks, message)  # by which the order is learned
    file.take_use()
    ratios = []
    for _ in range(rounds):
        began = time.monotonic()
        _passes(ahead, blocks, message)
        rate = file.take_use().gathered / (time.monotonic() - began)
        alone = plain()
        ratios.append(rate / alone)
        _say(f"read ahead {rate / 1e6:,.0f} MB/s, disk {alone / 1e6:,.0f} MB/s: {ratios[-1]:.2f}")
    _say(
        f"share of plain threads: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), "
        f"{rounds} rounds, {'direct I/O' if file.direct else 'through the page cache'}"
    )
    _say(
        f"host memory of the buffers: {ahead.buffer_bytes / 1e6:,.0f} MB, for {file.bytes / 1e6:,.0f} MB of parameters"
    )


def _passes(ahead: DiskReadAhead, blocks: int, message: torch.Tensor) -> None:
    ahead.resume()
    for block in (*range(blocks), *reversed(range(blocks))):
        with ahead.values(block) as (values,):
            message.copy_(values)
    ahead.pause()


class _Threads:
    """Threads that read, as many as there are buffers, without computing."""

    def __init__(self, file: StateFile, starts: Sequence[int], size: int) -> None:
        self._file, self._starts, self._size = file, starts, size
        self._rooms = [memoryview(mmap.mmap(-1, size)) for _ in range(PARAMETER_BUFFERS)]

    def __call__(self) -> float:
        """Bytes per second of two passes."""
        began = time.monotonic()
        with ThreadPoolExecutor(PARAMETER_BUFFERS) as threads:
            list(threads.map(self._read, range(PARAMETER_BUFFERS)))
        return 2 * len(self._starts) * self._size / (time.monotonic() - began)

    def _read(self, number: int) -> None:
        for start in [*self._starts, *self._starts][number::PARAMETER_BUFFERS]:
            self._file.read(self._rooms[number], start)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
