"""A waiting job and its shape."""

from dataclasses import replace

from shardyard.service.policies.waiting import Waiting, Within


def job(ranks: int, gpu: str = "", within: Within | None = None, tensor: int = 1) -> Waiting:
    return Waiting("", ranks, tensor, "cuda", gpu=gpu, within=within)


def test_a_shape_has_what_a_job_asks_for() -> None:
    asked = [job(8), job(8, "H100"), job(8, within="zone"), job(8, "mixed", "domain", 2)]
    for one in (*asked, replace(asked[0], image="nemo"), replace(asked[3], image="nemo-1.2_x", cpus=2.5)):
        assert Waiting.of(one.shape) == one
    assert Waiting.of("cuda 8 2 0") == Waiting("", 8, 2, "cuda"), "as stored before"
    assert job(8).shape == "cuda 8 1 0", "jobs that ask for nothing keep their shape"
