"""Reads a trainer's messages, log lines and exit status into the rank's event buffer.

Steps are never dropped: a full buffer makes the trainer wait. Log lines are (counted, with a notice).
"""

import asyncio
import json
import os
from asyncio import create_task
from collections.abc import Iterable
from typing import Any, Final

from ..messages.event import to_json
from ..messages.event_buffer import Event, Spool
from ..messages.rank_event import EXITED, LAST_LINE, ExitEvent, FailedEvent, RayWorkersFailedEvent
from .last_line import LastLine
from .log_pipe import GATHER_S, Lines, Logs
from .process_tree import kill_session
from .secret_mask import SecretMask, secrets_of
from .trainer_process import TrainerProcess

BUFFER_BYTES: Final = 8 << 20
#: Once steps happen, an event may be this old when it leaves. It waits for others here, and next to not at all in its supervisor: all
#: ranks end a step together, so the whole way, journal and database included, is gone once for the events of this time.
LINGER_S: Final = 0.65
#: After a trainer's end, seconds to read its messages, which end with it: on a node that stands still they come late.
#: With `REST_S` less than what a supervisor waits for a trainer's end, after which it gives up the rank's snapshots (`TRAINER_END_S`).
MESSAGES_S: Final = 8.0
#: Then its log is read for at most this long (a grandchild may hold its pipes open).
REST_S: Final = 0.5


class TrainerEvents:
    """The events of one rank, over all its trainers."""

    def __init__(self) -> None:
        self.spool = Spool(BUFFER_BYTES)
        self.logs = Logs(-1, self.spool)
        self._of_node = secrets_of(os.environ)  # trainers and commands inherit them, such as the keys of the storage
        self.mask = SecretMask(self._of_node)
        self.last_line = LastLine()
        self.steps = False  # whether the present trainer has finished one

    def begin(self, rank: int) -> None:
        """Prepare for a new trainer of this rank."""
        self.logs.rank, self.steps = rank, False
        self.last_line = LastLine()

    def hide(self, secrets: Iterable[str], trainer: TrainerProcess) -> None:
        """Replace these values, too, in all that the trainer prints and reports from now on."""
        self.mask = SecretMask([*self._of_node, *secrets])
        self._mask_logs(trainer)

    def _mask_logs(self, trainer: TrainerProcess) -> None:
        for lines in trainer.logs.values():
            lines.mask = self.mask

    def warn(self, text: str) -> None:
        """Add a line to the rank's log."""
        self.logs.add("stderr", [text.encode()])

    async def pull(self, after: int, wait_s: float, trainer: TrainerProcess | None) -> list[Event]:
        """Events after `after`, oldest first, waiting up to `wait_s` for one; acknowledges those up to `after`."""
        self.spool.take(after)
        await self.spool.wait(after, wait_s, self._linger_s(trainer))
        return self.spool.take(after)

    def _linger_s(self, trainer: TrainerProcess | None) -> float:
        if not self.steps or trainer is None:
            return 0.0
        return LINGER_S - GATHER_S if trainer.messages.quick else LINGER_S

    async def follow(self, trainer: TrainerProcess, generation: int) -> None:
        """Read all that a trainer writes until it has ended. The last event is its `exit`."""
        self._mask_logs(trainer)
        messages = create_task(self.read_messages(trainer))
        readers = [messages, *(create_task(self._read_log(trainer, stream)) for stream in trainer.logs)]
        status, unforked = await self._exit_status(trainer)
        if status is None and trainer.pid is not None:
            kill_session(trainer.pid)  # the fork server, which does that else, is gone
        trainer.gone.set()
        await asyncio.wait([messages], timeout=MESSAGES_S)
        _, late = await asyncio.wait(readers, timeout=REST_S)
        for reader in late:
            reader.cancel()
        if trainer.replication:
            trainer.replication.cancel()
            readers.append(trainer.replication)
        await asyncio.gather(*readers, return_exceptions=True)
        trainer.close()
        self.logs.report_dropped()
        exited = ExitEvent(status=status, generation=generation, unforked=unforked, ordered=trainer.end_ordered)
        self.spool.add(exited.kind, to_json(exited), urgent=True)

    async def _exit_status(self, trainer: TrainerProcess) -> tuple[int | None, str | None]:
        """The trainer's exit code, or minus a signal's number, from the fork server; and why that could not fork it.

        None and None: the server is gone, and with it the trainer, but not what that has started.
        """
        unforked = None
        while (lines := await trainer.replies.read()) is not None:
            for line in lines:
                reply = json.loads(line)
                trainer.pid = reply.get("pid", trainer.pid)
                unforked = reply.get("failed", unforked)
                if "exit" in reply:
                    return int(reply["exit"]), None
        return None, unforked

    async def read_messages(self, trainer: TrainerProcess) -> None:
        """Read the trainer's messages until the end of its socket. Waits while the spool is full."""
        while True:
            if not trainer.gone.is_set() and not await self.spool.room(GATHER_S):
                continue
            lines = await trainer.messages.read()
            if lines is None:
                return
            for line in lines:
                self._add(trainer, json.loads(line))
            await self._gather(trainer, trainer.messages)

    def _add(self, trainer: TrainerProcess, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "status":
            trainer.take_status(message["data"])
            return
        if kind == "profiled":
            trainer.recordings.answer(message["data"])
            return
        if kind == FailedEvent.kind:
            if message["data"]["type"] == EXITED:
                message["data"]["message"] += self._quoted(trainer)
            message["data"] |= {key: self.mask.hide_in(message["data"][key]) for key in ("message", "traceback")}
        if kind == RayWorkersFailedEvent.kind:
            text = json.dumps(message["data"], ensure_ascii=False).encode(errors="surrogatepass")
            message["data"] = json.loads(self.mask.hide_in_json(text).decode(errors="surrogatepass"))
        first_step = kind == "step" and not self.steps
        self.steps = self.steps or first_step
        if kind == "step" and (size := trainer.memory.due()) is not None:
            message["data"]["resident"] = size
        self.spool.add(
            kind, message["data"], message["ts"], urgent=first_step or kind in ("failed", "done", "trace_finished")
        )

    async def _read_log(self, trainer: TrainerProcess, stream: str) -> None:
        source = trainer.logs[stream]
        while (lines := await source.read()) is not None:
            self._log(stream, lines)
            await self._gather(trainer, source)

    def _log(self, stream: str, lines: list[bytes]) -> None:
        self.logs.add(stream, lines)
        if stream == "stderr":
            self.last_line.see(lines)

    def _quoted(self, trainer: TrainerProcess) -> str:
        """The last line that the program has written to standard error, with its introduction; empty if there is none.

        The program has ended, so all that it has written is read or in the pipe.
        """
        source = trainer.logs["stderr"]
        self._log("stderr", source.read_now())
        self.last_line.see([source.rest])
        return f"{LAST_LINE}{self.last_line.text}" if self.last_line.text else ""

    async def _gather(self, trainer: TrainerProcess, source: Lines) -> None:
        if self.steps and not trainer.gone.is_set():
            await source.gather()
