import pytest

from shardyard.strategies.layout import Layout, Refusal
from shardyard.workers.certificate.exact_spec import alone, check_comparable, exact
from shardyard.workers.spec import TrainSpec

GIVEN = TrainSpec.model_validate(
    {
        "model": {"preset": "nano", "layers": 2},
        "layout": {"data": 2, "pipeline": 2, "zero": 1},
        "precision": {"compute": "bf16", "gradients": "compute"},
        "recompute": "full",
        "compile": True,
        "steps": 100,
        "global_batch": 8,
        "seed": 3,
        "checkpoint": {"every": 10, "uri": "/elsewhere"},
        "resume_from": "job",
    }
)


def test_a_proof_is_in_float64_and_saves_its_end_where_it_runs() -> None:
    proof = exact(GIVEN, 5)
    assert (proof.precision.compute, proof.compile, proof.steps) == ("fp64", False, 5)
    assert (proof.checkpoint.final, proof.checkpoint.uri, proof.resume_from) == (True, None, None)
    assert proof.snapshot.every == 0 and proof.probe.due(2)
    assert (proof.layout, proof.recompute, proof.seed, proof.optimizer) == (
        GIVEN.layout,
        GIVEN.recompute,
        3,
        GIVEN.optimizer,
    )
    assert TrainSpec.model_validate(proof.model_dump(mode="json", by_alias=True)) == proof


def test_one_process_has_no_strategy_at_all() -> None:
    reference = alone(exact(GIVEN, 5))
    assert reference.layout.world_size == 1 and reference.recompute.mode == "none"
    assert reference.model_copy(update={"layout": GIVEN.layout, "recompute": GIVEN.recompute}) == exact(GIVEN, 5)


def test_a_schedule_with_delayed_gradients_has_no_single_process_to_equal() -> None:
    check_comparable(GIVEN)
    for schedule in ("2bw", "pipedream"):
        with pytest.raises(Refusal, match="gradients late"):
            check_comparable(GIVEN.model_copy(update={"layout": GIVEN.layout.with_(schedule=schedule, zero=0)}))


@pytest.mark.parametrize("option", ["weights", "gradients"])
def test_rounded_messages_have_no_single_process_to_equal_and_a_secondary_shard_has_one(option: str) -> None:
    layout = {"data": 4, "zero": 3, "zero_plus_plus": {"secondary": 2}}
    check_comparable(GIVEN.model_copy(update={"layout": Layout.model_validate(layout)}))
    layout["zero_plus_plus"] = {"secondary": 2, option: "int8"}
    with pytest.raises(Refusal) as refused:
        check_comparable(GIVEN.model_copy(update={"layout": Layout.model_validate(layout)}))
    assert refused.value.field == f"layout.zero_plus_plus.{option}"
    assert f"Leave {option} out" in refused.value.remedy


def test_neither_have_workers_with_clocks_of_their_own() -> None:
    synchronous = Layout.model_validate({"data": 2, "parameter_server": {"servers": 1}})
    check_comparable(GIVEN.model_copy(update={"layout": synchronous}))
    apart = synchronous.with_(parameter_server={"servers": 1, "mode": "async"})
    with pytest.raises(Refusal, match="mode to sync") as caught:
        check_comparable(GIVEN.model_copy(update={"layout": apart}))
    assert caught.value.field == "layout.parameter_server"
