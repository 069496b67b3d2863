"""Which layouts one process can be compared with, what it does besides training, and for which parameters how."""

from typing import Any

import pytest

from shardyard.strategies.layout import Layout, Refusal
from shardyard.workers.certificate.references import check_comparable, cut_of, delay_of, extra_of, with_blocks
from shardyard.workers.spec import TrainSpec

SMALLER = {"weights": "int8", "secondary": 2, "gradients": "int4"}


def spec(layout: dict[str, Any], **model: Any) -> TrainSpec:
    given = {"preset": "nano", "layers": 4, "tied": False, **model}
    return TrainSpec.model_validate({"model": given, "layout": layout, "steps": 10, "global_batch": 8})


@pytest.mark.parametrize(
    ("layout", "extra"),
    [
        ({"data": 2, "pipeline": 2, "zero": 1}, None),
        ({"data": 4, "zero": 3, "zero_plus_plus": {"secondary": 2}}, None),
        ({"data": 4, "zero": 3, "zero_plus_plus": {"weights": "int8"}}, "rounds the same blocks"),
        ({"data": 4, "zero": 1, "zero_plus_plus": {"gradients": "int8"}}, "rounds the same blocks"),
        ({"pipeline": 2, "schedule": "2bw"}, "takes its gradients as late"),
        ({"pipeline": 4, "schedule": "pipedream"}, "takes its gradients as late"),
        ({"data": 2, "parameter_server": {"servers": 1}}, None),
    ],
    ids=str,
)
def test_one_process_does_what_the_layout_does_besides(layout: dict[str, Any], extra: str | None) -> None:
    check_comparable(spec(layout))
    assert extra_of(Layout.model_validate(layout)) == extra


OWN = {"import": "own:make", "code": "."}
REFUSED: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("layout.parameter_server", "mode to sync", {"data": 2, "parameter_server": {"servers": 1, "mode": "async"}}, {}),
    (
        "layout.zero_plus_plus.gradients",
        "leave gradients out",
        {"data": 2, "context": 2, "zero": 3, "zero_plus_plus": {"gradients": "int8"}},
        {},
    ),
    (
        "layout.zero_plus_plus.gradients",
        "model.tied to false",
        {"data": 2, "pipeline": 2, "zero": 1, "zero_plus_plus": {"gradients": "int8"}},
        {"tied": True},
    ),
    ("layout.schedule", "vertical_sync to true", {"pipeline": 2, "schedule": "pipedream"}, {"tied": True}),
]


@pytest.mark.parametrize(("field", "remedy", "layout", "model"), REFUSED, ids=str)
def test_what_no_process_alone_can_do_is_refused(
    field: str, remedy: str, layout: dict[str, Any], model: dict[str, Any]
) -> None:
    with pytest.raises(Refusal) as refused:
        check_comparable(spec(layout, **model))
    assert refused.value.field == field
    assert remedy in refused.value.remedy


def test_a_module_of_your_own_whose_parts_are_rounded_is_refused() -> None:
    layout = {"data": 2, "tensor": 2, "zero": 3, "zero_plus_plus": {"weights": "int8"}}
    given = {"model": OWN, "layout": layout, "steps": 10, "global_batch": 8}
    with pytest.raises(Refusal) as refused:
        check_comparable(TrainSpec.model_validate(given))
    assert refused.value.field == "layout.zero_plus_plus"
    check_comparable(TrainSpec.model_validate({**given, "layout": {**layout, "tensor": 1}}))


@pytest.mark.parametrize(
    ("name", "tied", "dim"),
    [
        ("embed.weight", False, 1),
        ("embed.weight", True, 0),
        ("positions.weight", True, 1),
        ("head.weight", False, 0),
        ("blocks.3.attention.k.bias", False, 0),
        ("blocks.3.attention.o.weight", False, 1),
        ("blocks.3.attention.o.bias", False, None),
        ("blocks.3.attention.q_norm.weight", False, None),
        ("blocks.3.mlp.up.bias", False, 0),
        ("blocks.3.mlp.down.weight", False, 1),
        ("blocks.3.mlp_norm.weight", False, None),
        ("norm.weight", False, None),
    ],
)
def test_tensor_ranks_round_their_own_parts(name: str, tied: bool, dim: int | None) -> None:
    assert cut_of(name, tied) == dim


def test_gradients_are_late_by_schedule_and_stage() -> None:
    names = (
        "embed.weight",
        "blocks.0.mlp.up.weight",
        "blocks.1.mlp.up.weight",
        "blocks.3.mlp.up.weight",
        "head.weight",
    )
    by_two = Layout.model_validate({"pipeline": 3, "schedule": "2bw"})
    assert [delay_of(name, by_two) for name in names] == [1] * 5
    synchronised = Layout.model_validate({"pipeline": 3, "schedule": "pipedream", "vertical_sync": True})
    assert [delay_of(name, synchronised) for name in names] == [2] * 5
    stages = {"stages": 3, "blocks": [1, 1, 2]}
    by_stage = Layout.model_validate({"pipeline": stages, "schedule": "pipedream"})
    assert [delay_of(name, by_stage) for name in names] == [2, 2, 1, 0, 0]
    with pytest.raises(ValueError, match=r"blocks\.4\.x is in none"):
        delay_of("blocks.4.x", by_stage)


def test_stages_are_those_of_the_run() -> None:
    plan = {"stage_blocks": [[0, 3], [3, 4]]}
    late = spec({"pipeline": 2, "schedule": "pipedream"})
    assert with_blocks(late, plan).layout.pipeline_blocks == (3, 1)
    assert with_blocks(late, {}) == late
    plain = spec({"pipeline": 2})
    assert with_blocks(plain, plan) == plain
