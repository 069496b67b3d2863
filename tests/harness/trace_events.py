"""What a gang reports of traced steps: events as the schema has them, whose spans sum to the step."""

from collections.abc import Sequence
from typing import Any

MS = 1000.0  # µs


def trace_part(
    trace: str,
    rank: int,
    step: int,
    *,
    ranks: int = 2,
    microbatches: int = 2,
    slower_ms: float = 0.0,
    pipeline: bool = True,
    began: float = 1000.0,
) -> dict[str, Any]:
    """A rank's step: data, forward and backward passes of its stage, a wait for the others, the optimizer. Rank r begins r µs later."""
    plan: list[tuple[str, str, float, int | None]] = [("data", "batch", 1.0, None)]
    if slower_ms:
        plan.append(("other", "slowed", slower_ms, None))
    plan += [("receive", f"forward {m} of rank {rank - 1}", 2.0, m) for m in range(microbatches) if rank]
    plan += [("forward", f"forward {m}", 3.0, m) for m in range(microbatches)]
    plan += [("backward", f"backward {m}", 5.0, m) for m in range(microbatches)]
    plan += [
        ("collective", "all_reduce data", 4.0 + 2.0 * microbatches * (rank == 0), None),
        ("optimizer", "step", 2.0, None),
    ]
    spans: list[list[Any]] = []
    sums: dict[str, float] = {}
    at = 0.0
    for category, name, milliseconds, microbatch in plan:
        stage = rank if category in ("forward", "backward", "receive") and pipeline else None
        spans.append([0, category, name, at, milliseconds * MS, microbatch, stage])
        sums[category] = sums.get(category, 0.0) + milliseconds / 1000
        at += milliseconds * MS
    spans.append([1, "collective", "all_reduce data", at / 2, 3 * MS, None, None])
    return {
        "id": trace,
        "rank": rank,
        "step": step,
        "began": began + (step - 1) * 0.1 + rank * 1e-6,
        "seconds": at / 1e6,
        "error_s": 2e-5,
        "sums": sums,
        "spans": spans,
        "lanes": ["training", "data"],
        "dropped": 0,
        "pipeline": _pipeline(rank, ranks, microbatches) if pipeline else None,
    }


def _pipeline(rank: int, ranks: int, microbatches: int) -> dict[str, Any]:
    forward = [["F", rank, m, (rank + m) * 3 * MS, 3 * MS] for m in range(microbatches)]
    turn = (ranks + microbatches - 1) * 3 * MS
    backward = [["B", rank, m, turn + (ranks - 1 - rank + m) * 5 * MS, 5 * MS] for m in range(microbatches)]
    return {"place": rank, "bubble_measured": 0.2 + rank / 100, "bubble_simulated": 0.2, "ideal": forward + backward}


def trace_events(
    trace: str, steps: Sequence[int] = (5, 6, 7), ranks: int = 2, **changes: Any
) -> list[tuple[str, dict[str, Any]]]:
    """All that a gang reports of a trace, its end too."""
    parts = [
        ("trace", trace_part(trace, rank, step, ranks=ranks, **changes)) for step in steps for rank in range(ranks)
    ]
    return [*parts, ("trace_finished", {"id": trace, "done": True, "message": "", "steps": [steps[0], steps[-1]]})]


def crowded_trace_part(trace: str, rank: int, step: int, spans: int = 4000) -> dict[str, Any]:
    """A rank's step with as many spans as one may have, all of different lengths and names."""
    event = trace_part(trace, rank, step)
    drawn = [[0, "forward", f"layers.{n}.forward", 10.0 * n, 1.0 + n % 97 / 10, n % 32, rank] for n in range(spans)]
    return event | {"spans": drawn, "seconds": spans / 1e5, "sums": {"forward": spans / 1e5}}
