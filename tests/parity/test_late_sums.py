"""PipeDream and 2BW without clipping: ranks end a step at different times, and all else is as where they end it together.

`test_textbook.py` compares both with a serial loop.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.models import GPT2
from harness.patience import PATIENCE_S
from harness.ranks import spawn, train, train_rank

from shardyard.workers.spec import Run, TrainSpec

Make = Callable[..., Any]
TWO: dict[str, Any] = {"pipeline": 2, "schedule": "pipedream"}
ADAMW = {"lr": 3e-3}
#: Clips nothing, so that the updates are the same.
CLIPS_NOTHING = {**ADAMW, "clip_norm": 1e9}
NEVER_CLIPS = {**ADAMW, "clip_norm": None}
SELDOM = {"probe": {"every": None}, "eval": {"every": None, "batches": 1}}


def _events(run: Any, kind: str) -> list[dict[str, Any]]:
    return [data for found, data in run["events"] if found == kind]


#: Layout, and what the spec says otherwise.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "meetings": (TWO, {"eval": {"every": 3, "batches": 1}, "checkpoint": {"every": 4, "keep": 5}}),
    "bf16-two-replicas": ({**TWO, "data": 2}, {"precision": "bf16"}),
    "four-stages-tied": ({**TWO, "pipeline": 4}, {"model": {**GPT2, "layers": 4, "tied": True}, "steps": 11}),
    "2bw": ({**TWO, "schedule": "2bw", "data": 2}, {"eval": {"every": 4, "batches": 1}}),
    "2bw-four-stages": (
        {"pipeline": 4, "schedule": "2bw", "micro_batch": 4},
        {"model": {**GPT2, "layers": 4, "tied": True}},
    ),
    "synchronised": ({**TWO, "pipeline": 3, "vertical_sync": True}, {"precision": "fp32", "recompute": "full"}),
}


@pytest.mark.parametrize("name", CASES)
def test_it_has_the_bits_of_a_run_whose_ranks_end_together(name: str, root: Path, make_spec: Make) -> None:
    layout, changes = CASES[name]
    together, apart = (
        train(make_spec(layout, **{**SELDOM, "steps": 9, **changes, "optimizer": optimizer}), root, f"{kind}-{name}")
        for kind, optimizer in (("together", CLIPS_NOTHING), ("apart", NEVER_CLIPS))
    )
    assert apart["losses"] == together["losses"] and apart["norms"] == together["norms"]
    assert [data["step"] for data in _events(apart, "step")] == [data["step"] for data in _events(together, "step")]
    assert [data["loss"] for data in _events(apart, "eval")] == [data["loss"] for data in _events(together, "eval")]
    for key, value in together["parameters"].items():
        np.testing.assert_array_equal(apart["parameters"][key], value, err_msg=key)
    simulated = [_events(run, "plan")[0]["bubble_simulated"] for run in (together, apart)]
    if changes.get("model", {}).get("tied"):  # both ends wait for each other in each step
        assert simulated[1] == simulated[0]
    else:
        assert simulated[1] < simulated[0] or (layout["schedule"] == "2bw" and simulated[1] == simulated[0])


def _spec(make_spec: Make, root: Path, name: str, **changes: Any) -> str:
    spec = make_spec(TWO, **{**SELDOM, "optimizer": NEVER_CLIPS, "steps": 8, **changes})
    folders = {"checkpoints": str(root / "checkpoints" / name), "cache": root / "cache"}
    return Run(job=name, train=TrainSpec.model_validate(spec), **folders).model_dump_json()


def test_the_last_rank_begins_a_step_before_the_first_one_ends_the_step_before(root: Path, make_spec: Make) -> None:
    """The first rank's backward pass of a step waits until the last rank has run the forward pass of the step after it."""
    spawn(_first_waits, 2, _spec(make_spec, root, "waits"), str(root))


def _first_waits(rank: int, world: int, port: int, orders: str, root: str) -> Any:
    from shardyard.strategies.pipeline_parallel.autograd_stage import AutogradStage

    mark, calls = Path(root) / "forward-of-step-5", {"forward": 0, "backward": 0}
    forward, backward = AutogradStage.forward_one_chunk, AutogradStage.backward_one_chunk

    def watched(self: Any, *given: Any, **more: Any) -> Any:
        output = forward(self, *given, **more)
        calls["forward"] += 1
        if rank == 1 and calls["forward"] == 5:
            mark.touch()
        return output

    def waiting(self: Any, *given: Any, **more: Any) -> Any:
        calls["backward"] += 1
        until = time.monotonic() + PATIENCE_S
        while rank == 0 and calls["backward"] == 4 and not mark.exists():
            assert time.monotonic() < until, "the last rank has not begun the step after"
            time.sleep(0.01)
        return backward(self, *given, **more)

    AutogradStage.forward_one_chunk, AutogradStage.backward_one_chunk = watched, waiting  # type: ignore[method-assign]
    return train_rank(rank, world, port, orders)


