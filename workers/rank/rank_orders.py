"""What a user orders beside a rank's training, each once: a profile (`profiler.py`) or a command (`command_runner.py`)."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from ..messages.exec_request import Exec
from ..messages.profile_request import Profile
from ..program.program import ENTRY
from . import host
from .command_runner import CommandRunner, Place
from .profiler import Profiler, Target
from .trainer_events import TrainerEvents
from .trainer_process import TrainerProcess


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
        place, target = None, None
        if trainer is not None and trainer.pid is not None and not trainer.gone.is_set():
            mask, runs_program = self._events.mask, self._entry == ENTRY
            env = host.trainer_environment(self._device, self._env)
            place = Place(trainer.pid, runs_program, mask, trainer.gone.is_set, env, host.address())
            target = Target(trainer.pid, runs_program, trainer.examine, mask, trainer.recordings.record)
        if kind == "exec":
            ended = await self._commands.run(Exec.from_json(order), place)
            return None if ended is None else replace(ended, last=self._events.spool.last, at=time.time()).to_json()
        taken = await self._profiler.profile(Profile.from_json(order), target)
        return None if taken is None else taken.to_json()
