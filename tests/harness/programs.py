"""Jobs that run a script."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.patience import PATIENCE_S
from shardyard.api.client import Client
from shardyard.service.schemas.job import Job

#: What a process prints that torch 2.13 aborts at its very end (`workers/gloo_threads.py`), or whose port was taken since it was free.
_BY_CHANCE = ("terminate called without an active exception", "EADDRINUSE")


def submitted(client: Client, tmp_path: Path, script: str, ranks: Any = 2, **more: Any) -> Job:
    (tmp_path / "train.py").write_text(script)
    spec = {"name": "program", "command": [sys.executable, "train.py"], "ranks": ranks, "cwd": str(tmp_path)}
    return client.submit({**spec, **more})


def lines(client: Client, job: str) -> list[str]:
    return [line.text for line in client.logs(job).lines]


def alone(spec: dict[str, Any], python: str | Path = sys.executable) -> list[str]:
    """What one process prints that runs the spec's script with this interpreter, without Shardyard. One that fails by chance runs again."""
    only = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1"}
    variables = {**only, "OMP_NUM_THREADS": 1, **spec.get("resources", {}).get("env", {})}
    own_path = {"PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"}
    for _ in range(5):
        done = subprocess.run(
            [python, *spec["command"][1:]],
            cwd=spec["code"]["dir"],
            env={**os.environ, **own_path, **{name: str(value) for name, value in variables.items()}, **_free_port()},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if not any(sign in done.stderr for sign in _BY_CHANCE):
            break
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _free_port() -> dict[str, str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return {"MASTER_PORT": str(free.getsockname()[1])}
