"""Every stage is on exactly one rank."""

from hypothesis import given
from hypothesis import strategies as st

from shardyard.strategies.layout import V_SCHEDULES, Layout


@given(
    p=st.integers(2, 8),
    schedule=st.sampled_from(["gpipe", "1f1b", "interleaved", "interleaved-zb", "zb-h1", "zb-h2", "zbv", "dualpipev"]),
)
def test_stages_tile(p: int, schedule: str) -> None:
    layout = Layout.model_validate({"pipeline": p, "schedule": schedule})
    held = [layout.stages_of(rank) for rank in range(p)]
    assert sorted(stage for part in held for stage in part) == list(range(layout.stages))
    if schedule in V_SCHEDULES:
        assert held[0] == [0, 2 * p - 1]
