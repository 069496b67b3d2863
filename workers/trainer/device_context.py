"""Makes this process' CUDA context in the background, while the trainer waits for its orders. Imports no torch on a CPU.

A context takes from a third of a second to several seconds. All ranks reserve before any gets its orders, so that time is otherwise
spent after the last of them. The fork server cannot make it for a trainer: a process that has a context must not fork.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Final

from ..messages.rank_status import BACKGROUND

THREAD: Final = f"{BACKGROUND} context"


def begin_context(
    entry: str, env: Mapping[str, str], make: Callable[[], None] | None = None
) -> threading.Thread | None:
    """Begin to make the context, if the rank's environment has devices; an `entry` of the user's own makes its own.

    An error is left to the training, which meets it again and reports it.
    """
    if entry or not env.get("CUDA_VISIBLE_DEVICES"):
        return None
    thread = threading.Thread(target=_quietly, args=(make or _make,), name=THREAD, daemon=True)
    thread.start()
    return thread


def _quietly(make: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        make()


def _make() -> None:
    """The context of device 0, which is the rank's only one. Nothing is allocated; libraries read their settings later."""
    import torch

    torch.cuda.synchronize(0)
