"""Tokens/s of one model in the engines that could train it: our ZeRO stages and tensor parallelism, torch's, DeepSpeed's.

    python benchmarks/engines.py [--ranks 2 4] [--rounds 20] [--deepspeed VENV] [--only "ours zero-1" "torch DDP"]
    python benchmarks/engines.py --only "ours zero-3" "ours zero-3 prefetch 1" "torch FSDP2" --base "torch FSDP2"
    python benchmarks/engines.py --ranks 8 --rounds 6 --only "ours TP" "ours 2.5-D" "ours 3-D" --base "ours TP"

All engines live at once, one process per rank (DeepSpeed's ranks are processes of the environment VENV, which also needs numpy and
pydantic), and take turns of a few steps; in each round every engine has one turn, and the order rotates. A ratio is taken within a
round, so that a busy machine is busy for both sides; its median, minimum and maximum over the rounds are printed. Beside tokens/s of
the clock stand tokens per second of processor time (all threads of all ranks): what an engine costs where ranks share cores, and far
steadier on a busy machine; it knows nothing of waiting.
"""

import argparse
import contextlib
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from turns import KEY

ROOT = Path(__file__).parents[1]
STEPS = 4  # per turn
LAYERS = 8
STAGES = [f"ours zero-{stage}" for stage in range(4)]
HOME = [*STAGES, "torch DDP", "torch FSDP2", "torch FSDP2 without reshard", "torch alone", "ours TP", "torch TP"]
HOME += [
    "ours 2-D",
    "ours 2.5-D",
    "ours 3-D",
    "ours 1f1b",
    "ours zb-h1",
    "ours zb-h2",
    "ours zbv",
    "ours interleaved-zb",
    "ours dualpipev",
    "ours 2bw",
    "ours pipedream",
    "ours parameter-server",
    "ours parameter-server-stale",
    "ours parameter-server-async",
]
DEEPSPEED = ["deepspeed zero-1", "deepspeed zero-2"]
#: Run when `--only` names them: ours with one thing changed, FSDP2 with its own default of resharding.
VARIANTS = [
    *(f"ours zero-3 prefetch {depth}" for depth in (1, 2, 3, 4)),
    *(f"ours zero-3 {what}" for what in ("torch's messages", "torch's all-gather", "torch's reduce-scatter")),
    "ours zero-3 waiting all-to-all",
    "torch FSDP2 as it comes",
    "ours TP chunks 4",
]
ENGINES = (*HOME, *VARIANTS, *DEEPSPEED)
#: (ours, theirs, at least)
TARGETS = [
    ("ours zero-0", "torch DDP", 1.0),
    *(
        (f"ours zero-{stage}", other, least)
        for stage in (1, 2)
        for other, least in (("torch FSDP2 without reshard", 1.15), (f"deepspeed zero-{stage}", 1.2))
    ),
    ("ours zero-3", "torch FSDP2", 1.1),
    ("ours TP", "torch TP", None),
    ("ours TP chunks 4", "ours TP", None),
    ("ours 2-D", "ours TP", None),
    ("ours 2.5-D", "ours TP", None),
    ("ours 3-D", "ours TP", None),
    *(
        (f"ours {schedule}", "ours 1f1b", None)
        for schedule in ("zb-h1", "zb-h2", "zbv", "interleaved-zb", "dualpipev", "2bw", "pipedream")
    ),
    ("ours parameter-server", "torch DDP", None),
    *(
        (f"ours parameter-server-{mode}", other, None)
        for mode in ("stale", "async")
        for other in ("ours parameter-server", "torch DDP")
    ),
]
#: Engines whose losses are the others' only in their first step: alone, ranks part; delayed gradients come a step later; and servers
#: apply each worker's gradients by themselves.
PARTING = ("torch alone", "ours 2bw", "ours pipedream", "ours parameter-server-stale", "ours parameter-server-async")
#: Each has processes of its own: its servers take all requests that arrive in the world's group.
OWN_CLOCKS = ("ours parameter-server-stale", "ours parameter-server-async")


