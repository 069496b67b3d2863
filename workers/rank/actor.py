"""The rank actor: it holds one rank's device and coordinates, owns its trainer, and always answers.

Rules that it keeps: it imports no torch; the trainer ends with it; an event leaves its spool only when the supervisor
has acknowledged it; steps are never dropped (a full spool makes the trainer wait), log lines are (counted, with a
notice); when no supervisor has spoken to it for a lease's length, it kills its trainer and exits; it has no rank until it
is given one, and a spare waits for that.
"""

import asyncio
import contextlib
import json
import math
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..checkpoint.from_snapshot import commit, write_file
from ..checkpoint.manifest import File, Manifest
from ..checkpoint.retention import folder
from ..forkserver import client, protocol
from ..messages.event_buffer import Event, Spool
from ..messages.fault_request import Fault
from ..process_memory import Footprint, resident
from ..snapshot import shared_memory as slots
from ..snapshot.header import Inventory, Stored, slot_of
from ..snapshot.header import read as read_inventory
from ..snapshot.replication import Chunk, Copying, Keeper, Stale, bell, send
from ..storage.open_folder import folder_at
from ..trainer.heartbeat import STACKS_SIGNAL
from .fault_injector import Wounds

#: The embedded head names its own folder by it, and everything that it starts can be found by it.
NODE_FOLDER: Final = "SHARDYARD_NODE"

SPOOL_BYTES: Final = 8 << 20
#: Once steps happen, a rank gathers for so long before it reads again what comes faster than that: few wake-ups cost a step no time.
#: It does not while the trainer says much, which would then wait for its reader.
GATHER_S: Final = 0.2
BUSY_S: Final = 1.0
#: From then on an event may be so old when it leaves. It waits for company here, and next to not at all in its supervisor: all ranks end
#: a step together, so the whole way, journal and database included, is gone once for the events of so long.
LINGER_S: Final = 0.65
#: After a trainer's end, so long for its last words to be read (a grandchild may hold its pipes open).
LAST_WORDS_S: Final = 0.5
MAX_LINE: Final = 8192
#: So long a trainer has to say what it does; then it is asked by a signal, and its stacks come by its log.
EXAMINE_S: Final = 2.0
CHUNK: Final = 1 << 16


@dataclass(frozen=True)
class Reservation:
    """What a rank has got ready: its node, and for rank 0 the port of the store that its trainer will hold."""

    rank: int
    node: str
    host: str
    port: int | None
    interface: str | None
    generation: int
    pid: int  # of the actor, whose neighbours open its snapshot memory by it
    slots: tuple[int, ...]  # its descriptors of that memory


@dataclass(frozen=True)
class Remains:
    """A rank's snapshot memory, held by process `pid` of `node` as `fds`."""

    node: str
    pid: int
    fds: tuple[int, ...]


