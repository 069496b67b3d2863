"""What torch's flight recorders have, read within the process. Torch has no public way to do that: only this file does.

There are two recorders. One has gloo's collectives, but no messages between two ranks. A build with NCCL has another one with NCCL's
collectives and messages. Imports only the standard library, of Python 3.8 or newer: users' own interpreters run this file, too.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from typing import Any

MODULE = "torch._C._distributed_c10d"
#: NCCL's first: in a job that computes on GPUs, gloo's groups carry little.
RECORDERS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")


def dumps() -> list[dict[str, Any]]:
    """The dump of each recorder of this build. Empty without torch, and for a torch without recorders."""
    found: list[dict[str, Any]] = []
    try:
        module = importlib.import_module(MODULE)
    except ImportError:
        return found
    for name in RECORDERS:
        dump = getattr(module, name, None)  # a build for CPUs lacks NCCL's
        if dump is not None:
            with contextlib.suppress(RuntimeError, TypeError, ValueError):
                found.append(json.loads(dump()))
    return found
