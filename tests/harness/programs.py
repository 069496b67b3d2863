"""Jobs that run a script."""

import sys
from pathlib import Path
from typing import Any

from shardyard.api.client import Client
from shardyard.service.schemas.job import Job


def submitted(client: Client, tmp_path: Path, script: str, ranks: int = 2, **more: Any) -> Job:
    (tmp_path / "train.py").write_text(script)
    spec = {"name": "program", "command": [sys.executable, "train.py"], "ranks": ranks, "cwd": str(tmp_path)}
    return client.submit({**spec, **more})


def lines(client: Client, job: str) -> list[str]:
    return [line.text for line in client.logs(job).lines]