class Lines:
    """Complete lines of a pipe or socket, read only when asked for: what is not read stays in the kernel and makes the
    writer wait.
    """

    def __init__(self, fd: int, longest: int | None = None) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._longest = longest
        self._rest = b""
        self._busy_until = 0.0
        self._waited_s = math.inf

    @property
    def quick(self) -> bool:
        """Whether lines come faster than every `GATHER_S`."""
        return self._waited_s < GATHER_S

    async def gather(self) -> None:
        """Wait for more, where lines come quickly and the writer does not wait for its reader."""
        if self.quick and asyncio.get_running_loop().time() >= self._busy_until:
            await asyncio.sleep(GATHER_S)

    async def read(self) -> list[bytes] | None:
        """The next complete lines (perhaps none); None at the end. A line over `longest` bytes is cut into several."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            try:
                data = os.read(self.fd, CHUNK)
                break
            except BlockingIOError:
                readable: asyncio.Future[None] = loop.create_future()
                loop.add_reader(self.fd, _resolve, readable)
                try:
                    await readable
                finally:
                    loop.remove_reader(self.fd)
            except ConnectionError:
                data = b""
                break
        self._waited_s = loop.time() - began
        if len(data) * 2 >= CHUNK:
            self._busy_until = loop.time() + BUSY_S
        if not data:
            rest, self._rest = self._rest, b""
            return [rest] if rest else None
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self._longest is not None and len(self._rest) >= self._longest:
            lines.append(self._rest)
            self._rest = b""
        return lines


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Logs:
    """Numbers a rank's lines (both streams, one count) and drops them, counted, while the spool is half full."""

    def __init__(self, rank: int, spool: Spool) -> None:
        self.rank = rank
        self.spool = spool
        self.next = 1
        self.dropped = 0

    def add(self, stream: str, lines: list[bytes]) -> None:
        if self.spool.half_full:
            self.dropped += len(lines)
            return
        self.confess()
        self._tell(stream, [_text(piece) for line in lines for piece in _pieces(line)])

    def confess(self) -> None:
        """Say how many lines were dropped since the last that was kept."""
        if self.dropped:
            notice = f"[shardyard: {self.dropped} lines dropped, the log is written faster than it is read]"
            self.dropped = 0
            self._tell("stderr", [notice])

    def _tell(self, stream: str, texts: list[str]) -> None:
        if texts:
            self.spool.add("log", {"rank": self.rank, "stream": stream, "first": self.next, "lines": texts})
            self.next += len(texts)


def _pieces(line: bytes) -> list[bytes]:
    return [line[i : i + MAX_LINE] for i in range(0, len(line), MAX_LINE)] or [b""]


def _text(line: bytes) -> str:
    """UTF-8 where it is; NUL, which PostgreSQL cannot store, is replaced like any other byte that is no text."""
    return line.rstrip(b"\r").decode("utf-8", "replace").replace("\0", "\ufffd")


