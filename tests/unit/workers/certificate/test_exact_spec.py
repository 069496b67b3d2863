from shardyard.workers.certificate.exact_spec import alone, exact
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
