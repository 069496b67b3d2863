"""The share of a disk's bandwidth that the step of an optimizer reaches whose state is on it (`offload.to: disk`), and its host memory.

    python benchmarks/disk_optimizer.py [--folder /mnt/nvme] [--elements 67108864] [--rounds 5]

A round is one step, and one run of fio or, where it is not installed, of plain threads: direct reads and writes of as many bytes in
transfers of the same size, as many at a time, in another file of the same folder. Printed are the rates, and the ratio of the two of a
round: median, minimum and maximum. The update alone is a step with the same buckets in memory.
"""

import argparse
import json
import mmap
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from shardyard.strategies.activation_memory.disk_home import DiskHome
from shardyard.strategies.activation_memory.host_optimizer import HostOptimizer
from shardyard.strategies.activation_memory.state_file import StateFile
from shardyard.strategies.activation_memory.state_home import StateHome
from shardyard.strategies.memory_options import DISK_BUCKET_BYTES, DISK_BUFFERS
from shardyard.strategies.param_shard import DeviceSide, ParamShard
from shardyard.workers.spec import OptimizerSpec
from shardyard.workers.trainer.optimizer import make_optimizer

#: Values and two moments.
TENSORS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="a folder on the disk")
    parser.add_argument("--elements", type=int, default=64 << 20, help="elements of the optimizer, 12 bytes each")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)  # as a rank on CPUs
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        _compare(Path(folder), options.elements, options.rounds)


def _compare(folder: Path, elements: int, rounds: int) -> None:
    file = StateFile(folder)
    home = DiskHome(file)
    on_disk = _optimizer(elements, home)
    _step(on_disk)  # makes buffers, and writes every block once
    file.take_use()
    size = TENSORS * 4 * elements
    plain = _fio if shutil.which("fio") else _Threads(folder, size)
    plain(folder, size)  # writes every block once
    ratios, rates, waits = [], [], []
    for _ in range(rounds):
        _step(on_disk)
        use = file.take_use()
        rates.append((use.read + use.written) / use.seconds)
        waits.append(use.waited_s / use.seconds)
        reached = plain(folder, size)
        ratios.append(rates[-1] / reached)
        _say(f"step {rates[-1] / 1e6:,.0f} MB/s, disk {reached / 1e6:,.0f} MB/s: {ratios[-1]:.2f}")
    in_memory = _optimizer(elements, StateHome())
    _step(in_memory)
    alone = min(_step(in_memory) for _ in range(3))
    name = "fio" if shutil.which("fio") else "plain threads"
    _say(
        f"share of {name}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), {rounds} rounds, "
        f"{'direct I/O' if file.direct else 'through the page cache'}"
    )
    _say(f"waited for the disk: {statistics.median(waits):.0%} of the step; the update alone takes {alone:.2f} s,")
    _say(f"the state's bytes over that: {2 * size / alone / 1e6:,.0f} MB/s")
    _say(f"host memory of the buffers: {home.buffer_bytes / 1e6:,.0f} MB, for {size / 1e6:,.0f} MB of state")


def _optimizer(elements: int, home: StateHome) -> HostOptimizer:
    device = DeviceSide(torch.zeros(elements, dtype=torch.bfloat16))
    shard = ParamShard("w", (elements,), (0,), torch.randn(elements), frozenset(), on_device=device)
    shard.set_gradient(torch.randn(elements))
    make = lambda some: make_optimizer(some, OptimizerSpec())  # noqa: E731
    return HostOptimizer([shard], 1.0, make, DISK_BUCKET_BYTES, home)


def _step(optimizer: HostOptimizer) -> float:
    began = time.monotonic()
    optimizer.step()
    return time.monotonic() - began


class _Threads:
    """Threads that read and write in turn, as those of a step do, without computing."""

    def __init__(self, folder: Path, size: int) -> None:
        self._file = StateFile(folder)
        self._place = self._file.place_of(self._file.zeros_like(torch.empty(size, dtype=torch.uint8, device="meta")))

    def __call__(self, folder: Path, size: int) -> float:
        """Bytes per second, read and written together."""
        del folder
        transfer = DISK_BUCKET_BYTES
        starts = range(0, size, transfer)

        def work(number: int) -> None:
            room = memoryview(mmap.mmap(-1, transfer))
            for start in starts[number::DISK_BUFFERS]:
                part = room[: min(transfer, size - start)]
                self._file.read(part, self._place + start)
                self._file.write(part, self._place + start)

        began = time.monotonic()
        with ThreadPoolExecutor(DISK_BUFFERS) as threads:
            list(threads.map(work, range(DISK_BUFFERS)))
        return 2 * size / (time.monotonic() - began)


def _fio(folder: Path, size: int) -> float:
    """Bytes per second, read and written together: half of the transfers each."""
    per_job = max(size // DISK_BUFFERS, DISK_BUCKET_BYTES)
    command = [
        *("fio", "--name=state", f"--directory={folder}", "--direct=1", "--ioengine=psync", "--rw=rw"),
        *(f"--bs={DISK_BUCKET_BYTES}", f"--numjobs={DISK_BUFFERS}", f"--size={per_job}", f"--io_size={2 * per_job}"),
        *("--group_reporting", "--output-format=json", "--fallocate=none"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (job,) = json.loads(done.stdout)["jobs"]
    moved = job["read"]["io_bytes"] + job["write"]["io_bytes"]
    took_ms: float = max(job["read"]["runtime"], job["write"]["runtime"])
    return float(moved / took_ms * 1000)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
