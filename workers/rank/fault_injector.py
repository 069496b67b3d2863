"""Applies injected faults to this rank. Idempotent by fault id. Needs neither Ray nor torch."""

import asyncio
import os
import signal
from functools import partial
from typing import Any, Protocol

from ..checkpoint.retention import complete
from ..messages.fault_request import Fault
from ..storage.open_folder import folder_at
from ..trainer.slowdown import Slowdown
from .idempotent_tasks import IdempotentTasks


class Target(Protocol):
    """What the injector needs of the trainer's process."""

    pid: int | None
    gone: asyncio.Event

    def kill(self, number: int = signal.SIGKILL) -> None: ...

    async def send(self, message: dict[str, Any]) -> None: ...


class FaultInjector:
    """Applies the faults of one rank. `done`: fault id → what was done."""

    def __init__(self) -> None:
        self.done: dict[str, str] = {}
        self.slowness = Slowdown()
        #: They take time: a second one at the same time would flip the bit back.
        self._corruptions = IdempotentTasks[str]()

    async def inject(self, fault: Fault, trainer: Target | None, checkpoints: str | None) -> str | None:
        """Apply a fault; returns what was done, None if there is no trainer for it now."""
        if fault.id in self.done:
            return self.done[fault.id]
        if fault.kind == "kill-actor":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.kind == "corrupt-checkpoint":
            done = await self._corruptions.run(fault.id, partial(asyncio.to_thread, corrupt, checkpoints or ""))
            assert done is not None
            return self._did(fault, done)
        if trainer is None or trainer.pid is None or trainer.gone.is_set():
            return None
        if fault.kind == "slow-rank":
            return self._did(fault, await self._slow(fault, trainer))
        number = signal.SIGSTOP if fault.kind == "hang-rank" else signal.SIGKILL
        trainer.kill(number)
        return self._did(fault, f"{number.name} to the trainer, process {trainer.pid}")

    def inherited(self) -> dict[str, Any]:
        """What a new trainer must continue: the slowdown of a slow rank."""
        left = self.slowness.to_json()
        return {"slow": left} if left["duration_s"] > 0 else {}

    async def _slow(self, fault: Fault, trainer: Target) -> str:
        delay_ms, duration_s = fault.delay_ms or 0.0, fault.duration_s or 0.0
        self.slowness.begin(delay_ms / 1000, duration_s)
        await trainer.send(self.inherited())
        return f"each step of process {trainer.pid} takes {delay_ms:g} ms longer for {duration_s:g} s"

    def _did(self, fault: Fault, what: str) -> str:
        self.done[fault.id] = what
        return what


def corrupt(checkpoints: str) -> str:
    """Flip a bit in the middle of the largest file of the newest complete checkpoint at this address; returns where."""
    found = complete(folder_at(checkpoints))
    if not found:
        return "there was no checkpoint to corrupt"
    sizes = found[0].files()
    name = max(sizes, key=lambda name: sizes[name])
    content = bytearray(found[0].read(name))
    middle = len(content) // 2
    content[middle] ^= 1
    found[0].write(name, memoryview(content))
    return f"a bit of byte {middle} of {found[0]}/{name} was flipped"
