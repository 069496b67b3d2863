"""The last collectives of a trainer, from torch's flight recorder: per process group, those entered and those not completed.

The recorder is on by default, on gloo and NCCL. It does not record messages between two ranks. Torch has no public way to read it within
the process: only this file does, and returns nothing if a version of torch lacks it.
"""

import contextlib
import json
import time
from typing import Any

from ..messages.rank_status import BACKGROUND


def collectives() -> list[dict[str, Any]]:
    """Per process group that was used: `group`, its `ranks`, the number `entered` last, and of what is not done `op`, `seq` and `since_s`.

    Group names and numbers are the same on all ranks of a group. Empty without torch, without groups and without a recorder.
    """
    try:
        entries = _recorded()
        groups = _groups({entry["process_group"][0] for entry in entries})
    except (ImportError, AttributeError, KeyError, RuntimeError, ValueError):
        return []
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        name, described = entry["process_group"]
        if entry.get("is_p2p") or name not in groups or described == BACKGROUND:
            continue
        fact = found.setdefault(name, {"group": _plain_name(described), "ranks": groups[name], "entered": 0})
        fact["entered"] = max(fact["entered"], int(entry["collective_seq_id"]))
        if "op" not in fact and not _is_done(entry):
            fact |= {"op": str(entry["profiling_name"]).rpartition(":")[2], "seq": int(entry["collective_seq_id"])}
            fact["since_s"] = max(0.0, time.time() - entry["time_created_ns"] / 1e9)
    return list(found.values())


def _is_done(entry: dict[str, Any]) -> bool:
    return bool(entry.get("retired")) or entry.get("state") == "completed"


def _plain_name(described: str) -> str:
    return "world" if described == "default_pg" else described.removeprefix("mesh_")


def _recorded() -> list[dict[str, Any]]:
    from ...strategies.torch_version import tried

    if not tried():
        return []
    from torch._C._distributed_c10d import _dump_fr_trace_json  # type: ignore[attr-defined]

    recorded: list[dict[str, Any]] = json.loads(_dump_fr_trace_json()).get("entries", [])
    return recorded


def _groups(names: set[str]) -> dict[str, list[int]]:
    """Group name → its ranks in the world, for the groups that still exist."""
    from torch.distributed import get_process_group_ranks

    from ...strategies.process_groups import group_named

    found = {}
    for name in names:
        with contextlib.suppress(RuntimeError, ValueError):  # the group was destroyed
            found[name] = sorted(get_process_group_ranks(group_named(name)))
    return found
