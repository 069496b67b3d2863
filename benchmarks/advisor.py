"""The layout advisor's pick among all legal layouts of a small model, each trained on this machine's CPUs.

    python benchmarks/advisor.py [--ranks 2 4] [--rounds 5] [--sample 100 --seed 0]

The advisor gets what it measures here: a small step in one process, and the collectives of as many ranks. Then all layouts are trained, a
few at a time together with the pick: all of a group live at once, and take turns of a few steps, in an order that rotates. A layout's time
is the ratio to the pick's in the same round, so a busy machine is busy for both. The pick's rank is one more than the number of layouts
whose median ratio is below 1, and its distance from the best is the inverse of the least median. `--sample` draws that many layouts in the
place of all; `--recompute` names modes beside `none`, which only add time where memory does not matter.
"""

import argparse
import contextlib
import json
import os
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engines import STEPS, Ranks, in_turns, train_spec, workplace

from shardyard.api.cli.commands.local_hardware import measured_here
from shardyard.service.jobs.advice import AdviceRequest, Cpus, question
from shardyard.strategies.advisor.step_time import step_time
from shardyard.strategies.layout import Refusal
from shardyard.workers.advisor.known_hardware import Given, as_measured
from shardyard.workers.advisor.search import Question, advise, candidates
from shardyard.workers.host_memory import total_memory
from shardyard.workers.spec import TrainSpec


@dataclass(frozen=True)
class Candidate:
    """A legal layout. `name`: that of its engine; `estimated`: the advisor's seconds of a step."""

    name: str
    words: str
    estimated: float


def asked(train: TrainSpec, ranks: int) -> Question:
    """The advisor's question, on this machine as it is measured now."""
    architecture = train.architecture(256)
    given = Given()
    cores = len(os.sched_getaffinity(0))
    found = question(train, architecture, AdviceRequest(ranks, Cpus(cores, total_memory() or None), 1, given))
    measured = as_measured(found.hardware, measured_here(train, 256, ranks), given)
    return Question(train, found.architecture, measured, ranks, 1)


def legal(ask: Question, modes: Sequence[str]) -> Iterator[Candidate]:
    """Every candidate that the rules allow, with one of these recompute modes."""
    for train in candidates(ask):
        if train.recompute.mode not in modes:
            continue
        with contextlib.suppress(Refusal):
            yield candidate(train, step_time(ask.setting(train), ask.hardware).seconds)


def candidate(train: TrainSpec, seconds: float) -> Candidate:
    keys = {
        "layout": train.layout.model_dump(mode="json", exclude_defaults=True),
        "recompute": train.recompute.mode,
    }
    words = f"{train.layout}, micro-batch {train.layout.micro_batch}"
    mode = train.recompute.mode
    return Candidate(f"layout {json.dumps(keys)}", words + (f", recompute {mode}" if mode != "none" else ""), seconds)


def measure(
    pick: Candidate, others: Sequence[Candidate], ranks: int, options: argparse.Namespace
) -> dict[str, list[tuple[float, float]]]:
    """Name → (seconds of a step, ratio to the pick's) of each round; of the pick itself from all groups."""
    found: dict[str, list[tuple[float, float]]] = {pick.name: []}
    for first in range(0, len(others), options.together):
        group = [pick, *others[first : first + options.together]]
        turns = trained([one.name for one in group], ranks, options)
        base = turns[pick.name]
        for name, seconds in turns.items():
            own = [(mine, mine / theirs) for mine, theirs in zip(seconds, base, strict=True)]
            found[name] = found.get(name, []) + own
        print(f"  {min(first + options.together, len(others))} of {len(others)} layouts measured", flush=True)
    return found


