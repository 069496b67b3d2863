"""A cluster without Ray: it implements `service/cluster/interface.py` in this process, with injected failures."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from harness.events import whole_event
from harness.trace_events import trace_events

from shardyard.service.cluster.interface import Pull, UserOrder
from shardyard.service.errors import ClusterError, GangLost
from shardyard.service.schemas.node import ClusterNode
from shardyard.service.states import FINAL
from shardyard.workers.messages.event import VERSION
from shardyard.workers.messages.exec_request import Exec
from shardyard.workers.messages.fault_request import Fault
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.messages.profile_request import Profile
from shardyard.workers.messages.secret import Secret
from shardyard.workers.tasks.checkpoint_task import Operation, Outcome, perform


class Gang:
    """What a supervisor is: it numbers what it reports and keeps it until it is acknowledged."""

    def __init__(self, spec: GangSpec) -> None:
        self.spec = spec
        self.history: list[dict[str, Any]] = []
        self.acknowledged = 0
        self.stopped = asyncio.Event()
        self.changed = asyncio.Condition()
        self.stubborn = False  # does not end on request
        self.ahead_s = 0.0  # of its node's clock
        self.delivered: list[UserOrder] = []  # also again
        self.secrets: list[Secret] | None = None if spec.secrets else []

    @property
    def ended(self) -> bool:
        """Whether its last event is reported."""
        return bool(self.history) and self.history[-1]["data"].get("state") in FINAL

    async def emit(self, kind: str, **data: Any) -> None:
        async with self.changed:
            seq = len(self.history) + 1
            self.history.append(
                {"seq": seq, "ts": time.time() + self.ahead_s, "kind": kind, "data": whole_event(kind, data)}
            )
            self.changed.notify_all()

    async def state(self, state: str, reason: str | None = None, message: str | None = None) -> None:
        await self.emit("state", state=state, reason=reason, message=message)

    async def step(self, step: int, loss: float | None = None) -> None:
        loss = 5.0 / step if loss is None else loss
        await self.emit(
            "step", step=step, loss=loss, lr=1e-3, grad_norm=1.0, loss_scale=None, skipped=False, tokens=64 * step,
            tokens_per_s=640.0, step_s=0.1, step_s_min=0.1, step_s_median=0.1, step_s_max=0.2, slowest_rank=1,
        )  # fmt: skip

    async def carry_out(self, order: UserOrder) -> None:
        if isinstance(order, Fault):
            await self.emit("fault", id=order.id, fault=order.kind, done=True, message="it was done", step=1)
        elif isinstance(order, Exec):
            await self.emit("exec", id=order.id, rank=order.rank, status=3, message="exit status 3")
        elif isinstance(order, Profile):
            await self.emit(
                "profile", id=order.id, profile=order.kind, rank=order.rank, done=True, message="so", file=None
            )
        else:
            for kind, data in trace_events(order.id, range(1, order.steps + 1)):
                await self.emit(kind, **data)


Script = Callable[[Gang], Awaitable[None]]


async def train(gang: Gang) -> None:
    """A healthy gang: it starts, takes its steps, and succeeds."""
    await gang.state("starting", "placed")
    for step in range(1, gang.spec.run["train"]["steps"] + 1):
        if step == 1:
            await gang.state("running", "first_step")
        await gang.step(step)
    await gang.emit("summary", first_loss=5.0, last_loss=1.0, steps=step)
    await gang.state("succeeded", "completed")


async def run_until_stopped(gang: Gang) -> None:
    """A gang that trains for ever, with a step every now and then."""
    await gang.state("starting")
    await gang.state("running")
    step = 0
    while not gang.stopped.is_set():
        step += 1
        await gang.step(step)
        await asyncio.sleep(0.02)


async def ignore_stop(gang: Gang) -> None:
    """A gang that trains for ever and does not end on request."""
    gang.stubborn = True
    await run_until_stopped(gang)


class InProcessCluster:
    """`script` is what gangs do from now on. `reachable`, `repeats` and `lost_replies` are its ways to break."""

    def __init__(self, cpus: int = 1, script: Script = train) -> None:
        self.script = script
        self.machines = [ClusterNode(id="node-1", host="host-1", alive=True, cpu=cpus, gpu=0, memory_bytes=1 << 30)]
        self.living: dict[str, Gang] = {}
        self.specs: list[GangSpec] = []
        self.closed: list[str] = []
        self.tokenized: list[dict[str, Any]] = []
        self.unreadable: list[str] = []  # files of no corpus
        self.reachable = True
        self.looks = 0  # number of requests for the nodes
        self.batch = 50  # the most new events that a pull gives
        self.repeats = False  # pull gives acknowledged events again, too
        self.lost_replies = 0  # number of pulls whose answers are lost
        self.version = VERSION  # of the events that gangs send
        self.lost_orders = 0  # this many deliveries happen, but their answers are lost
        self.knows_orders = True  # whether its gangs know them
        self._scripts: dict[str, asyncio.Task[None]] = {}

    async def connect(self) -> None:
        self._answer()

    async def nodes(self) -> list[ClusterNode]:
        self._answer()
        self.looks += 1
        return list(self.machines)

    async def start_gang(self, spec: GangSpec) -> None:
        self._answer()
        self.specs.append(spec)
        if spec.name not in self.living:
            gang = self.living[spec.name] = Gang(spec)
            self._scripts[spec.name] = asyncio.ensure_future(self.script(gang))

    async def pull(self, gang: str, after: int, wait_s: float) -> Pull:
        found = self._gang(gang)
        found.acknowledged = after = max(after, found.acknowledged)
        if found.secrets is None:
            return Pull([], len(found.history), self.version, misses_secrets=True)
        try:
            async with asyncio.timeout(wait_s), found.changed:
                await found.changed.wait_for(lambda: len(found.history) > after or self.living.get(gang) is not found)
        except TimeoutError:
            return Pull([], len(found.history), self.version)
        if self._gang(gang) is not found:
            raise GangLost(f"{gang} was closed, and another of its name was started")
        await asyncio.sleep(0)
        if self.lost_replies:
            self.lost_replies -= 1
            raise ClusterError("the answer was lost")
        events = found.history[0 if self.repeats else after : after + self.batch]
        return Pull(list(events), len(found.history), self.version, behind_s=-found.ahead_s)

    async def stop(self, gang: str, reason: str) -> None:
        found = self._gang(gang)
        if found.stubborn:
            await asyncio.sleep(3600)
        self._scripts[gang].cancel()
        found.stopped.set()
        if not found.ended:
            await found.state("cancelled", reason)

    async def deliver(self, gang: str, order: UserOrder) -> bool:
        ordered = self._gang(gang)
        if not self.knows_orders:
            return False
        again = order in ordered.delivered
        ordered.delivered.append(order)
        if (not again or self.repeats) and not ordered.ended:
            await ordered.carry_out(order)
        if self.lost_orders:
            self.lost_orders -= 1
            raise ClusterError("the answer was lost")
        return True

    async def provide_secrets(self, gang: str, secrets: Sequence[Secret]) -> None:
        self._gang(gang).secrets = list(secrets)

    async def perform(self, operation: Operation, node: str | None) -> Outcome:
        self._answer()
        return await asyncio.to_thread(perform, operation)

    async def tokenize(self, data: Mapping[str, Any]) -> None:
        self._answer()
        self.tokenized.append(dict(data))
        if set(data.get("files", ())) & set(self.unreadable):
            raise ClusterError("it cannot be read")

    async def close_gang(self, gang: str) -> None:
        self._answer()
        self.closed.append(gang)
        await self.kill(gang)

    async def gangs(self) -> list[str]:
        self._answer()
        return sorted(self.living)

    async def kill(self, gang: str) -> None:
        """The supervisor dies, with all that was not pulled."""
        found = self.living.pop(gang, None)
        if found is None:
            return
        task = self._scripts.pop(gang)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with found.changed:
            found.changed.notify_all()

    async def replace_all_nodes(self) -> None:
        """The whole cluster is gone and another one stands there."""
        for gang in list(self.living):
            await self.kill(gang)
        node = self.machines[0]
        self.machines = [node.model_copy(update={"id": node.id + "x", "cpu_used": 0.0, "gpu_used": 0.0, "gangs": []})]

    async def end(self) -> None:
        for gang in list(self.living):
            await self.kill(gang)

    def _answer(self) -> None:
        if not self.reachable:
            raise ClusterError("the cluster does not answer")

    def _gang(self, name: str) -> Gang:
        self._answer()
        if name not in self.living:
            raise GangLost(f"there is no {name}")
        return self.living[name]
