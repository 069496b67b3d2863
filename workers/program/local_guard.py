"""`python local_guard.py`: leads the process group of a local run, and kills the group when the process that started it has died.

Its standard input is a pipe from that process, which closes when it dies, however it dies. Needs only the standard library.
"""

import os
import signal
import sys

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):  # which are for the ranks
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)
