"""Records a program by torch when its rank is asked to, without a word about it in the program.

Rules that it keeps: torch's profiler sees the operators of its own thread, so a recording of them begins and ends on the main thread, after
a step of an optimizer; nothing raises into the program; a recording ends before the process ends or forks, and at the latest `OVERTIME_S`
after its seconds. Without an order a step costs a look at two lists.

Not by `profile_all_threads` from another thread, as torch's own debug server does: torch frees what it records into while other threads
may be writing to it. Needs torch and the standard library, of Python 3.8 or newer: users' own interpreters run this file, too.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

#: The most steps in one recording: a step may have a hundred thousand operators.
MOST_STEPS = 10
#: Seconds for a step to end before a recording begins.
STEP_S = 90.0
#: Seconds after which a recording ends within a step, so that what it holds stays bounded.
OVERTIME_S = 30.0
#: Seconds between two requests to the main thread to end it, and for all of them.
LOOK_S = 1.0
GIVE_UP_S = 30.0


class _Task:
    """One recording of operators, from the order to its end."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begun, self.ended = threading.Event(), threading.Event()
        self.failed: str | None = None
        self.recording: Any = None
        self.optimizer: Any = None  # whose steps are counted
        self.until = 0.0  # monotonic seconds
        self.steps = 0

    def fail(self, why: str) -> None:
        self.failed = self.failed or why
        self.begun.set()
        self.ended.set()


class StepRecorder:
    """The recordings of one process. `load`: the module `torch_recordings`. `connect`: a connection to the rank's trainer process."""

    def __init__(self, load: Callable[[], Any], connect: Callable[[], Any]) -> None:
        self._load, self._connect = load, connect
        self._pid = 0
        self._forks_watched = False
        self._forget()

    def begin(self) -> None:
        """Carry out the orders that this process gets, on a thread. Once in each process."""
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        self._forget()
        with contextlib.suppress(OSError, RuntimeError):  # the program runs without it
            connection = self._connect()
            connection.settimeout(None)
            threading.Thread(target=self._serve, args=(connection,), name="shardyard recorder", daemon=True).start()

    def after_step(self, optimizer: Any, *_: Any) -> None:
        """Torch calls it after each step of each optimizer. The compiler leaves it out."""
        is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
        if is_compiling is None or is_compiling():
            return
        if self._pid != os.getpid():
            self.begin()
        if self._wanted or self._running:
            try:
                self._at_step(optimizer)
            except Exception as error:  # noqa: BLE001  # a recording that fails is no failure of the program
                self._fail(f"{type(error).__name__}: {error}")

    def _forget(self) -> None:
        self._wanted: list[_Task] = []  # lists, of which each task is taken once, on any thread
        self._running: list[_Task] = []
        self._kept: list[Any] = []

    def _serve(self, connection: Any) -> None:
        """Carry out one order after the other, each a line of JSON, and answer each."""
        with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rb") as orders:
            for line in orders:
                order = json.loads(line)
                failed, steps = None, 0
                try:
                    steps = self._recorded(order)
                except Exception as error:  # noqa: BLE001  # the outermost call of the thread: it is the answer
                    failed = str(error) or type(error).__name__
                answer = {"id": order["id"], "failed": failed, "steps": steps}
                connection.sendall(json.dumps(answer).encode() + b"\n")

    def _recorded(self, order: dict[str, Any]) -> int:
        """Write a recording to the order's path. Returns the number of its steps, 0 if it is not of whole steps."""
        if order["kind"] != "operators":
            recording = self._load().begun(order["kind"], _device())
            time.sleep(order["seconds"])
            recording.end()
            recording.write(order["path"])
            return 0
        task = _Task(order["seconds"])
        self._wanted.append(task)
        if not task.begun.wait(STEP_S):
            with contextlib.suppress(ValueError):  # it has just been taken
                self._wanted.remove(task)
                task.fail(f"no optimizer of torch has ended a step on the main thread within {STEP_S:g} s")
        self._await_end(task)
        if task.failed is not None:
            raise RuntimeError(task.failed)
        task.recording.write(order["path"])
        return task.steps

    def _await_end(self, task: _Task) -> None:
        if task.ended.wait(task.seconds + OVERTIME_S):
            return
        give_up = time.monotonic() + GIVE_UP_S
        while not task.ended.wait(LOOK_S):
            if time.monotonic() > give_up:
                raise RuntimeError("its step has not ended, and the main thread runs no Python code")
            self._kept.append(on_main_thread(self._end))

    def _at_step(self, optimizer: Any) -> None:
        """On the thread that has stepped."""
        if not _may_change() or (self._running and not _on_main_thread()):
            return
        if self._running:
            task = self._running[0]
            task.steps += optimizer is task.optimizer
            if optimizer is task.optimizer and (task.steps >= MOST_STEPS or time.monotonic() >= task.until):
                self._end()
            return
        task = self._wanted.pop()
        if not _on_main_thread():
            task.fail(f"the optimizer steps on the thread {threading.current_thread().name!r}, not on the main thread")
            return
        try:
            self._watch_forks()
            task.recording = self._load().begun("operators", _device())
        except Exception as error:  # noqa: BLE001  # whatever a version of torch raises
            task.fail(str(error) or type(error).__name__)
            return
        atexit.register(self._fail, "its process ended")
        task.optimizer, task.until = optimizer, time.monotonic() + task.seconds
        self._running.append(task)
        task.begun.set()

    def _watch_forks(self) -> None:
        if not self._forks_watched:
            self._forks_watched = True
            os.register_at_fork(before=self._before_fork)

    def _before_fork(self) -> None:
        """A child would go on with the recording, for ever."""
        if self._running and not self._running[0].steps:
            self._fail("the program started a process within the first step; try again")
        else:
            self._end()

    def _fail(self, why: str) -> None:
        if self._running and _on_main_thread():
            self._running[0].failed = why
        self._end()

    def _end(self) -> None:
        """End the recording that runs, on its thread."""
        if not _on_main_thread() or not _may_change():
            return
        try:
            task = self._running.pop()
        except IndexError:
            return
        atexit.unregister(self._fail)
        task.optimizer = None
        try:
            task.recording.end()
        except Exception as error:  # noqa: BLE001  # whatever a version of torch raises
            task.failed = task.failed or f"torch could not end it: {error}"
        task.ended.set()


def on_main_thread(call: Callable[[], None]) -> Any:
    """Have the main thread call it between two instructions of Python, without a signal. Keep what is returned."""

    def pending(_: int | None) -> int:
        call()
        return 0

    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(pending)
    ctypes.pythonapi.Py_AddPendingCall(callback, None)
    return callback


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _may_change() -> bool:
    """Whether a profiler may begin or end here: not within a backward pass, at whose end torch forgets it, nor a captured CUDA graph."""
    in_backward = getattr(torch._C, "_current_graph_task_id", None)
    if in_backward is not None and in_backward() != -1:
        return False
    return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _device() -> str:
    return "cuda" if torch.cuda.is_initialized() else "cpu"
