"""`python ray_start.py PARENT start …`: Ray's command, as a process that ends with its parent. Runs in the Python of the user's program.

Ray's daemons end with this process, because `ray start --block` starts them with PR_SET_PDEATHSIG. It leads a process group of its own, so
that SIGTERM to the program does not end the Ray node before the program. Needs only Ray and the standard library, of Python 3.8 or newer.
"""

import ctypes
import os
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG = 1
#: The name under which Ray imports this script for `adjust`.
NAME = "shardyard_ray_start"
#: The variable that names a function for Ray to call before it starts anything.
HOOK = "RAY_START_HOOK"


def adjust(parameters: Any, _: bool) -> None:
    """No server for Ray clients, and a free port for the agent: another Ray on this machine may have the usual ones."""
    del os.environ[HOOK]
    parameters.ray_client_server_port = None
    parameters.dashboard_agent_listen_port = 0


def main(parent: int) -> None:
    """Run the command in `sys.argv`. `parent`: the process that has started this one."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    os.setpgid(0, 0)
    sys.modules[NAME] = sys.modules["__main__"]
    os.environ[HOOK] = f"{NAME}.adjust"
    from ray.scripts.scripts import main as command

    command()


if __name__ == "__main__":
    del sys.path[0]  # this folder, whose modules are not the program's
    main(int(sys.argv.pop(1)))
