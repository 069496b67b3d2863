"""The last collectives of a trainer, from torch's flight recorders: per process group, those entered and those not completed.

There are two recorders, and both are on by default. One has gloo's collectives, but no messages between two ranks. A build with NCCL has
another one with NCCL's collectives and messages. Torch has no public way to read them within the process: only this file does, and
returns nothing if a version of torch lacks it. `recorded_groups.py` knows the format.
"""

import contextlib
import importlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ..messages.collective_record import GroupRecord
from .recorded_groups import names, read_dump

MODULE: Final = "torch._C._distributed_c10d"
#: NCCL's first: in a job that computes on GPUs, gloo's groups carry little.
RECORDERS: Final = ("_dump_nccl_trace_json", "_dump_fr_trace_json")


def collectives() -> list[GroupRecord]:
    """A record of every process group that was used. Empty without torch, without groups and without a recorder."""
    found: list[GroupRecord] = []
    for dump in _recorded():
        try:
            groups = _groups(names(dump))
            found += read_dump(dump, groups, on_gloo=any(record.nccl for record in found))
        except (ImportError, AttributeError, KeyError, RuntimeError, TypeError, ValueError):
            continue  # another format
    return found


def _recorded() -> list[Mapping[str, Any]]:
    """What each recorder of this build has."""
    found: list[Mapping[str, Any]] = []
    try:
        from ...strategies.torch_version import tried

        if not tried():
            return found
        module = importlib.import_module(MODULE)
    except ImportError:
        return found
    for name in RECORDERS:
        dump: Callable[[], str | bytes] | None = getattr(module, name, None)  # a build for CPUs lacks NCCL's
        if dump is not None:
            with contextlib.suppress(RuntimeError, ValueError):
                found.append(json.loads(dump()))
    return found


def _groups(wanted: Iterable[str]) -> dict[str, list[int]]:
    """Group name → its ranks in the world, by their rank in the group, for the groups that still exist."""
    from torch.distributed import get_process_group_ranks

    from ...strategies.process_groups import group_named

    found = {}
    for name in wanted:
        with contextlib.suppress(RuntimeError, ValueError):  # the group was destroyed
            found[name] = get_process_group_ranks(group_named(name))
    return found