def train_spec(ranks: int, options: argparse.Namespace, corpus: Path) -> dict[str, Any]:
    """A Llama of 10.0M parameters on bytes (its vocabulary has room for more); of 10.5M where tensor parallelism divides eight heads."""
    sizes = {
        "layers": LAYERS,
        "dim": 256,
        "heads": 8,
        "kv_heads": 4 if ranks <= 4 else 8,
        "hidden": 1024,
        "vocab": 4096,
    }
    return {
        "model": {"family": "llama", "preset": "nano", **sizes},
        "data": {"seq_len": options.seq_len, "source": "text", "files": [str(corpus)]},
        "overlap": {} if options.bucket_mb is None else {"bucket_mb": options.bucket_mb},
        "optimizer": {"lr": 1e-4},  # small: AdamW's first steps are the gradient's signs, which rounding may turn
        "steps": 10**6,
        "global_batch": ranks * options.sequences,
    }


@dataclass(frozen=True)
class Turn:
    """Seconds of the slowest rank, processor seconds of all ranks, each step's loss, and what each rank's trace says, if there is one."""

    seconds: float
    worked: float
    losses: list[float]
    traces: list[dict[str, float]] = field(default_factory=list)


class Ranks:
    """The processes of one environment, and the way to send them commands."""

    def __init__(self, python: str, orders: dict[str, Any], stack: contextlib.ExitStack, folder: Path) -> None:
        import torch.distributed as dist

        address = str(folder / f"turns-{len(list(folder.glob('turns-*')))}")
        listener = stack.enter_context(Listener(address, authkey=KEY, backlog=64))
        self._store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
        command = [python, str(ROOT / "benchmarks" / "turns.py"), address]
        self._pipes: list[Connection] = []
        for rank in range(orders["ranks"]):
            process = subprocess.Popen(command, env=_environment(), stdout=subprocess.DEVNULL)
            stack.callback(_end, process)
            self._pipes.append(stack.enter_context(listener.accept()))
            self._pipes[-1].send({**orders, "rank": rank, "port": self._store.port})
        self._answers()

    def turn(self, engine: str, steps: int, *, traced: bool = False) -> Turn:
        for pipe in self._pipes:
            pipe.send((engine, steps, traced))
        answers = self._answers()
        losses = [sum(shares) for shares in zip(*(answer["losses"] for answer in answers), strict=True)]
        worked = sum(answer["worked"] for answer in answers)
        traces = [answer["trace"] for answer in answers if answer["trace"]]
        return Turn(max(answer["seconds"] for answer in answers), worked, losses, traces)

    def _answers(self) -> list[dict[str, Any]]:
        answers = []
        for pipe in self._pipes:
            if not pipe.poll(600):
                raise TimeoutError("a rank has not answered for ten minutes")
            answers.append(pipe.recv())
            if "failed" in answers[-1]:
                raise RuntimeError(answers[-1]["failed"])
        return answers


def _environment() -> dict[str, str]:
    path = f"{ROOT / 'typings'}{os.pathsep}{ROOT / 'tests' / 'bench'}"
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


@contextlib.contextmanager
def workplace() -> Iterator[tuple[Path, Path]]:
    """A folder, which is removed afterwards, and a text in it."""
    folder = Path(tempfile.mkdtemp(prefix="se-"))
    corpus = folder / "corpus.txt"
    corpus.write_bytes(b"".join(file.read_bytes() for file in sorted((ROOT / "strategies").glob("*.py"))))
    try:
        yield folder, corpus
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def sides(ranks: int, options: argparse.Namespace) -> Iterator[dict[str, Ranks]]:
    """Engine → the processes that hold it."""
    asked = options.only or (*HOME, *DEEPSPEED)
    chosen = [name for name in ENGINES if name in asked and fits(name, ranks)]
    with contextlib.ExitStack() as stack:
        folder, corpus = stack.enter_context(workplace())
        orders = {"ranks": ranks, "train": train_spec(ranks, options, corpus), "cache": str(folder)}
        found: dict[str, Ranks] = {}
        for python, names in (
            (sys.executable, [name for name in (*HOME, *VARIANTS) if name not in OWN_CLOCKS]),
            *((sys.executable, [name]) for name in OWN_CLOCKS),
            (options.deepspeed and f"{options.deepspeed}/bin/python", DEEPSPEED),
        ):
            here = [name for name in names if name in chosen]
            if python and here:
                held = Ranks(python, {**orders, "engines": here}, stack, folder)
                found |= dict.fromkeys(here, held)
        yield found


