"""What the queue looks for follows from the spec: fp8 has no place on a CPU. What cannot be done at the end is refused at the beginning."""

from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.service.spec import CommandSpec, JobSpec, Resources
from shardyard.strategies.layout import Refusal
from shardyard.workers.spec import TrainSpec


@pytest.mark.parametrize(
    ("precision", "asked", "device"),
    [("fp8", "auto", "cuda"), ("bf16", "auto", "auto"), ("fp8", "cuda", "cuda"), ("bf16", "cpu", "cpu")],
)
def test_fp8_waits_for_gpus(precision: str, asked: str, device: str) -> None:
    train: dict[str, Any] = {"steps": 1, "global_batch": 2, "precision": precision}
    spec = JobSpec.model_validate({"name": "a", "train": train, "resources": {"device": asked}})
    assert spec.device == device


@pytest.mark.parametrize(("mode", "ranks"), [("2.5d", 4), ("3d", 8)])
def test_each_grid_has_its_own_node_and_a_cube_has_one(mode: str, ranks: int) -> None:
    layout = {"tensor": {"mode": mode, "shape": [2, 2, 2]}, "data": 2}
    spec = JobSpec.model_validate({"name": "a", "train": {"steps": 1, "global_batch": 8, "layout": layout}})
    assert (spec.together, spec.world_size) == (ranks, 16)


@pytest.mark.parametrize(("asked", "device"), [("auto", "cpu"), ("cpu", "cpu"), ("cuda", "cuda")])
def test_parameter_servers_take_cpus_unless_gpus_are_asked_for(asked: str, device: str) -> None:
    """A job that asks for GPUs is refused when it is checked."""
    train: dict[str, Any] = {"steps": 1, "global_batch": 2, "layout": {"parameter_server": {"servers": 1}}}
    spec = JobSpec.model_validate({"name": "a", "train": train, "resources": {"device": asked}})
    assert (spec.device, spec.world_size) == (device, 2)


@pytest.mark.parametrize(
    ("resources", "device"), [({"gpu": "H100"}, "cuda"), ({"within": "zone"}, "auto"), ({"gpu": "mixed"}, "cuda")]
)
def test_a_job_that_names_a_gpu_waits_for_gpus(resources: dict[str, Any], device: str) -> None:
    train = {"steps": 1, "global_batch": 2}
    assert JobSpec.model_validate({"name": "a", "train": train, "resources": resources}).device == device


@pytest.mark.parametrize(
    "resources",
    [
        {"gpu": "H100", "device": "cpu"},
        {"gpu": "two words"},
        {"gpu": ""},
        {"within": "rack"},
        {"env": {"9": "x"}},
        {"env": {"A=B": "x"}},
        {"env": {"A": "x\ny"}},
        {"env": {"A": 1}},
    ],
)
def test_resources_that_cannot_be_meant_are_refused(resources: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Resources.model_validate(resources)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"checkpoint": {"export": True, "final": False}}, "the final checkpoint"),
        ({"model": {"family": "moe"}, "checkpoint": {"export": True}}, "no model of the family moe"),
        ({"model": {"import": "mine:make"}, "checkpoint": {"export": True}}, "a module of your own"),
    ],
)
def test_what_cannot_be_exported_is_refused_before_it_is_trained(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(Refusal, match=said) as refused:
        TrainSpec.model_validate({"steps": 1, "global_batch": 2, **changes}).check()
    assert refused.value.field == "checkpoint.export"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ({}, "either dir"),
        ({"dir": ".", "git": "https://example.com/a"}, "either dir"),
        ({"dir": ".", "ref": "main"}, "ref is a branch"),
        ({"git": "https://me:pa55word@example.com/a"}, "a password or a token"),
        ({"git": "https://pa55word@example.com/a"}, "a password or a token"),
        ({"git": "https://example.com/a?private_token=pa55word"}, "a password or a token"),
        ({"git": "ssh://me:pa55word@example.com/a"}, "a password or a token"),
    ],
)
def test_code_that_cannot_be_meant_is_refused(code: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says) as refused:
        CommandSpec.model_validate({"name": "mine", "command": "true", "code": code})
    assert "pa55word" not in str(refused.value.errors(include_input=False))


@pytest.mark.parametrize("url", ["https://example.com/a", "git@example.com:a/b.git", "ssh://git@example.com/a", "/r"])
def test_code_may_come_from_git(url: str) -> None:
    spec = CommandSpec.model_validate({"name": "mine", "command": "true", "code": {"git": url, "ref": "v1"}})
    assert spec.code is not None and spec.code.source == f"{url} at v1"


def test_what_can_be_exported_is_not_refused() -> None:
    TrainSpec.model_validate({"steps": 1, "global_batch": 2, "checkpoint": {"export": True}}).check()


def test_a_module_of_ones_own_has_no_chunks_of_the_loss() -> None:
    spec = {"model": {"import": "m:f"}, "steps": 1, "global_batch": 1, "loss": {"chunk_tokens": 8}}
    with pytest.raises(Refusal) as refused:
        TrainSpec.model_validate(spec).check()
    assert refused.value.field == "loss.chunk_tokens"


def test_a_chunk_of_the_loss_is_of_one_ranks_tokens() -> None:
    given = {"data": {"seq_len": 64}, "steps": 1, "global_batch": 4, "loss": {"chunk_tokens": 32}}
    for layout, expected in (({}, 32), ({"context": 2}, 32), ({"micro_batch": 1, "context": 2}, None)):
        spec = TrainSpec.model_validate({**given, "layout": layout})
        assert spec.loss_chunk(spec.check(), 256) == expected, layout


@pytest.mark.parametrize(
    "wrong",
    [
        *({"logs_days": days} for days in (-1, 36_501, float("nan"), float("inf"), "soon")),
        *({"traces_mib": size} for size in (-1, 1 << 21, float("nan"), float("inf"), "100MB")),
        {"checkpoints_days": 3},
        {"metrics_mib": 3},
    ],
)
def test_a_retention_is_a_number_of_days_or_of_mib(wrong: Any) -> None:
    right = {"logs_days": 0, "traces_days": 0.5, "logs_mib": 0, "traces_mib": 0.5}
    given: dict[str, Any] = {"name": "a", "command": ["true"], "retention": right}
    kept = CommandSpec.model_validate(given).retention
    assert (kept.logs_days, kept.traces_days, kept.events_days) == (0, 0.5, None)
    assert (kept.logs_mib, kept.traces_mib) == (0, 0.5)
    with pytest.raises(ValidationError) as refused:
        CommandSpec.model_validate({**given, "retention": wrong})
    assert refused.value.errors()[0]["loc"] == ("retention", *wrong)
