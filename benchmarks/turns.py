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
from itertools import pairwise
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
    ahead: dict[str, Any] = {}
    conductor.send({"ready": side.rank})
    while True:
        name, steps, traced = conductor.recv()
        read = partial(_batch, tokens, engines[name].rows)
        batches = [ahead[name] if name in ahead else read(done[name])]
        batches += [read(step) for step in range(done[name] + 1, done[name] + steps + 1)]
        ahead[name] = batches[-1]
        conductor.send(_turn(engines[name], batches, traced))
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


def _turn(engine: Any, batches: list[Any], traced: bool) -> dict[str, Any]:
    """A step with each batch but the last, from a common start until all that they sent has arrived.

    The last one is the first of the next turn: a pipeline that is not flushed has begun it. `traced`: the turn is one step of a trace.
    """
    import torch.distributed as dist

    losses = []

    def train() -> None:
        for batch, following in pairwise(batches):
            engine.expect(lambda following=following: following)
            losses.append(engine.step(*batch))

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
