"""The rank actor: it holds one rank's device and assignment, owns its trainer, and always answers.

Rules that it keeps: it imports no torch; the trainer ends with it; an event leaves its buffer only when the supervisor has acknowledged it;
when no supervisor has called it for a lease's length, it kills its trainer and exits; it has no rank until `reserve` assigns one, and a
spare waits for that call.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ..forkserver.protocol import Request
from ..messages.event_buffer import Event
from ..messages.fault_request import Fault
from ..messages.nccl_report import RasReport
from ..messages.profile_request import RECORDED
from ..messages.rendezvous import Reservation, SnapshotHandle
from . import host, nccl_ras
from .fault_injector import FaultInjector
from .lease import Lease
from .rank_orders import RankOrders
from .snapshot_service import SnapshotService
from .system_sampler import sampler_of
from .trainer_events import TrainerEvents
from .trainer_process import TrainerProcess, fork_trainer


class Rank(SnapshotService):
    """One rank of a gang, or a spare; a Ray actor."""

    def __init__(
        self, device: str, entry: str = "", lease_s: float = 30.0, env: Mapping[str, str] | None = None
    ) -> None:
        """`env`: variables that the job adds to its trainers' environment."""
        self.device = device
        self.env = env or {}
        self.entry = entry
        super().__init__(Lease(lease_s, self._drop_trainer))
        self.events = TrainerEvents()
        self.faults = FaultInjector()
        self.orders = RankOrders(self.events, device, entry, self.env)
        self.trainer: TrainerProcess | None = None
        self.started = 0  # the generation of the run that its trainer has received
        self._tasks: set[asyncio.Task[None]] = set()
        self._reserving = asyncio.Lock()

    async def stand_by(self) -> str:
        """Wait for a rank, with the node's fork server warm. Returns the node."""
        self.lease.renew()
        self.lease.begin()
        await asyncio.to_thread(host.warm_fork_server)
        return host.node_id()

    async def reserve(self, rank: int, generation: int = 1, handle: SnapshotHandle | None = None) -> Reservation:
        """Take this rank: fork a trainer, which then waits for its run, and for rank 0 open the port of the gang's store.

        The new actor of a rank whose actor died takes over the snapshot memory that `handle` names.
        """
        self.lease.renew()
        async with self._reserving:  # a supervisor that died may have called just before its successor
            self.lease.begin()
            self.events.begin(rank)
            self._drop_trainer()
            self.store.reserve(rank, generation, handle)
            address = host.address()
            listener = host.listen(address) if rank == 0 else None
            segments = self.store.own
            env = host.trainer_environment(self.device, self.entry, self.env)
            request = Request(env, str(Path.cwd()), self.entry, len(segments))
            more = [*segments, *([listener.fileno()] if listener else [])]
            try:
                self.trainer = await asyncio.to_thread(fork_trainer, host.fork_root(), host.raylet(), request, more)
                port = listener.getsockname()[1] if listener else None
            finally:
                if listener:
                    listener.close()
            self._spawn(self.events.follow(self.trainer, generation))
            place = (host.node_id(), address, port, host.network_interface(address))
            return Reservation(rank, *place, generation, os.getpid(), tuple(segments))

    async def start(
        self,
        run: dict[str, Any],
        coords: dict[str, Any],
        holder: Any = None,
        replicas: Collection[int] = (),
        secrets: Sequence[dict[str, Any]] | None = (),
    ) -> bool:
        """Send the waiting trainer its run. No effect if it was sent before. Returns whether it is sent, or on its way.

        Raises `Stale` if the run is of an earlier generation: its supervisor has a successor, whose trainer waits here.
        `holder`: the actor that holds replicas of this rank's snapshots; `replicas`: the ranks whose replicas this actor holds.
        `secrets`: the job's, as `Secret.to_json`. None: it has some, which the caller lacks; then the trainer gets no run yet.
        """
        self.store.refuse_earlier(self.store.rank, coords["generation"])
        self.lease.renew()
        assert self.trainer is not None, "start was called before reserve"
        if self.started == coords["generation"]:
            return True
        if secrets is None:
            return False
        self.started = coords["generation"]
        if self.trainer.gone.is_set():  # asked to end before it began
            return True
        if holder is None:
            self.store.drop_replicas_except(replicas)
        else:
            copying = self.store.replicate(
                self.trainer.notifier, holder.write_replica.remote, replicas, self.events.warn
            )
            self.trainer.replication = self._spawn(copying)
        coords = coords | {"replicas": self.store.replicas.sizes()}
        self.events.hide([secret["value"] for secret in secrets], self.trainer)
        # A trainer that is still to be forked reads it later: the supervisor does not wait for that.
        self.trainer.post({"run": run, "coords": coords, "secrets": list(secrets)} | self.faults.inherited())
        if every_s := coords.get("sample_s"):
            gpus = host.gpus() if self.device == "cuda" else []
            sampler = sampler_of(self.trainer, gpus, run, samples_node=coords["local_rank"] == 0)
            self._spawn(sampler.follow(self.trainer, self.events.spool, every_s))
        return True

    async def pull(self, after: int, wait_s: float) -> list[Event]:
        """Events after `after`, oldest first, waiting up to `wait_s` for one; acknowledges those up to `after`. Each has the time `now`."""
        self.lease.renew()
        events = await self.events.pull(after, wait_s, self.trainer)
        self.lease.renew()
        now = time.time()
        return [{**event, "now": now} for event in events]

    async def heartbeat(self) -> None:
        """Renew the lease, for a supervisor that has no room for events."""
        self.lease.renew()

    async def examine(self) -> dict[str, Any]:
        """What the trainer does: its process's `state`, and its own status if it answers."""
        self.lease.renew()
        if self.trainer is None:
            return {}
        if self.trainer.forking:
            return {"phase": "fork", "idle_s": time.monotonic() - self.trainer.requested_at}
        state = self.trainer.state
        status = {} if state in (None, "T", "t") else await self.trainer.examine()
        return {"state": state} | status | host.nccl_process(self.device, self.trainer.pid)

    async def ask_nccl(self) -> RasReport | None:
        """What NCCL's RAS reports of this trainer's job; None without an answer about it (`nccl_ras.py`)."""
        self.lease.renew()
        if self.trainer is None or self.trainer.pid is None:
            return None
        return await nccl_ras.ask({**os.environ, **self.env}, host.addresses(), self.trainer.pid)

    async def read_stacks(self) -> str:
        """The stacks of a trainer that did not answer. Empty if they cannot be read: it then writes them to its log, where it can."""
        self.lease.renew()
        trainer = self.trainer
        found = await self.orders.stacks(trainer)
        if not found and trainer:
            trainer.write_stacks()
        return found

    async def inject(self, fault: dict[str, Any], checkpoints: str | None) -> str | None:
        """Inject a fault (`fault_injector.py`); returns what was done, None if there is no trainer for it now."""
        self.lease.renew()
        return await self.faults.inject(Fault.from_json(fault), self.trainer, checkpoints)

    async def send(self, message: dict[str, Any]) -> None:
        """Send the trainer a message (`trainer/main.py`), such as to trace some steps, or to save and end. Twice is as once."""
        self.lease.renew()
        if self.trainer:
            await self.trainer.send(message)

    async def trace(self, order: dict[str, Any]) -> None:
        """Have the trainer trace some steps. Raises RuntimeError while it has no run yet: it would forget the order."""
        self.lease.renew()
        if self.trainer is None or self.started != self.store.generation:
            raise RuntimeError("the trainer has not received its run")
        await self.trainer.send({"trace": order})

    async def act(self, kind: Literal["profile", "exec"], order: dict[str, Any]) -> dict[str, Any] | None:
        """Take a profile or run a command beside the trainer (`rank_orders.py`). Returns how it ended; None if it cannot begin now.

        What the trainer itself records begins only once it has its run, as in `trace`.
        """
        self.lease.renew()
        early = self.started != self.store.generation and kind == "profile" and order["kind"] in RECORDED
        return await self.orders.act(kind, order, None if early else self.trainer)

    async def stop(self, grace_s: float) -> None:
        """Ask the trainer to end after its step; kill it after `grace_s`."""
        self.lease.renew()
        trainer = self.trainer
        if trainer is None:
            return
        if grace_s > 0:
            trainer.post({"stop": "stop", "release": True})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await trainer.gone.wait()
        trainer.end_ordered = trainer.end_ordered or not trainer.gone.is_set()
        trainer.kill()

    async def shutdown(self) -> None:
        """Kill the trainer. The supervisor then ends the actor itself."""
        self._drop_trainer()

    def _drop_trainer(self) -> None:
        if self.trainer:
            self.trainer.kill()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