def test_a_request_to_stop_ends_all_ranks_after_the_same_step(root: Path, make_spec: Make) -> None:
    """The last rank alone has it, in step 3: its sum is read after step 5, and step 6 is a meeting. What it saved goes on as a whole."""
    whole = train(make_spec(TWO, **SELDOM, optimizer=NEVER_CLIPS, steps=9), root, "whole")
    found = spawn(_stopped, 2, _spec(make_spec, root, "stopped", steps=9))
    assert [[data["step"] for kind, data in one["events"] if kind == "stopped"] for one in found] == [[6], [6]]
    losses = [data["loss"] for kind, data in found[0]["events"] if kind == "step"]
    assert losses == whole["losses"][:6]
    (path,) = [data["path"] for kind, data in found[0]["events"] if kind == "checkpoint"]
    rest = train(make_spec(TWO, **SELDOM, optimizer=NEVER_CLIPS, steps=9), root, "rest", resume=Path(path))
    assert rest["losses"] == whole["losses"][6:]


def _stopped(rank: int, world: int, port: int, orders: str) -> Any:
    from shardyard.workers.messages.stop_request import StopRequest
    from shardyard.workers.trainer.instruments import Instruments

    steps = [0]

    def stop_request() -> StopRequest:
        steps[0] += 1
        return StopRequest.SAVE if rank == 1 and steps[0] >= 3 else StopRequest.NO

    return train_rank(rank, world, port, orders, lambda _: Instruments(stop_request))


def test_a_trace_begins_and_ends_with_the_same_steps_on_all_ranks(root: Path, make_spec: Make) -> None:
    found = spawn(_traced, 2, _spec(make_spec, root, "traced", steps=12))
    steps = [[data["step"] for kind, data in one["events"] if kind == "trace"] for one in found]
    assert steps[0] == steps[1] and len(steps[0]) == 3
    bubbles = [data["pipeline"] for one in found for kind, data in one["events"] if kind == "trace"]
    assert all(0 <= one["bubble_simulated"] < 1 and -0.01 <= one["bubble_measured"] < 1 for one in bubbles)


def _traced(rank: int, world: int, port: int, orders: str) -> Any:
    from shardyard.workers.messages.trace_request import Trace
    from shardyard.workers.trainer.instruments import Instruments

    instruments = Instruments()
    instruments.pending_trace.order(Trace("t", 3))
    return train_rank(rank, world, port, orders, lambda _: instruments)


def test_gradients_that_are_not_finite_change_no_weight(root: Path, make_spec: Make) -> None:
    """A stage's gradients are NaN from step 4 on. All ranks raise the same when they read its sum, and no rank made that update."""
    found = spawn(_failed, 2, _spec(make_spec, root, "not-finite"))
    messages, finite, steps = zip(*found, strict=True)
    assert messages[0] == messages[1] and "gradient norm inf" in messages[0] and finite == (True, True)
    assert steps == ([1, 2, 3], [1, 2, 3])


def test_steps_before_one_that_is_not_finite_are_reported_at_a_meeting(root: Path, make_spec: Make) -> None:
    """Step 5 is a meeting, because of its validation: the sums of steps 3 and 4 are read there."""
    found = spawn(_failed, 2, _spec(make_spec, root, "not-finite-at-a-meeting", eval={"every": 5, "batches": 1}))
    assert [steps for _, _, steps in found] == [[1, 2, 3], [1, 2, 3]]


def _failed(rank: int, world: int, port: int, orders: str) -> tuple[str, bool, list[int]]:
    import torch

    from shardyard.strategies.param_shard import parameters
    from shardyard.workers.trainer.callbacks.nan_attribution import Diverged
    from shardyard.workers.trainer.instruments import Instruments
    from shardyard.workers.trainer.reports import Reporter

    held: list[Any] = []
    steps: list[int] = []
    report = Reporter.step
    calls = [0]

    def spoilt(gradient: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return gradient * float("nan") if calls[0] >= 4 else gradient

    def prepared(parts: Any) -> Instruments:
        held.append(parts)
        if rank == 0:
            parameters(parts.parallel.parts, parts.mesh)[0].value.register_hook(spoilt)
        return Instruments()

    def noted(reporter: Any, record: Any) -> None:
        steps.append(record.step)
        report(reporter, record)

    Reporter.step = noted  # type: ignore[method-assign]
    try:
        train_rank(rank, world, port, orders, prepared)
    except Diverged as error:
        finite = all(bool(torch.isfinite(shard.tensor).all()) for shard in held[0].parallel.data.shards)
        return str(error), finite, steps
    raise AssertionError("it did not fail")
