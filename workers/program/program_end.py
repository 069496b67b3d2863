"""How a rank ends when its program has failed: by the same signal, or with the exception that ended it."""

import contextlib
import faulthandler
import os
import signal
from typing import Final, NoReturn

from ..messages.rank_event import EXITED, FailedEvent
from ..trainer.secrets import leave_no_dump
from .preparation import ProgramFailed

#: What a shell adds to the number of a signal that ended a program.
OF_SHELL: Final = 128
#: Signals by which programs are killed, or crash. Other statuses above `OF_SHELL` are a program's own, such as 130 after Ctrl-C.
_DEADLY: Final = tuple(getattr(signal, f"SIG{name}") for name in ("ABRT", "BUS", "FPE", "ILL", "KILL", "SEGV", "TERM"))


def end_like(code: int, failure: FailedEvent | None) -> NoReturn:
    """End as the program did, whose exit status, or minus a signal's number, is `code`. Raises ProgramFailed.

    `failure`: the exception that ended it. Without one, a shell's status for a signal is that signal: its repair does not depend on
    whether the command has a shell around it.
    """
    if failure is None and code - OF_SHELL in _DEADLY:
        code = OF_SHELL - code
    if code < 0:
        faulthandler.disable()  # the stacks of this process are of no use
        leave_no_dump()
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        signal.pause()
    exited = FailedEvent(type=EXITED, message=f"the program exited with status {code}", traceback="")
    raise ProgramFailed(failure or exited)
