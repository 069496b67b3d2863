"""A process with these variables computes on one thread, and sees no GPU."""

import os
import subprocess
import sys

from shardyard.workers.one_thread import ON_CPUS


def test_torch_uses_one_thread_and_no_gpu() -> None:
    script = "import torch; print(torch.get_num_threads(), torch.cuda.is_available())"
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **ON_CPUS}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "False"]
