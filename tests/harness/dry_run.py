"""A process that answers dry runs one by one, so that torch is imported once for many of them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shardyard.strategies.layout import Refusal
from shardyard.workers.dry_run.processes import Request
from shardyard.workers.dry_run.report import DryRun
from shardyard.workers.gpu_models import gpu_named
from shardyard.workers.messages import json_codec
from shardyard.workers.spec import TrainSpec

SPEC: dict[str, Any] = {
    "model": {"preset": "nano"},
    "data": {"seq_len": 128},
    "precision": "bf16",
    "steps": 3,
    "global_batch": 16,
}


class DryRunner:
    """Its process is started when it is needed, and again after a dry run that broke off."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def report(
        self,
        layout: dict[str, Any],
        rank: int = 0,
        *,
        whole: bool = False,
        races: bool = False,
        on: str = "H100",
        **changes: Any,
    ) -> DryRun:
        """The report of a small model's step on `layout`. Raises `Refusal`, and with `races` breaks off at a race."""
        gpu, train = gpu_named(on), TrainSpec.model_validate({**SPEC, "layout": layout, **changes})
        assert gpu is not None
        answer = json.loads(self._asked(Request(train, 256, gpu, rank, whole, races=races).line()))
        if "refusal" in answer:
            raise Refusal(**answer["refusal"])
        return json_codec.read(DryRun, answer["report"])

    def _asked(self, line: str) -> str:
        if self._process is None:
            command = [sys.executable, "-P", "-m", "shardyard.workers.dry_run"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            if not answer:
                raise AssertionError("the dry run broke off; its error is on the standard error")
        except BaseException:  # also the time limit of a test, whose answer would be taken for the next one's
            self.close()
            raise
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with self._process:
                self._process.kill()
            self._process = None


@contextmanager
def running_dry_runner() -> Iterator[DryRunner]:
    runner = DryRunner()
    try:
        yield runner
    finally:
        runner.close()
