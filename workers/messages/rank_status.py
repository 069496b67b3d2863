"""What rank actor, supervisor and trainer agree on to find out what a trainer does."""

import signal
from typing import Final

#: Makes a trainer write its stacks to its standard error. A real-time signal, which users' code hardly takes.
STACKS_SIGNAL: Final = signal.SIGRTMIN + 9
#: Names the process groups of threads beside the training, and begins those threads' names: the training never waits there.
BACKGROUND: Final = "background"
#: Phases in which a beat is due with every batch; others wait for storage, compilers or peers that start.
QUICK: Final = frozenset({"step", "validation"})
