"""What counts as decided by a spec with an open layout."""

from typing import Any

import pytest

from shardyard.strategies.layout import Refusal
from shardyard.workers.advisor.fixed_options import Fixed, fixed_by
from shardyard.workers.spec import TrainSpec


def spec(layout: Any, **train: Any) -> TrainSpec:
    return TrainSpec.model_validate({"steps": 1, "global_batch": 8, "layout": layout, **train})


def test_only_an_open_layout_fixes_anything() -> None:
    assert fixed_by(spec({"data": 2, "zero": 1}, recompute="full"), 8) == Fixed()
    decided = spec({"data": 2, "zero": 1, "auto": {"world": 2, "devices": "2 × CPU", "step_s": 0.5}})
    assert not decided.undecided and fixed_by(decided, 8) == Fixed()
    assert fixed_by(spec("auto"), 8) == Fixed(most_tensor=8) == fixed_by(spec({"auto": {}}), 8)


def test_fields_that_are_written_are_fixed_also_at_their_defaults() -> None:
    fixed = fixed_by(spec({"auto": {"world": 8}, "tensor": 1, "zero": 0, "micro_batch": None, "sequence": False}), 4)
    assert fixed.layout == {"tensor": 1, "zero": 0} and fixed.most_tensor == 4
    assert str(fixed) == "tensor 1, zero 0"
    with_options = fixed_by(spec("auto", recompute="every-3", offload={"optimizer": 0}), 4)
    assert str(with_options) == "recompute full, offload as given"
    unsaid = fixed_by(spec({"auto": {}, "vertical_sync": False, "pipeline_split": "flops"}), 4)
    assert unsaid == Fixed(most_tensor=4)


@pytest.mark.parametrize("schedule", ["gpipe", "2bw", "pipedream"])
def test_schedules_that_are_not_searched_are_refused(schedule: str) -> None:
    with pytest.raises(Refusal, match=r"layout\.schedule"):
        fixed_by(spec({"auto": {}, "schedule": schedule}), 8)


def test_no_rank_runs_an_open_layout() -> None:
    with pytest.raises(Refusal, match="no layout has been chosen yet"):
        spec("auto").check()
    with pytest.raises(ValueError, match="world"):
        spec({"auto": {"world": 0}})
