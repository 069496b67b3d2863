import pytest

from shardyard.strategies.layout import Layout, Refusal
from shardyard.strategies.stale_rules import check_own_clocks
from shardyard.workers.spec import TrainSpec

ASYNC = {"data": 2, "parameter_server": {"servers": 1, "mode": "async"}}


@pytest.mark.parametrize("precision", ["fp16", "fp8"])
def test_a_loss_scale_that_all_workers_share_is_refused(precision: str) -> None:
    layout = Layout.model_validate(ASYNC)
    with pytest.raises(Refusal, match="mode to sync") as caught:
        check_own_clocks(layout, precision)
    assert caught.value.field == "precision"
    check_own_clocks(layout.with_(parameter_server={"servers": 1}), precision)
    check_own_clocks(layout, "bf16")


def test_a_spec_is_refused_by_the_rules() -> None:
    spec = {"steps": 1, "global_batch": 4, "layout": ASYNC}
    TrainSpec.model_validate(spec).check()
    with pytest.raises(Refusal, match="in a step of its own"):
        TrainSpec.model_validate({**spec, "precision": "fp16"}).check()
    with pytest.raises(Refusal, match="computes the whole model"):
        TrainSpec.model_validate({**spec, "layout": {**ASYNC, "tensor": 2}}).check()
