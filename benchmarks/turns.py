"""One rank of a side of the comparison: builds its engines, then takes turns on command, and sleeps in between.

    python benchmarks/turns.py ADDRESS

The orders come over a local socket, as do the answers, so that engines of different environments can alternate: the conductor
(`engines.py`) has at most one engine run at any time.
"""

import os
import sys
import time
import traceback
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

KEY = b"turns"


@dataclass(frozen=True)
class Side:
    """Orders to the ranks of one environment: which engines to make, of what, and where the ranks find each other."""

    rank: int
    ranks: int
    port: int
    engines: list[str]
    train: dict[str, Any]
    cache: str


def main(address: str) -> None:
    with Client(address, authkey=KEY) as conductor:
        try:
            _serve(Side(**conductor.recv()), conductor)
        except EOFError:
            return  # the conductor is done
        except BaseException:
            conductor.send({"failed": traceback.format_exc()})
            raise


def _serve(side: Side, conductor: Connection) -> None:
    _form(side)
    from contenders import Contenders

    contenders = Contenders(side.train, Path(side.cache))
    engines = {name: contenders.make(name) for name in side.engines}
    tokens = _tokens(contenders.spec, side.cache)
    done = dict.fromkeys(engines, 0)
    beyond = max(1, side.ranks - 1)  # steps that a pipeline without a flush has begun at the end of a turn
    ahead: dict[str, list[Any]] = {}
    conductor.send({"ready": side.rank})
    while True:
        name, steps, traced = conductor.recv()
        read = partial(_batch, tokens, engines[name].rows)
        batches = ahead[name] if name in ahead else [read(step) for step in range(beyond)]
        batches = batches + [read(done[name] + beyond + step) for step in range(steps)]
        ahead[name] = batches[-beyond:]
        conductor.send(_turn(engines[name], batches, steps, traced))
        done[name] += steps


def _form(side: Side) -> None:
    """The process group, one thread per rank. DeepSpeed asks for torchrun's variables."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ |= {"RANK": str(side.rank), "LOCAL_RANK": str(side.rank), "WORLD_SIZE": str(side.ranks)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(side.port)}
    store = dist.TCPStore("127.0.0.1", side.port, None, is_master=False)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=side.rank, world_size=side.ranks)


def _tokens(spec: Any, cache: str) -> Any:
    from shardyard.workers.data.dataset import open_tokens

    return open_tokens(spec.data, Path(cache), seed=spec.seed, global_batch=spec.global_batch)


def _batch(tokens: Any, rows: Any, step: int) -> Any:
    return tokens.batch(step * tokens.global_batch, rows)


def _turn(engine: Any, batches: list[Any], steps: int, traced: bool) -> dict[str, Any]:
    """A step with each of the first `steps` batches, from a common start until all that they sent has arrived.

    The others are the first of the next turn: a pipeline that is not flushed has begun them. `traced`: the turn is one step of a trace.
    """
    import torch.distributed as dist

    losses = []

    def train() -> None:
        for at in range(steps):
            engine.expect(lambda number=1, at=at: batches[at + number], len(batches) - 1 - at)
            losses.append(engine.step(*batches[at]))

    dist.barrier()
    began, worked = time.perf_counter(), time.process_time()
    trace = {}
    if traced:
        trace = engine.trace(train)
    else:
        train()
    engine.settle()
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    return {"seconds": seconds, "worked": worked, "losses": [loss.item() for loss in losses], "trace": trace}


if __name__ == "__main__":
    main(sys.argv[1])
