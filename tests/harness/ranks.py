"""Runs a training spec on N real processes over gloo and brings back its losses and its final parameters."""

import faulthandler
import gc
import multiprocessing
import os
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from shardyard.workers.spec import Run, TrainSpec

from .patience import PATIENCE_S

PRELOAD = [
    "torch",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "shardyard.workers.trainer.assemble",
    "harness.warm_ranks",
]

Result = dict[str, Any]
T = TypeVar("T")


def train(
    spec: dict[str, Any],
    root: Path,
    name: str = "job",
    resume: Path | str | None = None,
    device: str = "cpu",
    work: Any = None,
    patience_s: float = PATIENCE_S,
) -> Result:
    """`{"losses": [per step], "events": [(kind, data)] of rank 0, "parameters": {name: array}}` of the run.

    `work` is done by each rank instead of `train_rank`, which it may call. `patience_s`: for their results.
    """
    wanted = TrainSpec.model_validate(spec)
    run = Run(
        job=name,
        train=wanted,
        checkpoints=wanted.checkpoints(str(root / "checkpoints"), name),
        cache=root / "cache",
        resume=resume,
        device=device,
    )
    results = spawn(work or train_rank, run.train.layout.world_size, run.model_dump_json(), patience_s=patience_s)
    events = results[0]["events"]
    return {
        "events": events,
        "losses": [data["loss"] for kind, data in events if kind == "step"],
        "norms": [data.get("grad_norm") for kind, data in events if kind == "step"],
        "parameters": whole_parameters(results),
    }


def spawn(work: Any, world: int, *arguments: Any, patience_s: float = PATIENCE_S, until_all: bool = True) -> list[Any]:
    """`work(rank, world, port, *arguments)` on `world` processes forked from one warm server.

    A rank that fails fails the call with its traceback; of several that failed by now, the first, by which the others may have failed.
    Ranks with results stay until all have them (`until_all`): a peer may still wait for its side of a connection that is complete on
    theirs.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    pipes, processes = [], []
    try:
        for rank in range(world):
            mine, theirs = context.Pipe()
            process = context.Process(
                target=_enter, args=(theirs, work, rank, world, store.port, arguments, until_all), daemon=True
            )
            process.start()
            theirs.close()
            pipes.append(mine)
            processes.append(process)
        return _collect(pipes, processes, patience_s)
    finally:
        for process in processes:
            process.kill()
            process.join(PATIENCE_S)
        for pipe in pipes:
            pipe.close()


def _collect(pipes: list[Any], processes: list[Any], patience_s: float) -> list[Any]:
    results: list[Any] = [None] * len(pipes)
    waiting = {pipe: rank for rank, pipe in enumerate(pipes)}
    failed: list[tuple[float, int, str]] = []
    while waiting:
        ready: list[Any] = multiprocessing.connection.wait(list(waiting), patience_s)
        if not ready:
            raise TimeoutError(f"ranks {sorted(waiting.values())} gave no result within {patience_s} s")
        for pipe in ready:
            rank = waiting.pop(pipe)
            try:
                moment, results[rank] = pipe.recv()
            except EOFError:
                processes[rank].join(PATIENCE_S)
                raise RuntimeError(f"rank {rank} died without a word: {processes[rank]}") from None
            if moment is not None:
                failed.append((moment, rank, results[rank]))
        if failed:
            _, rank, text = min(failed)
            raise RuntimeError(f"rank {rank}:\n{text}")
    return results


def _enter(pipe: Any, work: Any, rank: int, world: int, port: int, arguments: tuple[Any, ...], until_all: bool) -> None:
    gc.freeze()  # no rank goes through what the server imported
    os.environ["OMP_NUM_THREADS"] = "1"
    _say_where_it_crashed()
    warnings.filterwarnings("error", "Pydantic serializer warnings")  # an event's value is not of its field's type
    try:
        pipe.send((None, work(rank, world, port, *arguments)))
    except BaseException:
        pipe.send((time.monotonic(), traceback.format_exc()))
    if until_all:
        pipe.poll(None)
    # Leave without waiting for threads: the result is out.
    pipe.close()
    os._exit(0)


def _say_where_it_crashed() -> None:
    """The stacks of all threads on a fatal signal: Python's, and those of C++, in which gloo has threads of its own."""
    import torch

    faulthandler.enable()
    torch._C._set_print_stack_traces_on_fatal_signal(True)


