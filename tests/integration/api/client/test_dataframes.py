"""Steps, curves and rank samples as pandas data frames."""

import pytest

from shardyard.api.client import Client

from ..conftest import SPEC, Gang, Plane, step


def test_metrics_as_a_data_frame(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    gang = Gang(plane, job.id)
    gang.emit(("step", step(1)), ("step", {**step(2), "loss": None}))
    gang.emit(("eval", {"step": 2, "loss": 2.0, "unigram_loss": 3.0}))
    frame = job.metrics().to_pandas()
    assert list(frame.index) == [1, 2]
    assert frame.index.name == "step"
    assert frame.loss[1] == 5.0
    assert frame.loss.isna().tolist() == [False, True]
    assert frame.validation_loss.isna().tolist() == [True, False]
    assert job.metrics(since=2).to_pandas().empty


def test_curves_and_ranks_as_data_frames(recorded: tuple[str, str], plane: Plane, client: Client) -> None:
    whole_run = client.curves(recorded[0], "loss,loss_scale", buckets=4).to_pandas()
    assert (list(whole_run.index), whole_run.index.name) == ([1, 9, 17], "step")
    assert list(whole_run.columns) == ["loss", "loss_low", "loss_high"]  # no step had a scale
    assert whole_run.loss_high[1] == 5.0
    each = client.curves(recorded[0], to_step=4).to_pandas()
    assert list(each.columns) == ["loss"] and list(each.loss) == [
        pytest.approx(step(n)["loss"], abs=1e-5) for n in range(1, 5)
    ]
    assert client.curves(client.submit(SPEC).id).to_pandas().empty
    ranks = client.ranks(recorded[0]).to_pandas()
    assert list(ranks.index)[-2:] == [(1, 20, 0), (1, 20, 1)] and ranks.index.names == ["attempt", "step", "rank"]
    assert (list(ranks.data)[-2:], list(ranks.slow)[-2:], list(ranks.node)[-2:]) == ([0, 1], [False, True], ["n", "n"])
    assert client.ranks(client.submit(SPEC).id).to_pandas().empty
