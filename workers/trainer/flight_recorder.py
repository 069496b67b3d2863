"""The last collectives of a trainer, from torch's flight recorders: per process group, those entered and those not completed.

Both recorders are on by default. `recorder_dumps.py` reads them, `recorded_groups.py` knows the format.
"""

import contextlib
from collections.abc import Iterable
from typing import Any

from ..messages.collective_record import GroupRecord
from ..recorder_dumps import dumps
from .recorded_groups import names, read_dump


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


def _recorded() -> list[dict[str, Any]]:
    """What each recorder of this build has. Empty for a version of torch that was not tried."""
    try:
        from ...strategies.torch_version import tried
    except ImportError:
        return []
    return dumps() if tried() else []


def _groups(wanted: Iterable[str]) -> dict[str, list[int]]:
    """Group name → its ranks in the world, by their rank in the group, for the groups that still exist."""
    from torch.distributed import get_process_group_ranks

    from ...strategies.process_groups import group_named

    found = {}
    for name in wanted:
        with contextlib.suppress(RuntimeError, ValueError):  # the group was destroyed
            found[name] = get_process_group_ranks(group_named(name))
    return found