def trained(names: Sequence[str], ranks: int, options: argparse.Namespace) -> dict[str, list[float]]:
    """Name → seconds of a step in each round."""
    with contextlib.ExitStack() as stack:
        folder, corpus = stack.enter_context(workplace())
        orders = {"ranks": ranks, "train": train_spec(ranks, options, corpus), "cache": str(folder)}
        held = Ranks(sys.executable, {**orders, "engines": list(names)}, stack, folder)
        turns = in_turns(dict.fromkeys(names, held), options.rounds)
    return {name: [turn.seconds / STEPS for turn in own] for name, own in turns.items()}


def show(
    pick: Candidate, everyone: Sequence[Candidate], found: dict[str, list[tuple[float, float]]], shown: int
) -> None:
    ratios = {one.name: [ratio for _, ratio in found[one.name]] for one in everyone}
    medians = {name: statistics.median(of) for name, of in ratios.items()}
    ordered = sorted(everyone, key=lambda one: medians[one.name])
    print(f"  {'layout':<90} estimated  measured   × pick (minimum–maximum)")
    for one in [*ordered[:shown], *([pick] if pick not in ordered[:shown] else [])]:
        seconds = statistics.median(second for second, _ in found[one.name])
        low, high = min(ratios[one.name]), max(ratios[one.name])
        mark = "  ← the pick" if one is pick else ""
        times = f"{one.estimated * 1e3:7.0f} ms {seconds * 1e3:7.0f} ms"
        print(f"  {one.words:<90} {times}   {medians[one.name]:.2f} ({low:.2f}–{high:.2f}){mark}")
    faster = sum(medians[one.name] < 1 for one in everyone if one is not pick)
    best = ordered[0]
    of_best = sorted(1 / ratio for ratio in ratios[best.name])
    print(
        f"  The pick has rank {faster + 1} of {len(everyone)}. Its time over the best one's: "
        f"{1 / medians[best.name]:.2f} ({of_best[0]:.2f}–{of_best[-1]:.2f})."
    )
    print(f"  Rank correlation of estimate and measurement: {correlation(everyone, medians):.2f}.")


def correlation(everyone: Sequence[Candidate], medians: dict[str, float]) -> float:
    """Spearman's, over all layouts."""
    if len(everyone) < 3:
        return 1.0
    return statistics.correlation(
        places([one.estimated for one in everyone]), places([medians[one.name] for one in everyone])
    )


def places(values: Sequence[float]) -> list[int]:
    """The place of each value among all of them."""
    ordered = sorted(range(len(values)), key=values.__getitem__)
    return [ordered.index(number) for number in range(len(values))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--together", type=int, default=7, help="layouts that live at once beside the pick")
    parser.add_argument("--sample", type=int, metavar="N", help="draw N layouts in the place of all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recompute", nargs="+", default=["none"], choices=("none", "selective", "full"))
    parser.add_argument("--sequences", type=int, default=4, help="per rank and step")
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--show", type=int, default=15, help="layouts that are printed")
    parser.set_defaults(bucket_mb=None)
    options = parser.parse_args()
    for ranks in options.ranks:
        given = train_spec(ranks, options, Path("corpus.txt"))
        ask = asked(TrainSpec.model_validate(given), ranks)
        row = advise(ask).rows[0]
        pick = candidate(row.train, row.time.seconds)
        others = [one for one in legal(ask, options.recompute) if one.name != pick.name]
        print(f"{ranks} ranks, {options.sequences} × {options.seq_len} tokens each, {len(others) + 1} legal layouts")
        hardware = ask.hardware
        print(
            f"  measured: {hardware.flops / 1e9:.1f} GFLOP/s, {hardware.block_s * 1e3:.2f} ms per block, "
            f"{hardware.intra.bandwidth / 1e6:.0f} MB/s, {hardware.intra.latency * 1e6:.0f} µs per message"
        )
        if options.sample is not None:
            others = random.Random(options.seed).sample(others, min(options.sample, len(others)))
        show(pick, [pick, *others], measure(pick, others, ranks, options), options.show)


if __name__ == "__main__":
    main()
