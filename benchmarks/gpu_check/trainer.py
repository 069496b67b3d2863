"""A trainer in a process of its own, which a section kills: `python benchmarks/gpu.py --trainer FILE`.

`FILE` is JSON: the run, whether to make the CUDA context before it waits, and whether to wait for a line on the standard input, as a
prepared process does. Each event is a line of JSON on the standard output, with `at`, the time of `time.monotonic`.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main(file: str) -> int:
    from shardyard.workers.parent_death import die_with_parent

    die_with_parent(os.getppid())
    orders = json.loads(Path(file).read_text())
    import torch

    from shardyard.workers.spec import Run
    from shardyard.workers.trainer.assemble import train_on
    from shardyard.workers.trainer.instruments import Instruments
    from shardyard.workers.world import formed_by_torchrun

    run = Run.model_validate(orders["run"])
    if orders["context"] and run.device == "cuda":
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
    _emit("ready", {})
    if orders["waits"]:
        sys.stdin.readline()
    with formed_by_torchrun(run.device) as device:
        _emit("formed", {})
        train_on(run, device, _emit, Instruments())
    return 0


def _emit(kind: str, data: dict[str, Any]) -> None:
    line = {"at": time.monotonic(), "kind": kind, "data": data if kind in ("step", "checkpoint") else {}}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
