"""Ray as the dispatcher uses it: an embedded head or an existing cluster, and the gangs on it.

In the service only this file and `ray_private.py` import Ray, and only inside functions. The address is always explicit, so that it never
joins a stray cluster. Every call has a time-out and raises ClusterError after it.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from ...workers.forkserver.client import ForkError
from ...workers.messages.fault_request import Fault
from ...workers.messages.gang_spec import GangSpec
from ...workers.supervisor.actor import Supervisor
from ...workers.supervisor.journal import journal
from ...workers.supervisor.ranks.placement_group import NAMESPACE, rank_actors, remove_remains
from ...workers.tasks.checkpoint_task import Operation, Outcome, perform
from ..errors import ClusterError, GangLost
from ..policies.warm_workers import shortage_of
from ..schemas.node import ClusterNode
from ..settings import Settings
from . import allocations, ray_private
from .interface import Pull, UserOrder
from .ray_head import Head, HeadError, Record, count_workers, lives

T = TypeVar("T")

ANSWER_S: Final = 20.0
CONNECT_S: Final = 120.0
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
        """`entry`: `module:function` that trains instead of this package's own loop."""
        self.settings = settings
        self.entry = entry
        self.head = Head(settings.data_dir) if settings.ray_address is None else None
        self._record: Record | None = None
        self._supervisors: dict[str, Any] = {}
        self._warming: asyncio.Task[None] | None = None
        self._quiet_until = 0.0  # no workers are prepared before this time of the loop's clock

    async def connect(self) -> None:
        """Join the cluster. Without an address, that is the data folder's own head, which is started or adopted."""
        await self._let_cool()
        self._supervisors.clear()
        if self.head:
            # Ray's import takes about as long as its start, so they run side by side.
            os.environ.update(self.head.environment())
            importing = asyncio.ensure_future(_in_thread(_import_ray, CONNECT_S))
            self._record = await _in_thread(self.head.ensure, CONNECT_S)
            await importing
            assert self._record.address
            await _in_thread(_join, CONNECT_S, self._record.address, True)
            _restore_sigterm()
            self._warming = asyncio.get_running_loop().create_task(self._keep_warm(self.head, self._record))
            return
        assert self.settings.ray_address
        _explain_token(self.settings.ray_auth_token_path)
        await _in_thread(_join, CONNECT_S, self.settings.ray_address)
        _restore_sigterm()

    async def nodes(self) -> list[ClusterNode]:
        self._look_at_head()
        return await _in_thread(_nodes, ANSWER_S)

    async def start_gang(self, spec: GangSpec) -> None:
        """Start the gang's supervisor, which starts the rest. Harmless when it exists."""
        spec = replace(spec, cpus_per_rank=1 / self.settings.cpu_ranks_per_core, entry=self.entry)
        self._look_at_head()
        self._be_quiet(WARM_AFTER_START_S)
        supervisor = await _in_thread(_make_supervisor, ANSWER_S, spec)
        self._supervisors[spec.name] = supervisor
        await self._ask(spec.name, lambda gang: gang.begin.remote(), CONNECT_S)

    async def pull(self, gang: str, after: int, wait_s: float) -> Pull:
        """Events after number `after`, which acknowledges those up to it. Waits for the first. Raises GangLost."""
        answer = await self._ask(gang, lambda supervisor: supervisor.pull.remote(after, wait_s), wait_s + ANSWER_S)
        return Pull(answer["events"], answer["last"], answer.get("version", 0))

    async def stop(self, gang: str, reason: str) -> None:
        """Stop a gang (`reason`: cancel, preempt). Its last event reports that it has ended. Raises GangLost."""
        await self._ask(gang, lambda supervisor: supervisor.stop.remote(reason), ANSWER_S)

    async def deliver(self, gang: str, order: UserOrder) -> None:
        """Give the gang an order, which it carries out once, even if it is delivered repeatedly. Raises GangLost."""

        def give(supervisor: Any) -> Any:
            method = supervisor.inject_fault if isinstance(order, Fault) else supervisor.trace
            return method.remote(order.to_json())

        await self._ask(gang, give, ANSWER_S)

    async def perform(self, operation: Operation, node: str | None) -> Outcome:
        """Run a checkpoint operation as a task without a device, on `node` if given: there the checkpoint is. Cancelling ends it."""
        from ray.exceptions import RayError

        self._look_at_head()
        task = await _in_thread(_begin, ANSWER_S, operation, node)
        try:
            outcome: Outcome = await task
        except RayError as error:
            raise ClusterError(f"{operation.id}: {error}") from error
        except asyncio.CancelledError:
            with contextlib.suppress(ClusterError):
                await _in_thread(_end, END_S, task)
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
        """Remove everything that is left of a gang; harmless when nothing is."""
        with contextlib.suppress(GangLost):
            await self._ask(gang, lambda supervisor: supervisor.close.remote(), ANSWER_S)
        self._supervisors.pop(gang, None)
        self._look_at_head()
        await _in_thread(_clear_away, ANSWER_S, gang)
        self._be_quiet(WARM_AFTER_END_S)

    async def gangs(self) -> list[str]:
        """Names of the gangs that still have a supervisor, a rank or a placement group."""
        self._look_at_head()
        return await _in_thread(_gangs, ANSWER_S)

    async def disconnect(self) -> None:
        """Leave the cluster. Gangs continue."""
        await self._let_cool()
        self._supervisors.clear()
        await _in_thread(_leave, ANSWER_S)

    async def shut_down(self) -> None:
        """Leave, and end the embedded head with everything on it: processes, ports, folder."""
        try:
            await self.disconnect()
        finally:
            self._record = None
            if self.head:
                await _in_thread(self.head.shut_down, ANSWER_S * 2)

    def _look_at_head(self) -> None:
        """Raise at once if our own head has died; a call to it would fail only after its time-out."""
        if self._record is not None and not lives(self._record):
            raise ClusterError("the embedded Ray head has died", remedy="It is started again at the next connection.")

    async def _ask(self, gang: str, call: Callable[[Any], Any], timeout_s: float) -> Any:
        """Call the gang's supervisor. GangLost when there is none, ClusterError when it does not answer."""
        from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

        self._look_at_head()
        supervisor = self._supervisors.get(gang) or await _in_thread(_find_supervisor, ANSWER_S, gang)
        if supervisor is None:
            raise GangLost(f"no supervisor {gang} on the cluster")
        self._supervisors[gang] = supervisor
        try:
            async with asyncio.timeout(timeout_s):
                return await call(supervisor)
        except (ActorUnavailableError, TimeoutError) as error:
            raise ClusterError(
                f"{gang} does not answer: {error}", remedy="Look at the Ray cluster's health."
            ) from error
        except ActorDiedError as error:
            self._supervisors.pop(gang, None)
            raise GangLost(f"the supervisor of {gang} died: {error}") from error
        except RayError as error:
            raise ClusterError(f"{gang}: {error}") from error

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
            await _in_thread(head.warm_fork_server, ANSWER_S, record)
            workers = await asyncio.to_thread(count_workers, record.raylet.pid)
            shortage = shortage_of(workers, slots, self.settings.warm_workers)
            if shortage.ask:
                await _in_thread(ray_private.prestart_workers, ANSWER_S, shortage.ask, WARM_FOR_S, ANSWER_S)
            return shortage.missing > 0
        return False

    async def _let_cool(self) -> None:
        if self._warming:
            self._warming.cancel()
            await asyncio.wait([self._warming], timeout=ANSWER_S)
            self._warming = None


