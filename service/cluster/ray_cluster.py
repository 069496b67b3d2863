"""Ray as the dispatcher uses it: an embedded head or an existing cluster, and the gangs on it.

In the service only the files `ray_*.py` of this folder import Ray, and only inside functions. The address is always explicit, so that it
never joins a stray cluster.
"""

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from ...workers.messages.gang_spec import GangSpec
from ...workers.messages.secret import Secret
from ...workers.tasks.checkpoint_task import Operation, Outcome
from ..errors import ClusterError, GangLost, OtherVersion
from ..policies.warm_workers import shortage_of
from ..schemas.node import ClusterNode
from ..settings import Settings
from . import ray_private
from .interface import Pull, UserOrder
from .ray_connection import (
    ANSWER_S,
    CONNECT_S,
    as_cluster_error,
    explain_token,
    import_ray,
    in_thread,
    join,
    leave,
    restore_sigterm,
)
from .ray_gangs import begin_operation, end_operation, find_supervisor, gang_names, make_supervisor, remove_gang
from .ray_head import Head, Record, count_workers, lives
from .ray_nodes import read_nodes
from .supervisor_handle import SupervisorHandle

T = TypeVar("T")

log = logging.getLogger(__name__)

#: Actors that are not needed any more are killed without a grace period: Ray ends them with its driver, too.
END_S: Final = 2.0
#: Of a failed process's output, at most this number of characters is reported, from its end.
OUTPUT_TAIL: Final = 2000
WARM_FOR_S: Final = 24 * 3600
#: Seconds between two counts of idle workers, and between them while some are missing.
WARM_EVERY_S: Final = 10.0
WARM_AGAIN_S: Final = 0.5
#: Seconds without requests for workers after a gang's start, as it needs the machine, and after its end, when the next often follows.
WARM_AFTER_START_S: Final = 5.0
WARM_AFTER_END_S: Final = 3.0


