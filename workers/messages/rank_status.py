"""Constants by which the rank actor and the supervisor examine a trainer."""

import signal
from typing import Final

#: Makes a trainer write its stacks to its standard error. A real-time signal, which users' code rarely uses.
STACKS_SIGNAL: Final = signal.SIGRTMIN + 9
#: Prefix of the process groups and names of background threads. The training thread never waits in these groups.
BACKGROUND: Final = "background"
#: The phase of a rank that runs a program of the user's own. Its age is that of the newest collective that began or ended.
PROGRAM: Final = "program"
#: Phases in which every batch sends a heartbeat, or every collective is one. Others wait for storage, copies, compilers or starting peers.
QUICK: Final = frozenset({"step", "validation", PROGRAM})
