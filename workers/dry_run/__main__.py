"""`python -m shardyard.workers.dry_run`: reads one request per line from the standard input and answers each with one line.

Requests and answers are those of `processes.py`, as JSON. A process of its own, because the fake device must come before torch.
"""

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from ...strategies.layout import Refusal
from ..gpu_models import gpu_named
from ..messages import json_codec
from ..spec import TrainSpec
from . import fake_cuda
from .processes import NO_DEVICE
from .report import DryRun


def main() -> int:
    gc.disable()  # imports leave little garbage: looking for it takes a fifth of their time
    try:
        fake_cuda.load()
    except fake_cuda.NoFakeDevice as error:
        sys.stderr.write(f"{error}\n")
        return NO_DEVICE
    from . import fake_attention, fake_collectives, fake_norms, fake_shards, fake_streams, no_compiler, one_step

    fake_attention.install()
    fake_collectives.install()
    fake_norms.install()
    fake_shards.install()
    no_compiler.install()
    fake_streams.install()  # after all imports: torch compares what it finds in its namespace while it is imported
    gc.freeze()  # what is imported stays: no collection looks at it again
    gc.enable()
    for line in sys.stdin:
        # Torch keeps meshes of former process groups in its caches, so each run has a process, which has torch from its parent.
        if child := os.fork():
            _, status = os.waitpid(child, 0)
            if status:
                return 1
        else:
            os._exit(_answer(json.loads(line), fake_streams.answer_as, one_step.dry_run))
    return 0


def _answer(request: dict[str, Any], answer_as: Callable[..., None], dry_run: Callable[..., DryRun]) -> int:
    gpu = gpu_named(request["gpu"])
    assert gpu is not None, request["gpu"]
    answer_as(gpu.devices[0], gpu.capability)
    try:
        train = TrainSpec.model_validate(request["train"])
        given = (request[name] for name in ("vocab", "rank", "whole", "at_once", "races"))
        report = dry_run(train, *given)
    except Refusal as refusal:
        _write(_refused(refusal))
    except Exception:  # noqa: BLE001  (the forked process ends here)
        traceback.print_exc()
        return 1
    else:
        _write(b'{"report": ' + json_codec.dumps(report) + b"}")
    return 0


def _refused(refusal: Refusal) -> bytes:
    found: dict[str, Any] = {"field": refusal.field, "message": refusal.message, "remedy": refusal.remedy}
    return json.dumps({"refusal": found}).encode()


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # without taking torch's modules apart