def group(rank: int, world: int, port: int, kind: str = "cpu", limit_s: float = PATIENCE_S) -> Any:
    """Form the world's group on the harness' store, gloo or (one GPU per rank) NCCL; returns the device.

    `limit_s`: seconds after which a collective fails.
    """
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    from shardyard.workers.world import form_world

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, None, is_master=False, timeout=timedelta(seconds=PATIENCE_S))  # type: ignore[attr-defined]
    device = torch.device("cpu")
    if kind == "cuda":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    form_world(device, store=store, rank=rank, world_size=world, timeout=timedelta(seconds=limit_s))
    return device


def train_rank(rank: int, world: int, port: int, orders: str, prepared: Any = None, memory: Any = None) -> Result:
    """One rank's events and shards. `prepared(parts)` returns the instruments of a run that is watched or disturbed.

    `memory`: its `SnapshotMemory`, if it takes snapshots or restores one.
    """
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import allocate
    from shardyard.workers.trainer.instruments import Instruments
    from shardyard.workers.trainer.restore import NO_SNAPSHOTS

    run = Run.model_validate_json(orders)
    device = group(rank, world, port, run.device)
    events: list[Any] = []
    mesh = make_mesh(run.train.layout, device)
    built = allocate(run, mesh)
    instruments = prepared(built) if prepared else Instruments()
    assemble(built, lambda kind, data: events.append((kind, data)), instruments, memory or NO_SNAPSHOTS).run()
    kept = [*built.parallel.data.shards, *built.parallel.balance.shards]
    shards = [(p.name, p.shape, p.offset, p.tensor.cpu().numpy()) for p in kept if p.owned(mesh)]
    return {"events": events, "shards": shards}


def callback_of(loop: Any, kind: type[T]) -> T:
    """The loop's callback of this kind."""
    return next(callback for callback in loop.callbacks.ordered if isinstance(callback, kind))


def whole_parameters(results: list[Result]) -> dict[str, Any]:
    """The parameters by name, of the shards of all ranks."""
    whole: dict[str, Any] = {}
    for name, shape, offset, tensor in (shard for result in results for shard in result["shards"]):
        target = whole.setdefault(name, np.full(shape, np.nan, dtype=tensor.dtype))
        where = tuple(slice(start, start + length) for start, length in zip(offset, tensor.shape, strict=True))
        assert np.isnan(target[where]).all(), f"{name}: two ranks own the same slice"
        target[where] = tensor
    for name, value in whole.items():
        assert not np.isnan(value).any(), f"{name}: a slice that no rank owns"
    return whole


def assert_checkpoints_fit(first: Any, then: Any, root: Path, make_spec: Any, one_process: Any) -> None:
    """A run on the layout `first` saves a checkpoint, and one on `then` continues from it as one process does without a stop."""
    saved = train(make_spec(first, checkpoint={"every": 3, "final": False}), root, f"of {first}")
    (path,) = [Path(data["path"]) for kind, data in saved["events"] if kind == "checkpoint"]
    resumed = train(make_spec(then), root, f"of {first}, then {then}", resume=path)
    whole = one_process(make_spec({}))
    np.testing.assert_allclose(resumed["losses"], whole["losses"][3:], rtol=1e-10)
    for key, value in whole["parameters"].items():
        np.testing.assert_allclose(resumed["parameters"][key], value, rtol=0, atol=1e-10, err_msg=key)
