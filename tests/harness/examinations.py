"""Ranks of a gang without progress, as their actors report them: made up for gloo, and read from recorded dumps for NCCL."""

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardyard.workers.supervisor.policies.examination import Examination
from shardyard.workers.trainer.recorded_groups import read_dump

DUMPS = Path(__file__).parents[1] / "data" / "nccl"
WORLD = (0, 1, 2, 3)
COMPUTES = ("main", ("loop.py:1 in run", "llama.py:40 in forward"))
WAITS = ("main", ("loop.py:1 in run", "torch/_ops.py:9 in __call__"))
RECEIVES = ("main", ("loop.py:1 in run", "torch/distributed/pipelining/schedules.py:400 in _wait_batch_p2p"))


def rank(number: int, stack: Any = WAITS, groups: Sequence[tuple[Any, ...]] = (), **more: Any) -> Examination:
    """`groups`: (name, ranks, entered) or (name, ranks, entered, op, seq)."""
    keys = ("group", "ranks", "entered", "op", "seq")
    collectives = [dict(zip(keys, group, strict=False)) for group in groups]
    stacks = [{"thread": stack[0], "frames": stack[1]}] if stack else []
    facts = {"state": "S", "phase": "step", "step": 7, "idle_s": 40.0, "stacks": stacks, "collectives": collectives}
    return Examination.of(number, json.loads(json.dumps(facts | more)))


def waits(number: int, group: str = "world", ranks: tuple[int, ...] = WORLD, op: str = "all_reduce") -> Examination:
    return rank(number, WAITS, [(group, ranks, 58, op, 58)])


def recorded(name: str) -> list[Examination]:
    """The ranks of `tests/data/nccl/{name}.json`."""
    ranks = json.loads((DUMPS / f"{name}.json").read_text())["ranks"]
    return [_recorded(number, one) for number, one in enumerate(ranks)]


def _recorded(number: int, one: dict[str, Any]) -> Examination:
    dump = one["dump"]
    groups = {name: ast.literal_eval(group["ranks"]) for name, group in dump["pg_config"].items()}
    records = [record.to_json() for record in read_dump(dump, groups)]
    stacks = [{"thread": "MainThread", "frames": one["frames"], "call": one["call"]}]
    return rank(number, stack=None, stacks=stacks, collectives=records)