async def _in_thread(work: Callable[..., T], timeout_s: float, *arguments: Any) -> T:
    """Run blocking work in a daemon thread, so that a call that hangs in Ray blocks neither the loop nor the process's exit."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]
        else:
            done.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = work(*arguments)
        except Exception as raised:  # noqa: BLE001  (top of a thread: the caller's future gets it)
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name=f"ray {work.__name__}", daemon=True).start()
    try:
        async with asyncio.timeout(timeout_s):
            return await done
    except TimeoutError as error:
        raise ClusterError(f"the Ray cluster did not answer within {timeout_s:.0f} s") from error
    except (ClusterError, GangLost):
        raise
    except (HeadError, ForkError, OSError, RuntimeError, ValueError) as error:
        raise ClusterError(f"{type(error).__name__}: {error}", remedy="Look at the Ray cluster's health.") from error


def _import_ray() -> None:
    import ray  # noqa: F401


def _explain_token(path: Path | None) -> None:
    """Set the path of Ray's token in the environment explicitly; otherwise Ray looks for it in the home folder."""
    if path is not None:
        os.environ.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path)})
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")


def _join(address: str, loopback: bool = False) -> None:
    import ray

    if loopback:
        # The head's environment variables, for a process that had imported Ray before; see `ray_head.py`.
        ray_private.stay_on_loopback()
    if ray.is_initialized():
        ray.shutdown()
    ray_private.forget_token()  # another head has another token
    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(
        address=address,
        namespace=NAMESPACE,
        log_to_driver=False,
        logging_level="ERROR",
        configure_logging=False,
    )