def fits(name: str, ranks: int) -> bool:
    """A grid needs a square number of ranks; grids as deep as wide, and a cube, a cubic one; two stages per rank a layer for each."""
    if name in ("ours zbv", "ours interleaved-zb", "ours dualpipev"):
        return 2 * ranks <= LAYERS
    if name in ("ours 2.5-D", "ours 3-D"):
        side: int = round(ranks ** (1 / 3))
        return side * side * side == ranks > 1
    return name != "ours 2-D" or math.isqrt(ranks) ** 2 == ranks


def measure(ranks: int, options: argparse.Namespace) -> dict[str, list[Turn]]:
    """`{engine: [its turn in each round]}`."""
    with sides(ranks, options) as found:
        return in_turns(found, options.rounds)


def in_turns(found: Mapping[str, Ranks], rounds: int) -> dict[str, list[Turn]]:
    """`{engine: [its turn in each round]}`, after a first turn in which their losses are compared."""
    check_losses({name: held.turn(name, STEPS).losses for name, held in found.items()})
    turns: dict[str, list[Turn]] = {name: [] for name in found}
    names = list(found)
    for number in range(rounds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            turns[name].append(found[name].turn(name, STEPS))
    return turns


def check_losses(losses: dict[str, list[float]]) -> None:
    """All engines train the same model on the same tokens: the same curve but for fp32's rounding, or but for `PARTING`."""
    first = next(iter(losses.values()))
    for name, values in losses.items():
        alike = 1 if name in PARTING else STEPS
        worst = max(abs(a / b - 1) for a, b in zip(values[:alike], first[:alike], strict=True))
        if worst > 1e-3 and not name.startswith("deepspeed"):
            raise RuntimeError(f"{name} trains something else: losses {values}, not {first}")
        if worst > 1e-3:  # not ours to repair: its time is that of the work it does, but say so
            print(f"  {name} trains otherwise: its loss is off by up to {worst:.1e} in {STEPS} steps", flush=True)


def ratio(above: list[float], below: list[float]) -> str:
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def beside(ours: list[Turn], theirs: list[Turn]) -> str:
    """How many times as fast, by the clock and by processor time."""
    clock = ratio([turn.seconds for turn in theirs], [turn.seconds for turn in ours])
    return f"{clock}   {ratio([turn.worked for turn in theirs], [turn.worked for turn in ours])}"


def show(turns: dict[str, list[Turn]], tokens: int, base: str) -> None:
    print(f"  {'':<44} tokens/s   × {base}: by the clock, by processor time")
    for name, own in turns.items():
        speed = tokens / statistics.median(turn.seconds for turn in own)
        print(f"  {name:<44} {speed:7.0f}    {beside(own, turns[base]) if base in turns else ''}")
    for ours, theirs, least in TARGETS:
        if ours in turns and theirs in turns:
            target = "" if least is None else f"   target ≥ {least}"
            print(f"  {ours + ' / ' + theirs:<44} {'':>7}    {beside(turns[ours], turns[theirs])}{target}")


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sequences", type=int, default=2, help="per rank and step")
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--bucket-mb", type=float, help="overlap.bucket_mb of ours; default: the spec's")
    parser.add_argument("--deepspeed", metavar="VENV", help="an environment with torch, deepspeed, numpy and pydantic")
    parser.add_argument("--only", nargs="+", metavar="ENGINE", choices=ENGINES, help=f"of {', '.join(ENGINES)}")
    parser.add_argument(
        "--base", metavar="ENGINE", choices=ENGINES, default="torch DDP", help="what all are compared with"
    )
    return parser


def main() -> None:
    options = command_line().parse_args()
    for ranks in options.ranks:
        print(
            f"{ranks} ranks, {options.sequences} × {options.seq_len} tokens each, {options.rounds} rounds", flush=True
        )
        show(measure(ranks, options), STEPS * ranks * options.sequences * options.seq_len, options.base)
    if not options.deepspeed:
        print("  deepspeed: not measured, no environment was given (--deepspeed)")


if __name__ == "__main__":
    main()
