"""A program for sweeps whose loss follows from its learning rate, and the document of a sweep over it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: The loss falls to that of the learning rate. It continues where it was stopped, whenever that was.
SCRIPT = """
import json, os, pathlib, sys, time
state = pathlib.Path(__file__).parent / os.environ["SHARDYARD_JOB"]
done = int(state.read_text()) if state.exists() else 0
lr, steps, step_s = float(os.environ["LR"]), int(sys.argv[1]), float(sys.argv[2])
for step in range(done + 1, steps + 1):
    time.sleep(step_s)
    loss = (lr - 0.3) ** 2 + 0.05 + 1 / step
    print(json.dumps({"shardyard": {"loss": loss}, "step": step}), flush=True)
    written = state.with_suffix(".new")
    written.write_text(str(step))
    written.rename(state)
"""


def document(folder: Path, rates: Sequence[float], steps: int, step_s: float, **sweep: Any) -> dict[str, Any]:
    """A sweep over these learning rates, with the program in this folder."""
    (folder / "train.py").write_text(SCRIPT)
    # Text, as a variable is: sweeps of programs list such values.
    values = [f"{rate:.2f}" for rate in rates]
    return {
        "name": "tune",
        "command": [sys.executable, str(folder / "train.py"), str(steps), str(step_s)],
        "resources": {"device": "cpu"},
        "sweep": {"parameters": {"resources.env.LR": values}, "metric": "loss", **sweep},
    }
