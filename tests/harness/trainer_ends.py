"""The actor's side of a trainer process. Its other ends are the test's, in place of a fork server and a trainer."""

import contextlib
import dataclasses
import io
import os
import socket
from collections.abc import Iterator

from shardyard.workers.rank.trainer_process import TrainerProcess


@dataclasses.dataclass(frozen=True)
class TrainerEnds:
    """What a fork server and the trainer have; a test may close them before their end."""

    fork_server: socket.socket
    control: socket.socket
    stdout: io.FileIO
    stderr: io.FileIO


@contextlib.contextmanager
def trainer_process() -> Iterator[tuple[TrainerProcess, TrainerEnds]]:
    """A trainer that is still to be forked (`pid` is None). All descriptors are closed at the end."""
    (fork, fork_server), (control, trainers), (notifier, notified) = (socket.socketpair() for _ in range(3))
    (stdout, out), (stderr, err) = os.pipe(), os.pipe()
    for own in (fork, control, notifier):
        own.setblocking(False)
    process = TrainerProcess(fork, control, stdout, stderr, notifier)
    ends = TrainerEnds(fork_server, trainers, io.FileIO(out, "w"), io.FileIO(err, "w"))
    with fork_server, trainers, notified, ends.stdout, ends.stderr:
        try:
            yield process, ends
        finally:
            if process.notifier.fileno() != -1:  # who follows a trainer to its end closes it
                process.close()