def _restore_sigterm() -> None:
    """Restore our SIGTERM handler: Ray's core has replaced it by its own (a stack dump, then death), without Python noticing."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def _leave() -> None:
    import ray

    ray.shutdown()


def _make_supervisor(spec: GangSpec) -> Any:
    import ray

    options = {
        "name": spec.name,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "get_if_exists": True,
        "num_cpus": 0,
        "max_restarts": -1,  # a restarted supervisor continues from its journal
    }
    return ray.remote(Supervisor).options(**options).remote(spec.to_json())


def _begin(operation: Operation, node: str | None) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    options: dict[str, Any] = {
        "name": f"{operation.kind} {operation.id}",
        "num_cpus": 0,
        "max_retries": 0,  # the service decides on retries
    }
    if node is not None:
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=True)
    alone = ray.remote(max_calls=1)(perform)  # a new worker per task, so that torch's memory is freed with it
    return alone.options(**options).remote(operation)


def _end(task: Any) -> None:
    import ray

    ray.cancel(task, force=True)


def _find_supervisor(gang: str) -> Any:
    import ray

    try:
        return ray.get_actor(gang, namespace=NAMESPACE)
    except ValueError:
        return None


def _gangs() -> list[str]:
    from ray.util import list_named_actors, placement_group_table

    names = {actor["name"].partition("-rank-")[0] for actor in list_named_actors(all_namespaces=True) if _ours(actor)}
    groups = [group for group in placement_group_table().values() if group["state"] != "REMOVED"]
    return sorted(names | {group["name"] for group in groups if group["name"].startswith(f"{NAMESPACE}-")})


def _ours(actor: dict[str, str]) -> bool:
    return actor.get("namespace") == NAMESPACE


def _clear_away(gang: str) -> None:
    supervisor = _find_supervisor(gang)
    remove_remains(gang, rank_actors(gang) + ([] if supervisor is None else [supervisor]))
    journal.erase(gang)


def _nodes() -> list[ClusterNode]:
    import ray
    from ray.util.client import ray as client

    if client.is_connected():  # `ray://`: the state calls below work only on the cluster
        found: list[ClusterNode] = ray.get(ray.remote(num_cpus=0)(_nodes_seen_inside).remote(), timeout=ANSWER_S)
        return found
    return _nodes_seen_inside()


def _nodes_seen_inside() -> list[ClusterNode]:
    import ray
    from ray.util import placement_group_table

    available = ray_private.free_resources()
    shares = allocations.by_node(placement_group_table().values())
    nodes = []
    for node in ray.nodes():
        total, free = node["Resources"], available.get(node["NodeID"], {})
        alive = bool(node["Alive"])
        cpu, gpu = float(total.get("CPU", 0)), float(total.get("GPU", 0))
        nodes.append(
            ClusterNode(
                id=node["NodeID"],
                host=node["NodeManagerHostname"],
                alive=alive,
                cpu=cpu,
                gpu=gpu,
                cpu_used=cpu - float(free.get("CPU", 0)) if alive else 0.0,
                gpu_used=gpu - float(free.get("GPU", 0)) if alive else 0.0,
                memory_bytes=int(total.get("memory", 0)),
                gangs=shares.get(node["NodeID"], []),
            )
        )
    return nodes
