"""The requests of all workers to a parameter server, in the order of their arrival, and the ends of their connections.

gloo can wait for a message of any rank, but such a wait does not notice that a rank is gone. So a thread per worker waits for its requests,
as the rank's own: when the worker's process ends, the kernel closes its connection, and that wait fails while all others go on. A worker
ends its thread by its last request.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Final

import torch.distributed as dist

from ..telemetry.current import now, wait_on
from .stale_messages import REQUEST, Request, empty_request

#: Seconds for which a server waits for any worker's next request, as long as a collective does by default.
WAIT_S: Final = 600.0
#: For a thread's own wait, which only the worker ends: a time-out of gloo's would close the connections to all workers.
_NEVER: Final = timedelta(days=365)


@dataclass(frozen=True)
class Gone:
    """`worker` is gone: its connection has ended, of which `why` is gloo's message, or unless `closed` it was given up."""

    worker: int
    why: str
    closed: bool = True


class Inbox:
    """The requests of `workers`, ranks of `group`. Its threads start with the first `take`. Any thread may give up a worker."""

    def __init__(self, workers: Sequence[int], group: dist.ProcessGroup) -> None:
        self._workers, self._group = workers, group
        self._arrived: SimpleQueue[Request | Gone] = SimpleQueue()
        self._threads: dict[int, threading.Thread] = {}  # by worker
        self._given_up: set[int] = set()

    def take(self) -> Request | Gone:
        """The next request, or end of a connection. Raises TimeoutError after `WAIT_S`, in the words of gloo's own."""
        if not self._threads:
            self._start()
        since = now()
        try:
            return wait_on(lambda: self._arrived.get(timeout=WAIT_S), "receive", self._group, since)
        except Empty:
            raise TimeoutError(
                f"gloo timed out: no worker has sent a request to this parameter server for {WAIT_S:.0f} s"
            ) from None

    def give_up(self, worker: int) -> None:
        """Report that the worker is gone. Its connection may stay open."""
        self._given_up.add(worker)
        self._arrived.put(Gone(worker, "it was given up", closed=False))

    def join(self) -> None:
        """Wait until the threads have ended. Call it when every worker has sent its last request, or is gone.

        The thread of a worker that was given up ends with the connection, or with the process.
        """
        for worker, thread in self._threads.items():
            if worker not in self._given_up:
                thread.join(WAIT_S)

    def _start(self) -> None:
        for worker in self._workers:
            # Named as a thread for which the hang watchdog does not look: the server may compute meanwhile.
            name = f"background requests of worker {worker}"
            thread = threading.Thread(target=self._receive, args=(worker,), name=name, daemon=True)
            thread.start()
            self._threads[worker] = thread

    def _receive(self, worker: int) -> None:
        """Receive the worker's requests until its last one, or the end of its connection."""
        while True:
            numbers = empty_request()
            try:
                work = dist.irecv(numbers, group=self._group, tag=REQUEST, group_src=worker)
                assert work is not None, "this rank is not in the group"
                work.wait(_NEVER)
            except RuntimeError as error:
                self._arrived.put(Gone(worker, str(error)))
                return
            request = Request.of(numbers)
            self._arrived.put(request)
            if request.ends:
                return
