"""`python -m shardyard.workers.dry_run`: reads one request per line from the standard input and answers each with one line.

Requests and answers are those of `processes.py`, as JSON. A process of its own, because the fake device must come before torch.
"""

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

from ...strategies.layout import Refusal
from ..gpu_models import gpu_named
from ..messages import json_codec
from ..parent_death import die_with_parent
from ..spec import TrainSpec
from . import fake_cuda
from .processes import NO_DEVICE
from .report import DryRun

#: Of an error that is quoted.
_MOST_CHARACTERS: Final = 500


def main() -> int:
    die_with_parent(os.getppid())
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a module of the user's own may print
    gc.disable()  # imports leave little garbage: looking for it takes a fifth of their time
    try:
        fake_cuda.load()
    except fake_cuda.NoFakeDevice as error:
        sys.stderr.write(f"{error}\n")
        return NO_DEVICE
    from ...strategies.tensor_parallel import random_state
    from . import (
        fake_activations,
        fake_attention,
        fake_collectives,
        fake_norms,
        fake_shards,
        fake_streams,
        no_compiler,
        one_step,
    )

    fake_activations.install()
    fake_attention.install()
    fake_collectives.install()
    fake_norms.install()
    fake_shards.install()
    no_compiler.install()
    random_state.leave_untracked()
    fake_streams.install()  # after all imports: torch compares what it finds in its namespace while it is imported
    gc.freeze()  # what is imported stays: no collection looks at it again
    gc.enable()
    runner = os.getpid()
    for line in sys.stdin:
        # Torch keeps meshes of former process groups in its caches, so each run has a process, which has torch from its parent.
        if child := os.fork():
            _, status = os.waitpid(child, 0)
            if status:
                return 1
        else:
            die_with_parent(runner)
            answer, status = _answer(json.loads(line), fake_streams.answer_as, one_step.dry_run)
            answers.write(answer)
            answers.flush()
            sys.stderr.flush()
            os._exit(status)
    return 0


def _answer(
    request: dict[str, Any], answer_as: Callable[..., None], dry_run: Callable[..., DryRun]
) -> tuple[bytes, int]:
    """The line that answers a request, and the status of the process that ran it."""
    gpu = gpu_named(request["gpu"])
    assert gpu is not None, request["gpu"]
    answer_as(gpu.devices[0], gpu.capability)
    try:
        train = TrainSpec.model_validate(request["train"])
        given = (request[name] for name in ("vocab", "rank", "whole", "at_once", "races"))
        report = dry_run(train, *given)
    except Refusal as refusal:
        return _refused(refusal), 0
    except (Exception, SystemExit) as error:  # noqa: BLE001  (the forked process ends here)
        traceback.print_exc()
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        sys.stderr.write(text[:_MOST_CHARACTERS] + "\n")  # the last line is what is quoted
        return b"", 1
    return b'{"report": ' + json_codec.dumps(report) + b"}\n", 0


def _refused(refusal: Refusal) -> bytes:
    found: dict[str, Any] = {"field": refusal.field, "message": refusal.message, "remedy": refusal.remedy}
    return json.dumps({"refusal": found}).encode() + b"\n"


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # without taking torch's modules apart
