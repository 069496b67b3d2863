"""A trace of real ranks: categories that make up the step, one clock, the slow rank named, and the same bits as without it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
from harness.models import LLAMA, MIXTURE
from harness.patience import PATIENCE_S
from harness.ranks import group, spawn

from shardyard.workers.spec import Run, TrainSpec

Make = Callable[..., Any]

STEPS, FIRST, TRACED = 6, 3, 3
SLOW_S = 0.05

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "zero1": ({"data": 2, "zero": 1}, {}),
    "zero3": ({"data": 2, "zero": 3}, {}),
    "tensor2": ({"tensor": 2}, {}),
    "ring2-ulysses2": ({"context": 4, "ulysses": 2}, {}),
    "1f1b2-tensor2": ({"pipeline": 2, "tensor": 2}, {}),
    "data2": ({"data": 2}, {}),
    "interleaved2": ({"pipeline": 2, "schedule": "interleaved", "micro_batch": 2}, {}),
    "zero2-microbatches": ({"data": 2, "zero": 2, "micro_batch": 2}, {}),
    "experts2": ({"data": 2, "expert": 2}, {"model": {**MIXTURE, "layers": 2}}),
    "zbv2": ({"pipeline": 2, "schedule": "zbv", "micro_batch": 2}, {}),
    "dualpipev2-experts2": (
        {"pipeline": 2, "schedule": "dualpipev", "data": 2, "expert": 2, "micro_batch": 1},
        {"model": MIXTURE},
    ),
    "2bw2": ({"pipeline": 2, "schedule": "2bw", "micro_batch": 2}, {}),
    "pipedream2": ({"pipeline": 2, "schedule": "pipedream"}, {}),
    "gpipe2-zero1": ({"pipeline": 2, "data": 2, "zero": 1, "schedule": "gpipe", "micro_batch": 2}, {}),
    "one": ({}, {}),
}


def run_of(name: str, root: Path, make_spec: Make, layout: dict[str, Any], **changes: Any) -> Run:
    small = {"steps": STEPS, "eval": {"batches": 1}, "probe": {"every": 2}, "precision": "fp32"}
    spec = TrainSpec.model_validate(make_spec(layout, **(small | changes)))
    return Run(job=name, train=spec, checkpoints=root / "checkpoints" / name, cache=root / "cache")


def events_of(run: Run, traced: int, slow: int | None = None) -> list[list[tuple[str, dict[str, Any]]]]:
    return spawn(rank_events, run.train.layout.world_size, run.model_dump_json(), traced, slow)


def rank_events(rank: int, world: int, port: int, orders: str, traced: int, slow: int | None) -> list[Any]:
    """One rank's events, of a run with a trace of `traced` steps, in which one rank may be slow."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.messages.stop_request import StopRequest
    from shardyard.workers.messages.trace_request import Trace
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import build
    from shardyard.workers.trainer.instruments import Instruments

    run = Run.model_validate_json(orders)
    built = build(run, make_mesh(run.train.layout, group(rank, world, port)))
    events: list[Any] = []

    def asked() -> StopRequest:
        time.sleep(SLOW_S if rank == slow else 0.0)
        return StopRequest.NO

    instruments = Instruments(asked)
    if traced:
        instruments.pending_trace.order(Trace("t", traced), first=FIRST)
    assemble(built, lambda kind, data: events.append((kind, data)), instruments).run()
    return events


def of_kind(events: list[tuple[str, dict[str, Any]]], kind: str) -> list[dict[str, Any]]:
    return [data for name, data in events if name == kind]


@pytest.mark.timing
@pytest.mark.parametrize("name", CASES)
def test_categories_make_up_the_step(name: str, root: Path, make_spec: Make) -> None:
    layout, changes = CASES[name]
    run = run_of(f"trace-{name}", root, make_spec, layout, **changes)
    reported = events_of(run, TRACED)
    for rank, events in enumerate(reported):
        traces = of_kind(events, "trace")
        assert [(event["rank"], event["step"]) for event in traces] == [(rank, FIRST + n) for n in range(TRACED)]
        assert of_kind(events, "trace_finished") == [{"id": "t", "rank": rank, "steps": [FIRST, FIRST + TRACED - 1]}]
        steps = {step["step"]: step["step_s"] for step in of_kind(events, "step")}
        for event in traces:
            assert sum(event["sums"].values()) == pytest.approx(event["seconds"], rel=1e-6)
            assert event["sums"]["forward"] > 0 and event["sums"]["backward"] > 0 and event["sums"]["optimizer"] > 0
            nested(event)
        # A rank can lose its processor between the two readings of the clock, which cannot happen in every step.
        apart = [abs(event["seconds"] - steps[event["step"]]) / max(steps[event["step"]], 0.05) for event in traces]
        assert min(apart) < 0.02 and median(apart) < 0.1, apart
        # Of small steps on a busy machine: what no span covers is little, the schedules' own bookkeeping most of it.
        assert min(event["sums"]["other"] / event["seconds"] for event in traces) < 0.25, [e["sums"] for e in traces]
    if run.train.layout.world_size > 1:
        meets_on_one_clock([of_kind(events, "trace") for events in reported])
    if run.train.layout.pipeline > 1:
        pipelines([event for events in reported for event in of_kind(events, "trace")])
    plain = events_of(run, 0)
    for traced, untraced in zip(reported, plain, strict=True):
        losses = [[step.get("loss") for step in of_kind(events, "step")] for events in (traced, untraced)]
        assert losses[0] == losses[1]
        assert not of_kind(untraced, "trace")


