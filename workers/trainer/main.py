"""The trainer: the process that trains one rank. It can be killed at any line, and ends itself when its actor is gone.

It exchanges lines of JSON on its control socket. In: the orders `{"run", "coords", "secrets"}`, then `{"stop": "stop"}` to end after a
step, `{"stop": "save"}` also to save it (`stop_request.py`), `{"examine": true}` to report its status (`heartbeat.py`), `{"slow": {"by_s",
"duration_s"}}` to be slow on purpose (`slowdown.py`; or among the orders), `{"trace": {"id", "steps"}}` to trace some steps
(`step_trace.py`), `{"profile": {"id", "kind", "seconds", "path"}}` to record some (`profiling.py`), `{"lost": rank}` to go on without a
rank (`lost_ranks.py`), and `{"release": true}` once every rank is done. Out: `{"kind", "data", "ts"}`, the last of them `done` or `failed`.

After `done` it waits to be released, because other ranks may still need rank 0's store to leave their groups. Then it
exits without any clean-up: destroying process groups may wait for peers that are gone, and the kernel frees everything.
"""

import contextlib
import importlib
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

from ..messages.event import sanitize, to_json
from ..messages.other_version import reading_orders
from ..messages.rank_event import DoneEvent, FailedEvent, StoppedEvent, facts_of
from ..messages.rendezvous import RankAssignment
from ..messages.secret import Secret
from ..messages.stop_request import StopRequest
from ..messages.trace_request import Trace
from . import secrets
from .device_context import begin_context
from .event_outbox import EmitEvent
from .heartbeat import listen_for_signals
from .instruments import Instruments
from .pending_profile import RecordingOrder

#: What it returns is kept until all ranks are done.
Train = Callable[[Any, RankAssignment, EmitEvent, Instruments], object]

#: Characters of a message, and of a traceback.
MAX_TEXT: Final = 64 << 10


class Link:
    """The trainer's end of the control socket."""

    def __init__(self, control: socket.socket) -> None:
        control.settimeout(None)
        self._control = control
        self._lines = control.makefile("rb")
        self._lock = threading.Lock()
        self.stop_request = StopRequest.NO
        self.released = threading.Event()

    def orders(self) -> dict[str, Any]:
        """Wait for the orders and return them. Ends the process if the actor is gone, or wants it to end before it has begun."""
        for line in self._lines:
            orders: dict[str, Any] = json.loads(line)
            if "run" in orders:
                return orders
            if orders.get("stop"):
                self.send(StoppedEvent.kind, to_json(StoppedEvent(step=0)))
                self.send(DoneEvent.kind, {})
                break
        os._exit(0)

    def send(self, kind: str, data: dict[str, Any]) -> None:
        """Send one event. Waits while the actor's spool is full."""
        line = json.dumps({"kind": kind, "data": sanitize(data), "ts": time.time()}, separators=(",", ":"))
        try:
            with self._lock:
                self._control.sendall(line.encode() + b"\n")
        except OSError:
            os._exit(1)  # the actor is gone

    def listen(self, instruments: Instruments) -> None:
        """Receive the actor's messages in a thread, which ends the process when the actor is gone."""
        threading.Thread(target=self._receive, args=(instruments,), name="control", daemon=True).start()

    def _receive(self, instruments: Instruments) -> None:
        with contextlib.suppress(OSError):
            for line in self._lines:
                message = json.loads(line)
                if message.get("examine"):
                    self.send("status", instruments.heartbeat.status())
                if slow := message.get("slow"):
                    instruments.slowdown.begin(**slow)
                if trace := message.get("trace"):
                    instruments.pending_trace.order(Trace.from_json(trace))
                if recording := message.get("profile"):
                    instruments.pending_profile.order(RecordingOrder.from_json(recording))
                if (lost := message.get("lost")) is not None:
                    instruments.lost_ranks.add(lost)
                if message.get("stop"):
                    self.stop_request = StopRequest(message["stop"])
                if message.get("release"):
                    self.stop_request = self.stop_request or StopRequest.STOP
                    self.released.set()
        os._exit(1)


def main(control: socket.socket, given: dict[str, Any], entry: str = "") -> int:
    """Train one rank by the orders on `control`; returns the exit status.

    `given`: the descriptors among its assignment: `segments`, `notifier`, and rank 0's store socket as `master_fd`.
    """
    listen_for_signals()
    begin_context(entry, os.environ)
    link = Link(control)
    instruments = Instruments(stop_request=lambda: link.stop_request)
    orders = link.orders()
    secrets.place(Secret.from_json(one) for one in orders.pop("secrets", ()))
    if slow := orders.get("slow"):
        instruments.slowdown.begin(**slow)
    link.listen(instruments)
    try:
        with reading_orders():
            coords, run = RankAssignment.from_json(orders["coords"] | given), _run(orders["run"], entry)
        kept = _train_function(entry)(run, coords, link.send, instruments)
    except BaseException as error:  # noqa: BLE001  # the outermost call of the process: reported below
        failed = _failed(error, instruments.heartbeat.step)
        link.send(failed.kind, to_json(failed))
        return 1
    link.send(DoneEvent.kind, {})
    link.released.wait()
    del kept
    return 0


def _failed(error: BaseException, step: int) -> FailedEvent:
    """The event for an exception. One that has an event of its own, `failed`, was in the log before."""
    own = getattr(error, "failed", None)
    if isinstance(own, FailedEvent):
        return own
    text = "".join(traceback.format_exception(error))
    with contextlib.suppress(Exception):  # the user's code may have replaced or closed it
        sys.stderr.write(text)
        sys.stderr.flush()
    return FailedEvent(
        type=type(error).__name__,
        message=_end_of(_text_of(error)),
        traceback=_end_of(text),
        step=step,
        facts=facts_of(error),
    )


def _text_of(error: BaseException) -> str:
    """Its message; of a class whose `__str__` fails what Python's own report says."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # the user's own code
        return "<exception str() failed>"


def _end_of(text: str) -> str:
    """The last lines, whole, so that the actor recognises secrets in them."""
    if len(text) <= MAX_TEXT:
        return text
    return text[-MAX_TEXT:].partition("\n")[2] or f"(a line of {len(text):,} characters)"


def _train_function(entry: str) -> Train:
    """The function named `module:function`; by default this package's own loop, imported only now: it needs torch."""
    module, _, name = (entry or f"{__package__}.assemble:train").partition(":")
    function: Train = getattr(importlib.import_module(module), name)
    return function


def _run(run: dict[str, Any], entry: str) -> Any:
    """A `Run` for our own loop; another entry gets the JSON unchanged."""
    if entry:
        return run
    from ..spec import Run

    return Run.model_validate(run)
