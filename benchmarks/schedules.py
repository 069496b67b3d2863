"""Pipeline schedules that split backward passes beside 1F1B: real decoder blocks, two stages' worth of them per rank, one thread each.

    python benchmarks/schedules.py [--micro-batches 4 8] [--rounds 8] [--traces 5] [--only zb-h1 zbv] [--experts]

All schedules train one model on one stream of batches, and take turns as in `engines.py`: a ratio is taken within a round, and its
median, minimum and maximum over the rounds are printed. Then each has some traced steps. A rank's bubble is the share of the
schedule in which it computes nothing; `simulated` is that of all ranks with the same durations and free messages.

`--experts`: a mixture on four ranks, two stages by two replicas that share the experts. Its traces also have the share of the
all-to-alls' time in which the training thread did not wait for them: what was hidden behind computing. DualPipeV runs a second time
beside itself, with pairs whose passes run one after the other.

Give each rank a core, and run nothing else: a rank that waits must not lend its core to another one.
"""

import argparse
import contextlib
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engines import STEPS, Ranks, Turn, beside, in_turns, workplace

BASE = "1f1b"
SCHEDULES = (BASE, "zb-h1", "zb-h2", "zbv", "interleaved-zb", "dualpipev")
#: How `contenders.py` calls DualPipeV's variant whose pairs are not overlapped.
IN_ORDER = "in order"
#: Eight blocks, so that each rank has as many with one stage as with two; a small vocabulary, so that the head is no ninth.
SIZES = {"layers": 8, "dim": 256, "heads": 8, "kv_heads": 4, "vocab": 512}
DENSE = {"family": "llama", "preset": "nano", "hidden": 1024, **SIZES}
MIXTURE = {"family": "moe", "preset": "nano", "hidden": 512, "experts": 4, "top_k": 2, **SIZES}


def train_spec(microbatches: int, options: argparse.Namespace, corpus: Path) -> dict[str, Any]:
    """`microbatches` of one sequence each, of every replica."""
    return {
        "model": MIXTURE if options.experts else DENSE,
        "data": {"seq_len": options.seq_len, "source": "text", "files": [str(corpus)]},
        "overlap": {},
        "optimizer": {"lr": 1e-4},
        "steps": 10**6,
        "global_batch": (2 if options.experts else 1) * microbatches,
    }


def measure(microbatches: int, options: argparse.Namespace) -> tuple[dict[str, list[Turn]], dict[str, list[Turn]]]:
    """`{schedule: [its turn in each round]}`, and `{schedule: [its traced steps]}`."""
    suffix = "+experts" if options.experts else ""
    names = {name: f"ours {name}{suffix}" for name in SCHEDULES if name == BASE or name in options.only}
    if options.experts and "dualpipev" in names:
        names[f"dualpipev {IN_ORDER}"] = f"{names['dualpipev']} {IN_ORDER}"
    with contextlib.ExitStack() as stack:
        folder, corpus = stack.enter_context(workplace())
        orders: dict[str, Any] = {"ranks": 4 if options.experts else 2, "engines": list(names.values())}
        orders |= {"train": train_spec(microbatches, options, corpus), "cache": str(folder)}
        ranks = Ranks(sys.executable, orders, stack, folder)
        turns = in_turns(dict.fromkeys(names.values(), ranks), options.rounds)
        traced = {
            name: [ranks.turn(engine, 1, traced=True) for _ in range(options.traces)] for name, engine in names.items()
        }
    return {name: turns[engine] for name, engine in names.items()}, traced


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f}–{max(values):.3f})"


def mean_bubble(steps: Sequence[Turn]) -> float:
    """The mean over ranks, and the median of that over the traced steps."""
    return statistics.median(statistics.fmean(trace["bubble"] for trace in step.traces) for step in steps)


def show(turns: dict[str, list[Turn]], traced: dict[str, list[Turn]], experts: bool) -> None:
    print(f"  {'':<18} × {BASE} by the clock   by processor time")
    for name, own in turns.items():
        print(f"  {name:<18} {beside(own, turns[BASE])}")
    print(f"  {'':<18} bubble of each rank, simulated")
    for name, steps in traced.items():
        below = (
            ""
            if name == BASE
            else f"   below {BASE}: {'yes' if mean_bubble(steps) < mean_bubble(traced[BASE]) else 'no'}"
        )
        print(f"  {name:<18} {_by_rank(steps, lambda trace: trace['bubble'])}   simulated {_simulated(steps)}{below}")
    if experts:
        print(f"  {'':<18} share of the all-to-alls' time that each rank computed")
        for name, steps in traced.items():
            print(f"  {name:<18} {_by_rank(steps, lambda trace: 1 - trace['waited_s'] / trace['exchange_s'])}")


def _by_rank(steps: Sequence[Turn], value: Callable[[dict[str, float]], float]) -> str:
    ranks = zip(*([value(trace) for trace in step.traces] for step in steps), strict=True)
    return "   ".join(spread(values) for values in ranks)


def _simulated(steps: Sequence[Turn]) -> str:
    return spread([step.traces[0]["simulated"] for step in steps])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--traces", type=int, default=5, help="traced steps of each schedule")
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--experts", action="store_true", help="a mixture of experts on four ranks")
    parser.add_argument("--only", nargs="+", metavar="SCHEDULE", choices=SCHEDULES, default=SCHEDULES)
    options = parser.parse_args()
    for microbatches in options.micro_batches:
        print(
            f"{microbatches} micro-batches of {options.seq_len} tokens, {options.rounds} rounds of {STEPS} steps, "
            f"{options.traces} traced steps",
            flush=True,
        )
        show(*measure(microbatches, options), options.experts)


if __name__ == "__main__":
    main()