def nested(event: dict[str, Any]) -> None:
    """The training thread's spans lie within the step, and within each other or apart."""
    rows = [row for row in event["spans"] if row[0] == 0]
    assert event["lanes"][0] == "training" and rows and not event["dropped"]
    ends: list[int] = []
    for _, _, name, start, length, _, _ in rows:
        while ends and ends[-1] <= start:
            ends.pop()
        assert start >= 0 and start + length <= 1e6 * event["seconds"] + 1
        assert not ends or start + length <= ends[-1], name
        ends.append(start + length)


def meets_on_one_clock(reported: list[list[dict[str, Any]]]) -> None:
    """The sum of loss and norm is nowhere done before everybody has begun it: by the common clock, within its error."""
    for of_step in zip(*reported, strict=True):
        meetings = []
        for event in of_step:
            (row,) = (row for row in event["spans"] if row[0] == 0 and row[2] == "all_reduce world")
            meetings.append((event["began"] + row[3] / 1e6, event["began"] + (row[3] + row[4]) / 1e6))
        error = max(event["error_s"] for event in of_step)
        assert error < 0.05
        assert min(end for _, end in meetings) >= max(start for start, _ in meetings) - 2 * error - 2e-6


def pipelines(events: list[dict[str, Any]]) -> None:
    for step in {event["step"] for event in events}:
        reported = [event["pipeline"] for event in events if event["step"] == step]
        measured, simulated = (fmean(one[name] for one in reported) for name in ("bubble_measured", "bubble_simulated"))
        assert 0 <= simulated < measured + 0.005 < 1  # messages take time, and never less than none
    for event in events:
        pipeline = event["pipeline"]
        passes = {(row[2], row[5], row[6]) for row in event["spans"] if row[6] is not None}
        assert len(pipeline["ideal"]) == len(passes)
        assert {(row[1], row[2]) for row in pipeline["ideal"]} == {(stage, batch) for _, batch, stage in passes}
        assert event["sums"]["receive"] > 0


@pytest.mark.timing
def test_the_slow_rank_is_the_one_named(root: Path, make_spec: Make) -> None:
    from shardyard.workers.messages.trace_request import own_seconds, slowest_rank

    # Little to compute: on a busy machine that is what varies, by as much as the rank is slower.
    small = {"model": {**LLAMA, "layers": 1}, "global_batch": 2, "steps": 16}
    run = run_of("trace-slow", root, make_spec, {"data": 2, "zero": 1}, **small)
    traces = [of_kind(events, "trace") for events in events_of(run, 12, slow=1)]
    assert slowest_rank(event for events in traces for event in events) == 1
    fast, slow = ([own_seconds(event) for event in events] for events in traces)
    assert median(late - soon for late, soon in zip(slow, fast, strict=True)) > SLOW_S / 2, (fast, slow)


@pytest.mark.timing
@pytest.mark.parametrize("world", [2, 3])
def test_clocks_that_differ_are_found_to_within_their_error(world: int) -> None:
    found = spawn(_offset, world)
    epoch = found[0].seconds
    assert epoch == 1000.0 and found[0].error_s == 0
    for rank, offset in enumerate(found[1:], start=1):
        # On one machine the clocks are one, but for what the test has put them apart.
        assert abs(offset.seconds - (epoch - 7.0 * rank)) <= offset.error_s < 0.05


def _offset(rank: int, world: int, port: int) -> Any:
    from shardyard.strategies.telemetry.clock_sync import offset_to_first

    group(rank, world, port)
    return offset_to_first(1000.0, lambda: time.perf_counter() + 7.0 * rank)


def test_torchrun_writes_a_file_of_all_ranks(tmp_path: Path, make_spec: Make) -> None:
    file = tmp_path / "spec.json"
    changes = {"steps": 4, "eval": {"batches": 1}, "precision": "fp32"}
    file.write_text(json.dumps(make_spec({"data": 2}, **changes)))
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    torchrun += ["--rdzv-endpoint", "127.0.0.1:0", "-m", "shardyard.workers.local"]
    command = [sys.executable, *torchrun, str(file), "--device", "cpu", "--out", str(tmp_path), "--trace", "2:20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    path = tmp_path / "spec-trace.json"
    assert f"traced [2, 3, 4]: {path}" in done.stdout
    slices = [one for one in json.loads(path.read_text())["traceEvents"] if one["ph"] == "X"]
    steps = sorted((one["pid"], one["name"]) for one in slices if one["cat"] == "step")
    assert steps == [(rank, f"step {step}") for rank in range(2) for step in (2, 3, 4)]
    assert {"forward", "backward", "optimizer", "collective", "data"} <= {one["cat"] for one in slices}
