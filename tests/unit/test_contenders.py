"""What the benchmarks of engines make of a layout's name, and of the all-to-alls in a trace."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shardyard.strategies.layout import Layout
from shardyard.strategies.telemetry.step_tracer import StepTracer
from shardyard.workers.spec import TrainSpec

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from contenders import MODES, PIPELINES, exchanges, layout_of
from engines import ENGINES, HOME, TARGETS, command_line, fits, train_spec


@pytest.mark.parametrize("schedule", PIPELINES)
def test_a_schedules_name_is_a_layout_of_all_ranks(schedule: str) -> None:
    for ranks in (2, 4):
        layout = Layout.model_validate(layout_of(schedule, ranks))
        assert (layout.schedule, layout.pipeline, layout.world_size) == (schedule, ranks, ranks)
    layout = Layout.model_validate(layout_of(f"{schedule}+experts", 4))
    assert (layout.schedule, layout.pipeline, layout.expert, layout.world_size) == (schedule, 2, 2, 4)


@pytest.mark.parametrize("end", MODES)
def test_half_of_the_ranks_are_parameter_servers(end: str) -> None:
    layout = Layout.model_validate(layout_of(f"parameter-server{end}", 4))
    options = layout.parameter_server
    assert options is not None
    assert (layout.data, options.servers, options.mode) == (2, 2, end.removeprefix("-") or "sync")


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_model_can_be_trained_on_every_layout_that_fits(ranks: int) -> None:
    ours = [name for name in HOME if name.startswith("ours ") and fits(name, ranks)]
    options = argparse.Namespace(seq_len=128, sequences=2, bucket_mb=None)
    for name in ours:
        layout = layout_of(name.removeprefix("ours "), ranks)
        spec = TrainSpec.model_validate({**train_spec(ranks, options, Path("corpus.txt")), "layout": layout})
        spec.check(4096)
        assert spec.layout.world_size == ranks
    assert ({"ours TP", "ours 2.5-D", "ours 3-D"} <= {*ours}) == (ranks == 8)


class Ticks:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def passing(self, seconds: float) -> Callable[[], None]:
        def wait() -> None:
            self.time += seconds

        return wait


def test_what_is_hidden_of_an_exchange_is_what_the_thread_did_not_wait_for() -> None:
    clock, tracer = Ticks(), StepTracer()
    tracer.begin(clock, {"experts": "expert"})
    with tracer.span("forward", "forward", 0, 0):
        tracer.collective(clock.passing(2.0), "all_to_all", "experts", None)
        since = tracer.now()
        clock.passing(3.0)()  # computing
        tracer.collective(clock.passing(1.0), "all_to_all", "experts", since)
        tracer.collective(clock.passing(5.0), "all_reduce", "experts", tracer.now())
    assert exchanges(tracer.end().spans) == (6.0, 3.0)


def test_an_exchange_that_was_done_before_it_was_needed_was_under_way_only_until_then() -> None:
    clock, tracer = Ticks(), StepTracer()
    tracer.begin(clock, {"experts": "expert"})
    of_forward = tracer.now()
    clock.passing(1.0)()
    of_backward = tracer.now()  # both are under way
    clock.passing(3.0)()
    tracer.collective(clock.passing(0.5), "all_to_all", "experts", of_forward, lambda: 2.0)
    tracer.collective(clock.passing(2.0), "all_to_all", "experts", of_backward, lambda: 6.0)
    tracer.collective(clock.passing(4.0), "all_to_all", "experts", None)
    assert exchanges(tracer.end().spans) == (2.0 + 5.0 + 4.0, 1.5 + 4.0)


def test_every_comparison_can_be_asked_for_and_what_is_no_engine_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for ours, theirs, _ in TARGETS:
        assert command_line().parse_args(["--only", ours, theirs, "--base", theirs]).only == [ours, theirs]
    with pytest.raises(SystemExit):
        command_line().parse_args(["--only", "ours TP", "ours TP chunk 4"])
    assert "argument --only: invalid choice: 'ours TP chunk 4'" in capsys.readouterr().err
    assert len(set(ENGINES)) == len(ENGINES)
