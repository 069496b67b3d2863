"""What a user orders beside a rank's training, each once: a profile (`profiler.py`) or a command (`command_runner.py`).

Also the stacks of a trainer that does not answer, which the hang watchdog asks for.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from ..messages.exec_request import Exec
from ..messages.profile_request import Profile
from ..program.program import ENTRY
from . import host
from .command_runner import CommandRunner, Place
from .profiler import Profiler, Target, stacks_from_outside
from .trainer_events import TrainerEvents
from .trainer_process import TrainerProcess

#: Seconds for the stacks of a trainer that does not answer.
STACKS_S: Final = 8.0


class RankOrders:
    """The orders of one rank, over all its trainers."""

    def __init__(self, events: TrainerEvents, device: str, entry: str, env: Mapping[str, str]) -> None:
        """`env`: variables that the job adds to its trainers' environment."""
        self._events, self._device, self._entry, self._env = events, device, entry, env
        self._profiler, self._commands = Profiler(), CommandRunner(events.logs)

    async def act(
        self, kind: Literal["profile", "exec"], order: dict[str, Any], trainer: TrainerProcess | None
    ) -> dict[str, Any] | None:
        """Carry out an order beside `trainer`. Returns how it ended.

        None: it has not begun, and there is no trainer for it now. What has ended is known also after the trainer's end.
        """
        target = self._target(trainer)
        if kind == "profile":
            taken = await self._profiler.profile(Profile.from_json(order), target)
            return None if taken is None else taken.to_json()
        place = None
        if trainer is not None and target is not None:
            env = host.trainer_environment(self._device, self._entry, self._env)
            place = Place(target.pid, target.program, target.mask, trainer.gone.is_set, env, host.address())
        ended = await self._commands.run(Exec.from_json(order), place)
        return None if ended is None else replace(ended, last=self._events.spool.last).to_json()

    async def stacks(self, trainer: TrainerProcess | None) -> str:
        """The stacks of `trainer`, or of the program that it runs, as py-spy reads them; empty if it cannot."""
        target = self._target(trainer)
        return "" if target is None else await asyncio.to_thread(stacks_from_outside, target, STACKS_S)

    def _target(self, trainer: TrainerProcess | None) -> Target | None:
        """What of the rank is profiled; None while it has no trainer."""
        if trainer is None or trainer.pid is None or trainer.gone.is_set():
            return None
        mask, record = self._events.mask, trainer.recordings.record
        return Target(trainer.pid, self._entry == ENTRY, trainer.examine, mask, record)
