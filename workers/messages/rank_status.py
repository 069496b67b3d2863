"""Constants by which the rank actor and the supervisor examine a trainer."""

import signal
from typing import Final

#: Makes a trainer write its stacks to its standard error. A real-time signal, which users' code rarely uses.
STACKS_SIGNAL: Final = signal.SIGRTMIN + 9
#: Prefix of the process groups and names of background threads. The training thread never waits in these groups.
BACKGROUND: Final = "background"
#: Phases in which every batch sends a heartbeat. Other phases wait for storage, compilers or peers that start.
QUICK: Final = frozenset({"step", "validation"})
