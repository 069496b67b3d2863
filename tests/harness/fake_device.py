"""A process with the fake CUDA device, which runs functions of `stream_cases.py` in forked children. It loads the device before torch.

As a module (`python -m harness.fake_device`) it is that process: a line with a function's name and arguments is answered by a line with its
result or its error.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class OnFakeDevice(AssertionError):
    """A function raised. The text is its error's type and message."""


class FakeDevice:
    """Calls functions of `stream_cases.py` on the device."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def call(self, name: str, *arguments: Any) -> Any:
        """Returns what the function returns, as JSON. Raises `OnFakeDevice`."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise OnFakeDevice(answer["error"])
        return answer["result"]


@contextmanager
def running_fake_device() -> Iterator[FakeDevice]:
    command = [sys.executable, "-P", "-m", "harness.fake_device"]
    path = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield FakeDevice(process)
        finally:
            process.kill()


def main() -> None:
    from shardyard.workers.dry_run import fake_cuda

    fake_cuda.load()
    from shardyard.workers.dry_run import fake_collectives, fake_streams

    fake_collectives.install()
    fake_streams.install()
    fake_streams.answer_as("NVIDIA H100 80GB HBM3", (9, 0))
    from . import stream_cases

    stream_cases.warm_up()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        function = getattr(stream_cases, name)
        if child := os.fork():
            _, status = os.waitpid(child, 0)
            if status:  # it crashed, without an answer
                os.write(1, json.dumps({"error": f"status {status}"}).encode() + b"\n")
            continue
        try:
            answer = {"result": function(*arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        os.write(1, json.dumps(answer).encode() + b"\n")
        os._exit(0)


if __name__ == "__main__":
    main()
