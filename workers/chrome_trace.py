"""Converts a gang's `trace` events into a file for Perfetto (ui.perfetto.dev) and chrome://tracing: Chrome's trace event format.

Each rank is a process. It has a thread for the steps, one for the training thread, some per mesh axis for what was sent in the
background, and under a pipeline one for the ideal schedule. The format requires that slices of one thread are nested or disjoint,
so a slice that overlaps another gets a thread of its own. Times are microseconds from the earliest step's begin, on the gang's
common clock. Does not need torch.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

#: Threads of every rank, in the order in which they are drawn; others follow.
STEPS: Final = "steps"
IDEAL: Final = "ideal schedule"

#: Actions of a simulated schedule, in the categories of measured actions.
_IDEAL: Final = {"F": "forward", "B": "backward", "I": "backward", "W": "weight"}

Slice = dict[str, Any]


def chrome_trace(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The data of `trace` events, of any ranks and steps and in any order, as one document."""
    in_order = sorted(events, key=lambda event: (event["rank"], event["step"]))
    zero = min((float(event["began"]) for event in in_order), default=0.0)
    slices: list[Slice] = []
    for rank in sorted({event["rank"] for event in in_order}):
        slices += process(rank, [event for event in in_order if event["rank"] == rank], zero)
    return {"displayTimeUnit": "ms", "traceEvents": slices, "otherData": {"began_unix_s": zero}}


def process(rank: int, events: Sequence[dict[str, Any]], zero: float) -> list[Slice]:
    """One rank's process, from its events in order of their steps: names first, then its slices. `zero`: unix seconds of time 0."""
    threads: dict[str, list[Slice]] = {STEPS: [], "training": []}
    for event in events:
        began_us = (float(event["began"]) - zero) * 1e6
        threads[STEPS].append(_step(event, began_us))
        for span in event["spans"]:
            threads.setdefault(event["lanes"][span[0]], []).append(_slice(span, began_us))
        if event.get("pipeline"):
            threads.setdefault(IDEAL, []).extend(_ideal(action, began_us) for action in event["pipeline"]["ideal"])
    found = [
        _named("process_name", rank, 0, name=f"rank {rank}"),
        _named("process_sort_index", rank, 0, sort_index=rank),
    ]
    number = 0
    for thread, slices in threads.items():
        for lane, apart in enumerate(_apart(slices)):
            found.append(_named("thread_name", rank, number, name=thread if not lane else f"{thread} ({lane + 1})"))
            found.append(_named("thread_sort_index", rank, number, sort_index=number))
            found += [one | {"pid": rank, "tid": number} for one in apart]
            number += 1
    return found


def _named(what: str, rank: int, thread: int, **args: Any) -> Slice:
    return {"ph": "M", "name": what, "pid": rank, "tid": thread, "args": args}


def _step(event: dict[str, Any], began_us: float) -> Slice:
    sums = {category: f"{1000 * seconds:.3f} ms" for category, seconds in event["sums"].items() if seconds}
    pipeline = event.get("pipeline") or {}
    bubbles = {name: f"{pipeline[name]:.1%}" for name in ("bubble_measured", "bubble_simulated") if name in pipeline}
    args = sums | bubbles | {"clock within": f"{1e6 * event['error_s']:.0f} us", "spans left out": event["dropped"]}
    return _complete(f"step {event['step']}", "step", began_us, 1e6 * float(event["seconds"]), args)


def _slice(span: Sequence[Any], began_us: float) -> Slice:
    _, category, name, start_us, length_us, microbatch, stage = span
    known = {"micro-batch": microbatch, "stage": stage}
    args = {key: value for key, value in known.items() if value is not None}
    return _complete(name, category, began_us + start_us, length_us, args)


def _ideal(action: Sequence[Any], began_us: float) -> Slice:
    kind, stage, microbatch, start_us, length_us = action
    args = {"micro-batch": microbatch, "stage": stage}
    return _complete(f"{stage}{kind}{microbatch}", _IDEAL[kind], began_us + start_us, length_us, args)


def _complete(name: str, category: str, start_us: float, length_us: float, args: dict[str, Any]) -> Slice:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "ts": round(start_us, 3),
        "dur": round(length_us, 3),
        "args": args,
    }


def _apart(slices: list[Slice]) -> list[list[Slice]]:
    """The slices, by start, on the smallest number of threads on which they are nested or disjoint; at least one."""
    threads: list[list[Slice]] = [[]]
    open_until: list[list[float]] = [[]]  # per thread the ends of the open slices, the innermost last
    for one in sorted(slices, key=lambda one: (one["ts"], -one["dur"])):
        end = one["ts"] + one["dur"]
        for ends in open_until:
            while ends and ends[-1] <= one["ts"]:
                ends.pop()
        fits = (number for number, ends in enumerate(open_until) if not ends or end <= ends[-1])
        number = next(fits, len(threads))
        if number == len(threads):
            threads.append([])
            open_until.append([])
        threads[number].append(one)
        open_until[number].append(end)
    return threads
