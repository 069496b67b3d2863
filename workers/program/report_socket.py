"""The socket to which the processes of a program report. Needs only the standard library: programs use it, too."""

from collections.abc import Mapping
from typing import Final

#: Variable that names it. Where one process starts those of all ranks of its node, it has the names of all, by local rank.
SOCKET: Final = "SHARDYARD_PROGRAM_SOCKET"
#: Variable with a name of the run, where no job runs the program (`local_ranks.py`): its numbers are printed, and its files stay here.
LOCAL: Final = "SHARDYARD_LOCAL"
#: Variable with the role of a process of a Ray job; and that of its Ray node's processes.
RAY_ROLE: Final = "SHARDYARD_RAY"
RAY_NODE: Final = "node"


def socket_name(environment: Mapping[str, str]) -> str | None:
    """The socket to which a process of a program reports: that of its rank. None outside a job."""
    names = environment.get(SOCKET, "").split(",")
    local = environment.get("LOCAL_RANK", "0")
    return names[int(local) if local.isdecimal() and int(local) < len(names) else 0] or None
