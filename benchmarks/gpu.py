"""One CUDA GPU, measured: kernels, first values, memory, waits, snapshots, checkpoints, offload, recovery, determinism, tracing, speed.

    PYTHONPATH=typings python benchmarks/gpu.py [--only SECTION …] [--out DIR] [--seconds 600]

`make gpu-check` runs it. It needs torch, numpy and pydantic, and no network. It writes `gpu-check.json` and `gpu-check.md` into DIR,
prints each line, and exits with 1 when a line fails. A section that raises is a failed line; what cannot run here is skipped with its
reason. `--device cpu` runs what a CPU can, at tiny sizes, to try the scripts. The parts are in `gpu_check/`, a file per section.
"""

import sys

from gpu_check.command import main

if __name__ == "__main__":
    sys.exit(main(__doc__))