class Cluster:
    """One connection to one Ray cluster; a process has at most one. Ray's blocking calls run in threads."""

    def __init__(self, settings: Settings, entry: str = "") -> None:
        """`entry`: `module:function` that trains instead of this package's own loop.

        Sets the variables that Ray reads. It is made before there are threads: adding a variable moves what their getenv goes through.
        """
        self.settings = settings
        self.entry = entry
        self.head = Head(settings.data_dir) if settings.ray_address is None else None
        if self.head:
            os.environ.update(self.head.environment())
        else:
            explain_token(settings.ray_auth_token_path)
        self._record: Record | None = None
        self._supervisors: dict[str, SupervisorHandle] = {}
        self._warming: asyncio.Task[None] | None = None
        self._quiet_until = 0.0  # no workers are prepared before this time of the loop's clock

    async def connect(self) -> None:
        """Join the cluster. Without an address, that is the data folder's own head, which is started or adopted."""
        await self._let_cool()
        self._supervisors.clear()
        address = self.settings.ray_address
        if self.head:
            # Ray's import takes about as long as its start, so they run side by side.
            importing = asyncio.ensure_future(in_thread(import_ray, CONNECT_S))
            self._record = await in_thread(self.head.ensure, CONNECT_S)
            await importing
            address = self._record.address
        assert address
        await in_thread(join, CONNECT_S, address, self.head is not None)
        self._supervisors.clear()  # a call that was under way may have stored one of the connection before
        restore_sigterm()
        if self.head and self._record:
            self._warming = asyncio.get_running_loop().create_task(self._keep_warm(self.head, self._record))

    async def nodes(self) -> list[ClusterNode]:
        self._check_head()
        return await in_thread(read_nodes, ANSWER_S)

    async def start_gang(self, spec: GangSpec) -> None:
        """Start the gang's supervisor, which starts the rest. Harmless when it exists."""
        spec = replace(spec, cpus_per_rank=1 / self.settings.cpu_ranks_per_core, entry=spec.entry or self.entry)
        self._check_head()
        self._be_quiet(WARM_AFTER_START_S)
        self._supervisors[spec.name] = await in_thread(make_supervisor, ANSWER_S, spec)
        await self._call_supervisor(spec.name, lambda supervisor: supervisor.begin())

    async def pull(self, gang: str, after: int, wait_s: float) -> Pull:
        """Events after number `after`, which acknowledges those up to it. Waits for the first. Raises GangLost."""
        return await self._call_supervisor(gang, lambda supervisor: supervisor.pull(after, wait_s))

    async def stop(self, gang: str, reason: str) -> None:
        """Stop a gang (`reason`: cancel, preempt). Its last event reports that it has ended. Raises GangLost."""
        await self._call_supervisor(gang, lambda supervisor: supervisor.stop(reason))

    async def deliver(self, gang: str, order: UserOrder) -> bool:
        """Give the gang an order, which it carries out once, even if it is delivered repeatedly. Raises GangLost.

        Returns whether its supervisor knows this kind of order.
        """
        return await self._call_supervisor(gang, lambda supervisor: supervisor.deliver(order))

    async def provide_secrets(self, gang: str, secrets: Sequence[Secret]) -> None:
        """Send the secrets that a pull misses. Raises GangLost."""
        await self._call_supervisor(gang, lambda supervisor: supervisor.provide_secrets(secrets))

    async def perform(self, operation: Operation, node: str | None) -> Outcome:
        """Run a checkpoint operation as a task without a device, on `node` if given: there the checkpoint is. Cancelling ends it."""
        self._check_head()
        task = await in_thread(begin_operation, ANSWER_S, operation, node)
        try:
            with as_cluster_error(operation.id):
                outcome: Outcome = await task
        except asyncio.CancelledError:
            with contextlib.suppress(ClusterError):
                await in_thread(end_operation, END_S, task)
            raise
        return outcome

    async def tokenize(self, data: Mapping[str, Any]) -> None:
        """On our own head, whose cache every gang reads: in a process of low priority, which ends with this one."""
        if self.head is None:
            return
        command = [sys.executable, "-P", "-m", "shardyard.workers.data.tokenize_ahead", str(self.settings.cache)]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stderr=pipe)
        try:
            _, answer = await process.communicate(json.dumps(data).encode())
        finally:
            if process.returncode is None:  # cancelled; a process that hangs in a file system dies when that answers
                with contextlib.suppress(ProcessLookupError, TimeoutError):
                    process.kill()
                    async with asyncio.timeout(END_S):
                        await process.wait()
        if process.returncode:
            raise ClusterError(answer.decode(errors="replace").strip()[-OUTPUT_TAIL:])

    async def close_gang(self, gang: str) -> None:
        """Remove everything that is left of a gang that no job uses; harmless when nothing is. Raises ClusterError.

        A supervisor that does not answer is killed.
        """
        try:
            with contextlib.suppress(GangLost):
                await self._call_supervisor(gang, lambda supervisor: supervisor.close())
        except ClusterError as error:  # if nothing of the cluster answers, neither does it below
            log.warning("%s cannot end itself, and is killed: %s", gang, error)
        self._supervisors.pop(gang, None)
        self._check_head()
        await in_thread(remove_gang, ANSWER_S, gang)
        self._be_quiet(WARM_AFTER_END_S)

    async def gangs(self) -> list[str]:
        """Names of the gangs that still have a supervisor, a rank or a placement group."""
        self._check_head()
        return await in_thread(gang_names, ANSWER_S)

    async def disconnect(self) -> None:
        """Leave the cluster. Gangs continue."""
        await self._let_cool()
        self._supervisors.clear()
        await in_thread(leave, ANSWER_S)

    async def shut_down(self) -> None:
        """Leave, and end the embedded head with everything on it: processes, ports, folder."""
        try:
            await self.disconnect()
        finally:
            self._record = None
            if self.head:
                await in_thread(self.head.shut_down, ANSWER_S * 2)

    def _check_head(self) -> None:
        """Raise at once if our own head has died; a call to it would fail only after its time-out."""
        if self._record is not None and not lives(self._record):
            raise ClusterError("the embedded Ray head has died", remedy="It is started again at the next connection.")

    async def _call_supervisor(self, gang: str, call: Callable[[SupervisorHandle], Awaitable[T]]) -> T:
        """Call the gang's supervisor. GangLost when there is none, ClusterError when it does not answer. OtherVersion when it
        cannot be made on its node, which has not this package, or cannot read the gang's spec.
        """
        from ray.exceptions import ActorDiedError, ActorUnavailableError

        self._check_head()
        supervisor = self._supervisors.get(gang) or await in_thread(find_supervisor, ANSWER_S, gang)
        if supervisor is None:
            raise GangLost(f"no supervisor {gang} on the cluster")
        self._supervisors[gang] = supervisor
        with as_cluster_error(gang):
            try:
                return await call(supervisor)
            except (ActorUnavailableError, TimeoutError) as error:
                raise ClusterError(
                    f"{gang} does not answer: {error}", remedy="Look at the Ray cluster's health."
                ) from error
            except ActorDiedError as error:
                self._supervisors.pop(gang, None)
                if error.actor_init_failed:
                    why = str(error).strip().splitlines()[-1]
                    raise OtherVersion(f"The supervisor of {gang} could not be made: {why}.") from error
                raise GangLost(f"the supervisor of {gang} died: {error}") from error

    def _be_quiet(self, seconds: float) -> None:
        """Prepare no workers for `seconds`."""
        self._quiet_until = max(self._quiet_until, asyncio.get_running_loop().time() + seconds)

    async def _keep_warm(self, head: Head, record: Record) -> None:
        """Keep workers and a fork server ready for the next gang, also while one trains. Best effort."""
        loop = asyncio.get_running_loop()
        while True:
            pause_s = self._quiet_until - loop.time()
            if pause_s <= 0:
                pause_s = WARM_AGAIN_S if await self._warm(head, record) else WARM_EVERY_S
            await asyncio.sleep(min(pause_s, WARM_EVERY_S))

    async def _warm(self, head: Head, record: Record) -> bool:
        """Start the fork server if necessary, and request some of the missing workers. Returns whether workers were missing."""
        assert record.raylet
        slots = len(os.sched_getaffinity(0)) * self.settings.cpu_ranks_per_core
        with contextlib.suppress(ClusterError):
            await in_thread(head.warm_fork_server, ANSWER_S, record)
            workers = await asyncio.to_thread(count_workers, record.raylet.pid)
            shortage = shortage_of(workers, slots, self.settings.warm_workers)
            if shortage.ask:
                await in_thread(ray_private.prestart_workers, ANSWER_S, shortage.ask, WARM_FOR_S, ANSWER_S)
            return shortage.missing > 0
        return False

    async def _let_cool(self) -> None:
        if self._warming:
            self._warming.cancel()
            await asyncio.wait([self._warming], timeout=ANSWER_S)
            self._warming = None
