"""From the kill of a trainer to the first step of its successor, which resumes from a checkpoint.

The successor is a new process, or a prepared one that has imported everything (what the fork server gives a repair), or one that has a
CUDA context too. The last two show what a warm context saves.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ..checks import Check, Place
from ..report import Line, measured

SCRIPT = Path(__file__).parents[2] / "gpu.py"
#: What this process has set for its own group.
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
#: Steps between two checkpoints; the trainer is killed some steps after the first.
EVERY = 4
WAYS = {
    "a new process": {"waits": False, "context": False},
    "a process with imports": {"waits": True, "context": False},
    "a process with imports and a context": {"waits": True, "context": True},
}


def checks(at: Place) -> list[Check]:
    return [Check(f"kill to first step, {way}", partial(_killed, at, way)) for way in WAYS]


def _killed(at: Place, way: str) -> Iterator[Line]:
    prepared = WAYS[way]["waits"]
    if WAYS[way]["context"]:
        at.needs_cuda("context to keep")
    job = f"recovery-{list(WAYS).index(way)}"
    spec = at.sizes.small.spec(checkpoint={"final": False, "every": EVERY, "keep": 2})
    run = at.run(spec, job).model_dump(mode="json", by_alias=True)
    with ExitStack() as processes:
        first = processes.enter_context(_trainer(at, f"{job}-first", run, WAYS["a new process"]))
        saved = _until(first, "checkpoint")["data"]["step"]
        if prepared:
            second = processes.enter_context(_trainer(at, f"{job}-second", run, WAYS[way]))
            _until(second, "ready")
        first.kill()
        killed = time.monotonic()
        first.wait()
        if prepared:
            assert second.stdin is not None
            second.stdin.write("go\n")
            second.stdin.flush()
        else:
            second = processes.enter_context(_trainer(at, f"{job}-second", run, WAYS[way]))
        yield from _phases(way, second, killed, saved)


def _phases(way: str, process: "subprocess.Popen[str]", killed: float, saved: int) -> Iterator[Line]:
    formed = _until(process, "formed")["at"]
    step = _until(process, "step")
    note = f"{formed - killed:.2f} s until its group was formed"
    yield measured(f"kill to first step, {way}", step["at"] - killed, "s", note=note)
    yield measured(f"steps lost from before the checkpoint, {way}", max(0, saved + 1 - step["data"]["step"]), at_most=0)


@contextmanager
def _trainer(at: Place, name: str, run: Any, way: dict[str, bool]) -> Iterator["subprocess.Popen[str]"]:
    orders, log = at.folder / f"{name}.json", at.folder / f"{name}.log"
    orders.write_text(json.dumps({"run": run, **way}))
    command = [sys.executable, str(SCRIPT), "--trainer", str(orders)]
    env = {name: value for name, value in os.environ.items() if name not in TORCHRUN}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with log.open("w") as errors, subprocess.Popen(command, stderr=errors, env=env, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def _until(process: "subprocess.Popen[str]", kind: str) -> dict[str, Any]:
    """The next event of a kind. Raises RuntimeError when the trainer ends before it."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{") and (event := json.loads(line))["kind"] == kind:
            return dict(event)
    raise RuntimeError(f"the trainer ended before a {kind!r} event")
