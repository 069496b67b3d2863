"""A process that ends with the one that started it, however that one dies (Linux)."""

import ctypes
import os
import signal
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def die_with_parent(parent: int) -> None:
    """prctl(PR_SET_PDEATHSIG): the kernel kills this process when the one that started it dies, however it dies."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