class Trainer:
    """The actor's side of one trainer process: its control socket, its pipes, and the fork server's word on its end."""

    def __init__(
        self, fork: socket.socket, control: socket.socket, stdout: int, stderr: int, bell: socket.socket
    ) -> None:
        self._fork = fork
        self._control = control
        self.bell = bell
        self.copying: asyncio.Task[None] | None = None
        self.replies = Lines(fork.fileno())
        self.messages = Lines(control.fileno())
        self.logs = {"stdout": Lines(stdout, MAX_LINE), "stderr": Lines(stderr, MAX_LINE)}
        self.pid: int | None = None
        self.asked_for = time.monotonic()
        self.examined: asyncio.Future[dict[str, Any]] | None = None
        self.gone = asyncio.Event()
        self.footprint = Footprint(lambda: resident(self.pid))

    async def send(self, message: dict[str, Any]) -> None:
        """Orders, stop or release; a trainer that is already gone is no error."""
        with contextlib.suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(self._control, json.dumps(message).encode() + b"\n")

    def kill(self, number: int = signal.SIGKILL) -> None:
        with contextlib.suppress(OSError):
            protocol.kill(self._fork, number)

    @property
    def forking(self) -> bool:
        """Whether it is still to come: a fork server that was just started imports what trainers need, which takes seconds or a minute."""
        return self.pid is None and not self.gone.is_set()

    @property
    def state(self) -> str | None:
        """Its process's state as /proc has it (`T`: stopped); None when it has ended."""
        if self.pid is None or self.gone.is_set():
            return None
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return None

    async def examine(self) -> dict[str, Any]:
        """What it says of itself (`pulse.examined`), nothing when it cannot."""
        self.examined = asyncio.get_running_loop().create_future()
        await self.send({"examine": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXAMINE_S):
                return await self.examined
        return {}

    def write_stacks(self) -> None:
        """Make it write all stacks to its log, also when it is stopped: that is done before it goes on."""
        if self.pid is not None and not self.gone.is_set():
            with contextlib.suppress(OSError):
                os.kill(self.pid, STACKS_SIGNAL)
                os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Let go of everything; the fork server kills a trainer whose connection ends."""
        for lines in self.logs.values():
            os.close(lines.fd)
        self._control.close()
        self._fork.close()
        self.bell.close()


def fork_trainer(root: Path, owner: int, request: protocol.Request, more: list[int]) -> Trainer:
    """Ask the node's fork server, started if need be, for a trainer. Raises OSError, ForkError. Waits for no import.

    `more`: descriptors of its snapshot memory, and of rank 0's listening socket.
    """
    fork = client.connect(root, owner, dict(os.environ))
    ours, theirs = socket.socketpair()
    hears, rings = bell()
    stdout, out = os.pipe()
    stderr, err = os.pipe()
    try:
        protocol.request(fork, request, [theirs.fileno(), out, err, rings.fileno(), *more])
    except OSError:
        for fd in (stdout, stderr):
            os.close(fd)
        ours.close()
        hears.close()
        fork.close()
        raise
    finally:
        theirs.close()
        rings.close()
        os.close(out)
        os.close(err)
    fork.setblocking(False)
    ours.setblocking(False)
    hears.setblocking(False)
    return Trainer(fork, ours, stdout, stderr, hears)


class Rank:
    """One rank of a gang, or a spare; a Ray actor."""

    def __init__(self, device: str, entry: str = "", lease_s: float = 30.0) -> None:
        self.device = device
        self.entry = entry
        self.lease_s = lease_s
        self.spool = Spool(SPOOL_BYTES)
        self.logs = Logs(-1, self.spool)
        self.spoken = time.monotonic()
        self.trainer: Trainer | None = None
        self.steps = False
        self.started = 0  # the generation whose orders its trainer has
        self.slots: list[int] = []
        self.guarded: dict[int, list[int]] = {}  # rank → its slots, held here too in case its actor dies
        self.wounds = Wounds()
        self.rank, self.generation = -1, 0
        self.keeper = Keeper()  # of copies of other nodes' snapshots
        self._tasks: set[asyncio.Task[None]] = set()
        self._reserving = asyncio.Lock()

    async def stand_by(self) -> str:
        """Wait for a rank, with the node's fork server warm. Returns the node."""
        self._heard()
        self._begin_lease()
        await asyncio.to_thread(_warm_fork_server)
        return _node()

    async def reserve(self, rank: int, generation: int = 1, remains: Remains | None = None) -> Reservation:
        """Have this rank: fork a trainer, which then waits for its orders, and for rank 0 open the port of the gang's store.

        A new actor in a dead one's place takes over its snapshot memory, if somebody has held it.
        """
        self._heard()
        async with self._reserving:  # a supervisor that died meanwhile may have asked just before its successor
            return await self._reserve(rank, generation, remains)

    async def _reserve(self, rank: int, generation: int, remains: Remains | None) -> Reservation:
        self._begin_lease()
        self.rank = self.logs.rank = rank
        self._drop_trainer()
        self.steps, self.generation = False, generation
        self.slots = self.slots or _slots(remains)
        host = _host()
        listener = _listen(host) if rank == 0 else None
        request = protocol.Request(_environment(self.device), str(Path.cwd()), self.entry, len(self.slots))
        more = [*self.slots, *([listener.fileno()] if listener else [])]
        try:
            self.trainer = await asyncio.to_thread(fork_trainer, _fork_root(), _raylet(), request, more)
            port = listener.getsockname()[1] if listener else None
        finally:
            if listener:
                listener.close()
        self._spawn(self._follow(self.trainer, generation))
        place = (_node(), host, port, _interface(host))
        return Reservation(rank, *place, generation, os.getpid(), tuple(self.slots))

    async def guard(self, rank: int, remains: Remains) -> Remains | None:
        """Hold the snapshot memory of another rank on this node, so that it outlives that rank's actor."""
        self._heard()
        for fd in self.guarded.pop(rank, []):
            os.close(fd)
        with contextlib.suppress(OSError):
            self.guarded[rank] = slots.take_over(remains.pid, list(remains.fds))
            return Remains(_node(), os.getpid(), tuple(self.guarded[rank]))
        return None

    async def snapshots(self) -> list[int]:
        """Steps of which this rank's whole state is in memory. Ask when its trainer has ended."""
        self._heard()
        return slots.steps(self.slots)

    async def forget_snapshots(self) -> None:
        """They are not to be trusted, nor are the copies of others'. Ask when its trainer has ended."""
        self._heard()
        for fd in self.slots:
            slots.empty(fd)
        self.keeper.drop_all_but([])

    async def keep(self, chunk: Chunk) -> bool:
        """Take in a part of another rank's snapshot, or of this rank's own from its keeper; whether more of it is wanted."""
        if chunk.generation < self.generation:
            raise Stale(f"rank {chunk.rank} is of generation {chunk.generation}, this is {self.generation}")
        if chunk.rank == self.rank:
            return await asyncio.to_thread(self.keeper.write, chunk, self.slots)
        return await asyncio.to_thread(self.keeper.keep, chunk)

    async def kept(self, rank: int) -> list[int]:
        """Steps of which another rank's whole state is in this actor's memory."""
        self._heard()
        return slots.steps(self.keeper.of(rank))

    def _held(self, rank: int) -> list[int]:
        """Slots with this rank's own state, or what is held or kept here of another's."""
        return self.slots if rank == self.rank else [*self.guarded.get(rank, []), *self.keeper.of(rank)]

    async def holds(self) -> dict[int, list[int]]:
        """Rank → steps of which its whole state is in this actor's memory. Ask when the trainers have ended."""
        self._heard()
        ranks = {self.rank, *self.guarded, *self.keeper.slots}
        return {rank: steps for rank in ranks if (steps := slots.steps(self._held(rank)))}

    async def inventory(self, rank: int, step: int) -> Inventory | None:
        """What a rank's state of `step` consists of."""
        self._heard()
        fd = slot_of(self._held(rank), step)
        return None if fd is None else read_inventory(fd)

    async def write_out(self, rank: int, step: int, wanted: Sequence[Stored], where: str, name: str) -> File:
        """Write these rectangles of a rank's state as its file of the checkpoint of `step` below `where`."""
        fd = slot_of(self._held(rank), step)
        assert fd is not None, "who asks has seen the inventory"
        return await asyncio.to_thread(write_file, folder(folder_at(where), step), name, fd, wanted)

    async def commit(self, where: str, keep: int, manifest: Manifest) -> tuple[str, tuple[int, ...] | None]:
        """Make the files that all have written a checkpoint; returns its address, and the steps of all that there are then."""
        kept = await asyncio.to_thread(commit, folder_at(where), keep, manifest)
        return str(folder(folder_at(where), manifest.step)), kept

    async def hand_over(self, rank: int, step: int, actor: Any) -> None:
        """Give a rank's kept state of `step` to its new actor."""
        self._heard()
        for fd in self.keeper.of(rank):
            header = slots.read_header(fd)
            if header is not None and header.step == step:
                await send(fd, rank, self.generation, actor.keep.remote)

    async def start(
        self, run: dict[str, Any], coords: dict[str, Any], buddy: Any = None, keeps: Collection[int] = ()
    ) -> None:
        """Give the waiting trainer its orders; harmless when it has them.

        `buddy`: the actor that keeps copies of this rank's snapshots; `keeps`: the ranks whose copies this one keeps.
        """
        self._heard()
        assert self.trainer is not None, "reserve comes first"
        if self.started == coords["generation"]:
            return
        self.started = coords["generation"]
        if buddy is None:
            self.keeper.drop_all_but(keeps)
        else:
            self.trainer.copying = self._spawn(self._copy(self.trainer, buddy, keeps))
        await self.trainer.send({"run": run, "coords": coords} | self.wounds.inherited())

    async def pull(self, after: int, wait_s: float) -> list[Event]:
        """Events after `after`, oldest first, waiting up to `wait_s` for one; acknowledges those up to `after`."""
        self._heard()
        self.spool.take(after)
        await self.spool.wait(after, wait_s, self._linger_s)
        self._heard()
        return self.spool.take(after)

    async def beat(self) -> None:
        """The supervisor lives, though it has no room for events."""
        self._heard()

    async def examine(self) -> dict[str, Any]:
        """What the trainer does: its process's `state`, and what it says of itself, if it can."""
        self._heard()
        if self.trainer is None:
            return {}
        if self.trainer.forking:
            return {"phase": "fork", "idle_s": time.monotonic() - self.trainer.asked_for}
        state = self.trainer.state
        told = {} if state in (None, "T", "t") else await self.trainer.examine()
        return told | {"state": state}

    async def write_stacks(self) -> None:
        """Of a trainer that did not answer: its stacks into its log."""
        self._heard()
        if self.trainer:
            self.trainer.write_stacks()

    async def inject(self, fault: dict[str, Any], checkpoints: str | None) -> str | None:
        """Suffer a fault that somebody asked for (`fault_injector.py`)."""
        self._heard()
        return await self.wounds.strike(Fault.from_json(fault), self.trainer, checkpoints)

    async def trace(self, order: dict[str, Any]) -> None:
        """Ask the trainer to trace some steps, with all others; harmless when it has heard of it."""
        self._heard()
        if self.trainer:
            await self.trainer.send({"trace": order})

    async def release(self) -> None:
        """Every rank is done: the trainer may exit."""
        self._heard()
        if self.trainer:
            await self.trainer.send({"release": True})

    async def save(self) -> None:
        """Ask the trainer to end after a step that all ranks agree on, and to leave a checkpoint of it."""
        self._heard()
        if self.trainer:
            await self.trainer.send({"stop": "save"})

    async def stop(self, grace_s: float) -> None:
        """Ask the trainer to end after its step; kill it after `grace_s`."""
        self._heard()
        trainer = self.trainer
        if trainer is None:
            return
        if grace_s > 0:
            await trainer.send({"stop": "stop", "release": True})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await trainer.gone.wait()
        trainer.kill()

    async def shutdown(self) -> None:
        """Kill the trainer and let go of it. The actor itself is then ended by whoever made it."""
        self._drop_trainer()

    async def _copy(self, trainer: Trainer, buddy: Any, keeps: Collection[int]) -> None:
        """Give its snapshots to the buddy, and drop older copies when there are newer ones of all ranks."""
        copying = Copying(trainer.bell, self.slots, self.rank, lambda text: self.logs.add("stderr", [text.encode()]))
        with contextlib.suppress(OSError):
            await copying.run(self.generation, buddy.keep.remote, lambda: self.keeper.drop_all_but(keeps))

    @property
    def _linger_s(self) -> float:
        if not self.steps or self.trainer is None:
            return 0.0
        return LINGER_S - GATHER_S if self.trainer.messages.quick else LINGER_S

    def _heard(self) -> None:
        self.spoken = time.monotonic()

    def _spawn(self, work: Any) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _drop_trainer(self) -> None:
        if self.trainer:
            self.trainer.kill()

    def _begin_lease(self) -> None:
        if not self._tasks:
            self._spawn(self._watch_lease())

    async def _watch_lease(self) -> None:
        left = self.lease_s
        while left > 0:
            await asyncio.sleep(left)
            left = self.spoken + self.lease_s - time.monotonic()
        self._drop_trainer()
        await asyncio.to_thread(leave)

    async def _follow(self, trainer: Trainer, generation: int) -> None:
        """Read a trainer's life to its end; the last event is its `exit`."""
        readers = [self._spawn(self._read_messages(trainer))]
        readers += [self._spawn(self._read_log(trainer, stream)) for stream in trainer.logs]
        status = await self._exit_status(trainer)
        trainer.gone.set()
        _, late = await asyncio.wait(readers, timeout=LAST_WORDS_S)
        for reader in late:
            reader.cancel()
        if trainer.copying:
            trainer.copying.cancel()
            readers.append(trainer.copying)
        await asyncio.gather(*readers, return_exceptions=True)
        trainer.close()
        self.logs.confess()
        self.spool.add("exit", {"status": status, "generation": generation}, urgent=True)

    async def _exit_status(self, trainer: Trainer) -> int | None:
        """The fork server's word: exit code, or minus a signal's number; None when it is gone, and the trainer too."""
        while (lines := await trainer.replies.read()) is not None:
            for line in lines:
                reply = json.loads(line)
                trainer.pid = reply.get("pid", trainer.pid)
                if "exit" in reply:
                    return int(reply["exit"])
        return None

    async def _read_messages(self, trainer: Trainer) -> None:
        while True:
            if not trainer.gone.is_set() and not await self.spool.room(GATHER_S):
                continue
            lines = await trainer.messages.read()
            if lines is None:
                return
            for line in lines:
                self._take(trainer, json.loads(line))
            await self._gather(trainer, trainer.messages)

    def _take(self, trainer: Trainer, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "examined":
            if trainer.examined and not trainer.examined.done():
                trainer.examined.set_result(message["data"])
            return
        first_step = kind == "step" and not self.steps
        self.steps = self.steps or first_step
        if kind == "step" and (size := trainer.footprint.due()) is not None:
            message["data"]["resident"] = size
        self.spool.add(kind, message["data"], message["ts"], urgent=first_step or kind in ("failed", "done", "traced"))

    async def _read_log(self, trainer: Trainer, stream: str) -> None:
        source = trainer.logs[stream]
        while (lines := await source.read()) is not None:
            self.logs.add(stream, lines)
            await self._gather(trainer, source)

    async def _gather(self, trainer: Trainer, source: Lines) -> None:
        if self.steps and not trainer.gone.is_set():
            await source.gather()


def _slots(remains: Remains | None) -> list[int]:
    if remains is not None and remains.node == _node():
        with contextlib.suppress(OSError):
            return slots.take_over(remains.pid, list(remains.fds))
    return slots.make()


def leave() -> None:
    """End this actor's process, as Ray likes it (a kill that it did itself is no crash), else anyhow."""
    threading.Timer(5.0, os._exit, (0,)).start()
    import ray

    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


def _environment(device: str) -> dict[str, str]:
    """The trainer's environment: this actor's without Ray's (whose token is not for users' code), and its devices."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    env["CUDA_VISIBLE_DEVICES"] = ",".join(_gpus()) if device == "cuda" else ""
    return env | (client.ONE_THREAD if device == "cpu" else {})


def _gpus() -> list[str]:
    import ray

    return [str(number) for number in ray.get_runtime_context().get_accelerator_ids().get("GPU", [])]


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _host() -> str:
    import ray

    return str(ray.util.get_node_ip_address())


def _raylet() -> int:
    """The raylet started this worker and outlives it: the right owner for what the node's ranks share."""
    return int(os.environ.get("RAY_RAYLET_PID") or os.getppid())


def _warm_fork_server() -> None:
    """Have the node's fork server started, and let it import what trainers need."""
    client.connect(_fork_root(), _raylet(), dict(os.environ)).close()


def _fork_root() -> Path:
    """Where the node's fork servers live: the embedded head's own folder, else one of this user and raylet."""
    own = os.environ.get(NODE_FOLDER)
    if own:
        return Path(own)
    return Path(tempfile.gettempdir()) / f"shardyard-{os.getuid()}-{_raylet()}"


def _listen(host: str) -> socket.socket:
    """A listening socket on a free port. The trainer's store takes it over, so that nobody can take the port before."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.bind((host, 0))
    listener.listen(4096)
    return listener


def _interface(host: str) -> str | None:
    """The network interface that has this address: gloo would otherwise take the host name's, which may be another."""
    import psutil

    has: Callable[[list[Any]], bool] = lambda addresses: any(address.address == host for address in addresses)  # noqa: E731
    return next((name for name, addresses in psutil.net_if_addrs().items() if has(addresses)), None)
