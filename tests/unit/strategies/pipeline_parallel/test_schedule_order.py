"""Orders are complete, and hold as many micro-batches as their papers say. (That they are what runs is proved in tests/parity.)"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardyard.strategies.layout import Layout, Refusal
from shardyard.strategies.pipeline_parallel.schedule import planned_order
from shardyard.strategies.pipeline_parallel.schedule_order import peaks
from shardyard.strategies.pipeline_parallel.simulator import evenly, simulate

ALL = ["gpipe", "1f1b", "interleaved", "interleaved-zb", "zb-h1", "zb-h2", "zbv", "dualpipev"]


@settings(deadline=None)
@given(
    schedule=st.sampled_from(ALL),
    pipeline=st.integers(2, 6),
    virtual=st.integers(2, 4),
    microbatches=st.integers(1, 20),
)
def test_every_schedule_that_is_not_refused_comes_to_its_end(
    schedule: str, pipeline: int, virtual: int, microbatches: int
) -> None:
    layout = Layout.model_validate({"pipeline": pipeline, "schedule": schedule, "virtual": virtual, "micro_batch": 1})
    try:
        layout.batch(microbatches)
    except Refusal:
        return
    order = planned_order(layout, microbatches)
    counts = Counter((a.kind, a.stage, a.microbatch) for actions in order for a in actions)
    assert set(counts.values()) == {1}
    for stage in range(layout.stages):
        for microbatch in range(microbatches):
            assert counts["F", stage, microbatch] == 1
            halves = counts["I", stage, microbatch], counts["W", stage, microbatch]
            assert (counts["B", stage, microbatch], halves) in ((1, (0, 0)), (0, (1, 1)))
    assert sum(n for (kind, *_), n in counts.items() if kind.startswith("SEND")) == sum(
        n for (kind, *_), n in counts.items() if kind.startswith("RECV")
    )
    assert all(a.stage in layout.stages_of(rank) for rank, actions in enumerate(order) for a in actions)
    simulate(order, evenly([1.0] * layout.stages))


@given(pipeline=st.integers(2, 8), extra=st.integers(0, 12))
def test_1f1b_holds_p_minus_i_and_gpipe_all(pipeline: int, extra: int) -> None:
    microbatches = pipeline + extra
    assert peaks(planned_order(Layout(pipeline=pipeline), microbatches)) == [pipeline - i for i in range(pipeline)]
    gpipe = planned_order(Layout(pipeline=pipeline, schedule="gpipe"), microbatches)
    assert peaks(gpipe) == [microbatches] * pipeline


def test_reads_as_text() -> None:
    first, last = planned_order(Layout(pipeline=2), 2)
    assert " ".join(map(str, first)) == "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1"
    assert " ".join(map(str, last)) == "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"


def test_too_few_microbatches_are_torchs_error_too() -> None:
    with pytest.raises(ValueError, match="microbatches"):
        planned_order(Layout(pipeline=4), 3)
