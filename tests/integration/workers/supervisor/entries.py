"""What trainers run in these tests instead of the training loop: real all-reduces, and misbehaviour when asked for."""

import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from shardyard.workers.messages.rendezvous import RankAssignment


def work(run: dict[str, Any], coords: RankAssignment, emit: Any, instruments: Any) -> None:
    """All-reduce the rank numbers `steps` times. `run` may hold: steps, pause, folder, held_at, misbehave {rank, step, how}.

    The ranks wait before step `held_at` while there is a file `held` in the folder.
    """
    reduce = _form_group(coords)
    if "folder" in run:
        Path(run["folder"], f"{coords.rank}.pid").write_text(str(os.getpid()))
    if coords.rank == 0:
        emit("plan", {"world_size": coords.world_size})
    print(f"rank {coords.rank} starts", flush=True)
    for step in range(1, run.get("steps", 5) + 1):
        if instruments.stop_request():
            return
        if step == run.get("held_at"):
            _stick(Path(run["folder"], "held"))
        if run.get("misbehave", {}).items() >= {"rank": coords.rank, "step": step}.items():
            MISBEHAVIOUR[run["misbehave"]["how"]](run)
        began = time.monotonic()
        total = reduce(coords.rank)
        time.sleep(run.get("pause", 0.0))
        record: dict[str, Any] = {"step": step, "step_s": time.monotonic() - began}
        emit("step", record | ({"loss": total} if coords.rank == 0 else {}))
    if coords.rank == 0:
        emit("summary", {"steps": run.get("steps", 5)})


def _text(file: Path) -> str | None:
    """What is in a file that a test may remove at any moment; None where it is not there."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return None


def train(run: dict[str, Any], coords: RankAssignment, emit: Any, instruments: Any) -> None:
    """The real training loop, which says in `folder` what its process is.

    What a test puts there happens before a step: while `{rank}.stuck` is there the rank is stuck, once this process has done as many steps
    as are written in it, and while `{pid}.stuck` is, this process alone; while `{rank}.slow` is, the rank sleeps for the seconds in it;
    when `{rank}.flip` is, it flips a bit of its parameters; when `{rank}.full` is, it cannot write files beyond their first page.
    """
    from shardyard.workers.spec import Run

    Path(run["folder"], f"{coords.rank}.pid").write_text(str(os.getpid()))
    assemble, built = _built()
    stuck, slow, flip, full = (Path(run["folder"], f"{coords.rank}.{how}") for how in ("stuck", "slow", "flip", "full"))

    stuck_alone = Path(run["folder"], f"{os.getpid()}.stuck")
    asked = count()

    def stop_or_stick() -> Any:
        if stuck_alone.exists():
            _stick(stuck_alone)
        steps, seconds = _text(stuck), _text(slow)
        if steps is not None and next(asked) >= int(steps or 0):
            _stick(stuck)
        if seconds is not None:
            time.sleep(float(seconds))
        if flip.exists():
            flip.unlink()
            _flip_a_bit(built[0])
        if full.exists():
            full.unlink()
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        return instruments.stop_request()

    assemble.train(Run.model_validate(run["run"]), coords, emit, replace(instruments, stop_request=stop_or_stick))


def _built() -> tuple[Any, list[Any]]:
    """The module that assembles a loop, and what it will have built when it trains."""
    from shardyard.workers.trainer import assemble

    allocate, built = assemble.allocate, list[Any]()
    assemble.allocate = lambda *given: built.append(allocate(*given)) or built[0]  # type: ignore[func-returns-value]
    return assemble, built


def _flip_a_bit(built: Any) -> None:
    import torch

    built.parallel.data.settle()
    value = next(p for part in built.parallel.parts for p in part.parameters())
    value.detach().view(torch.uint8).view(-1)[3] ^= 1


def _stick(while_there: Path) -> None:
    print("this rank is stuck", flush=True)
    while while_there.exists():
        time.sleep(0.02)


def _form_group(coords: RankAssignment) -> Any:
    import torch
    import torch.distributed as dist

    timeout = timedelta(seconds=60)
    store = dist.TCPStore(
        coords.master_host,
        coords.master_port,
        coords.world_size,
        is_master=coords.rank == 0,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=coords.master_fd,
    )
    if coords.interface:
        os.environ["GLOO_SOCKET_IFNAME"] = coords.interface
    dist.init_process_group("gloo", store=store, rank=coords.rank, world_size=coords.world_size, timeout=timeout)

    def reduce(number: float) -> float:
        tensor = torch.tensor([float(number)])
        dist.all_reduce(tensor)
        return float(tensor)

    return reduce


def _raise(_: dict[str, Any]) -> None:
    raise ValueError("no such luck")


def _exit(_: dict[str, Any]) -> None:
    os._exit(3)


def _abort(_: dict[str, Any]) -> None:
    """As torch's NCCL watchdog does when a collective has timed out."""
    watchdog = (
        "[rank1]:[E1124 17:02:11.408 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: "
    )
    print(watchdog + "WorkNCCL(SeqNum=58, OpType=ALLREDUCE, Timeout(ms)=600000)", file=sys.stderr, flush=True)
    os.abort()


def _shout(_: dict[str, Any]) -> None:
    for number in range(100_000):
        print(f"line {number} " + "x" * 60)


def _breed(run: dict[str, Any]) -> None:
    """Leave a child of one's own behind that would outlive us."""
    child = subprocess.Popen(["sleep", "600"])
    Path(run["folder"], "child.pid").write_text(str(child.pid))


MISBEHAVIOUR = {"raise": _raise, "exit": _exit, "abort": _abort, "shout": _shout, "breed": _breed}
