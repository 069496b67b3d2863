from typing import Any

import pytest

from shardyard.strategies.context_axes import windows
from shardyard.strategies.layout import Layout, Refusal
from shardyard.workers.certificate.shrunk_spec import (
    MOST_PARAMETERS,
    MOST_RANKS,
    MOST_TOKENS,
    Shrunk,
    shrunk,
)
from shardyard.workers.models.presets import PRESETS, Architecture
from shardyard.workers.spec import TrainSpec


def spec(**fields: Any) -> TrainSpec:
    return TrainSpec.model_validate({"steps": 10, "global_batch": 16, **fields})


def made(train: TrainSpec) -> Shrunk:
    found = shrunk(train, train.architecture(256))
    arch = found.train.architecture(256)
    assert arch is not None and arch.parameters <= MOST_PARAMETERS
    assert found.train.layout.world_size <= MOST_RANKS
    assert found.train.global_batch * found.train.data.seq_len <= MOST_TOKENS
    found.train.check()
    return found


def axes(layout: Layout) -> list[bool]:
    numbers = (layout.data, layout.tensor, layout.ring, layout.ulysses, layout.pipeline, layout.expert)
    numbers = (*numbers, windows(layout))
    return [number > 1 for number in numbers]


def test_a_small_spec_is_trained_as_it_is() -> None:
    train = spec(layout={"data": 2, "tensor": 2})
    assert shrunk(train, train.architecture(256)) == Shrunk(train)


@pytest.mark.parametrize(
    ("model", "layout", "batch"),
    [
        ({"preset": "70B"}, {"data": 8, "tensor": 8, "pipeline": 8, "schedule": "interleaved", "virtual": 2}, 1024),
        ({"preset": "8B"}, {"data": 16, "zero": 3, "shard": 8, "tensor": 4}, 512),
        ({"preset": "7B"}, {"data": 4, "context": 8, "ulysses": 2, "zero": 2}, 64),
        ({"preset": "7B"}, {"data": 2, "context": 16, "ring_window": 4, "context_inner": "ring"}, 64),
        ({"preset": "7B"}, {"data": 4, "context": 16, "ulysses": 4, "ring_window": 2}, 64),
        ({"preset": "8B"}, {"pipeline": 8, "schedule": "zbv", "data": 8, "zero": 1, "micro_batch": 2}, 2048),
        ({"family": "moe", "preset": "mixtral-8x7B"}, {"data": 8, "expert": 8, "tensor": 4, "zero": 1}, 256),
    ],
    ids=str,
)
def test_a_large_one_keeps_every_axis(model: dict[str, Any], layout: dict[str, Any], batch: int) -> None:
    train = spec(model=model, layout=layout, global_batch=batch, data={"seq_len": 2048})
    found = made(train)
    after, before = found.train.layout, train.layout
    assert axes(after) == axes(before)
    assert (after.zero, after.schedule, after.shard is None) == (before.zero, before.schedule, before.shard is None)
    assert (after.data > (after.shard or 1)) == (before.data > (before.shard or 1))
    assert found.train.model.family == train.model.family
    assert any(change.startswith("layout: ") for change in found.changes)


def shape(mode: str, *numbers: int) -> dict[str, Any]:
    return {"mode": mode, "shape": list(numbers)}


NINE = {"dim": 576, "heads": 9, "kv_heads": 9, "hidden": 1152}
GPT2 = {"family": "gpt2", "preset": "124M"}
QWEN3 = {"preset": "qwen3-8B"}
LARGE = {"preset": "7B"}


@pytest.mark.parametrize(
    ("model", "layout", "batch"),
    [
        ({"preset": "8B"}, {"tensor": shape("2d", 8, 8)}, 64),
        ({"preset": "8B"}, {"tensor": shape("2d", 8, 8), "micro_batch": 8}, 64),
        (GPT2, {"data": 4, "tensor": shape("2d", 3, 3)}, 48),
        (NINE, {"tensor": shape("2d", 9, 9)}, 9 * 4096),
        (LARGE, {"data": 4, "zero": 1, "tensor": shape("2d", 4, 4)}, 64),
        (LARGE, {"pipeline": 4, "schedule": "interleaved", "tensor": shape("2d", 4, 4)}, 256),
        (LARGE, {"pipeline": 2, "schedule": "zbv", "tensor": shape("2d", 4, 4), "micro_batch": 4}, 256),
        (LARGE, {"tensor": shape("2.5d", 4, 4, 4)}, 64),
        (LARGE, {"tensor": shape("2.5d", 8, 8, 1)}, 64),
        (LARGE, {"tensor": shape("2.5d", 8, 8, 8), "zero": 1}, 512),
        (LARGE, {"data": 8, "zero": 2, "tensor": shape("2.5d", 4, 4, 2), "micro_batch": 8}, 1024),
        (LARGE, {"tensor": shape("3d", 4, 4, 4)}, 64),
        (QWEN3, {"tensor": shape("3d", 8, 8, 8)}, 64),
        (LARGE, {"data": 2, "zero": 1, "tensor": shape("3d", 4, 4, 4)}, 64),
        (LARGE, {"pipeline": 4, "schedule": "1f1b", "tensor": shape("3d", 4, 4, 4)}, 1024),
        ({}, {"data": 64, "parameter_server": {"servers": 32}}, 64),
        ({}, {"data": 64, "parameter_server": {"servers": 1}, "micro_batch": 2}, 4096),
        ({}, {"parameter_server": {"servers": 20}}, 64),
        ({}, {"data": 27, "zero": 1}, 27),
        (LARGE, {"pipeline": 32, "schedule": "pipedream", "vertical_sync": True}, 64),
        (LARGE, {"pipeline": 32, "schedule": "2bw", "data": 2}, 2048),
    ],
    ids=str,
)
def test_grids_cubes_and_servers_shrink_and_stay_what_they_are(
    model: dict[str, Any], layout: dict[str, Any], batch: int
) -> None:
    train = spec(model=model, layout=layout, global_batch=batch, data={"seq_len": 128})
    train.check()
    found = made(train).train
    assert sizeless(found.layout) == sizeless(train.layout)
    assert TrainSpec.model_validate_json(found.model_dump_json(by_alias=True)) == found


def sizeless(layout: Layout) -> list[object]:
    """What of a layout is no size."""
    tensor = layout.tensor_shape
    grid = None if tensor is None else (tensor.mode, tensor.depth > 1)
    return [*axes(layout), grid, layout.zero, layout.schedule, layout.vertical_sync, min(2, layout.servers)]


def test_where_axes_need_more_than_sixteen_ranks_each_has_two() -> None:
    layout = {"data": 4, "pipeline": 4, "tensor": shape("3d", 4, 4, 4)}
    train = spec(model=LARGE, layout=layout, global_batch=1024)
    found = shrunk(train, train.architecture(256)).train.layout
    assert str(found) == "data 2 × tensor 2 × 2 × 2 (3d) × pipeline 2 (1f1b)"


def test_groups_of_zero_plus_plus_shrink_with_the_replicas() -> None:
    for shard, data in ((None, 4), (16, 8)):
        layout = {"data": 64, "zero": 3, "shard": shard, "zero_plus_plus": {"secondary": 8}}
        found = made(spec(layout=layout, global_batch=64)).train.layout
        assert found.zero_plus_plus is not None
        assert (found.data, found.zero_plus_plus.secondary, found.zero_plus_plus.node) == (data, 2, None)


def test_what_is_small_already_stays() -> None:
    found = made(spec(model={"preset": "7B"}, layout={"data": 2}))
    assert [change.partition(":")[0] for change in found.changes] == [
        "model.layers",
        "model.dim",
        "model.heads",
        "model.kv_heads",
        "model.hidden",
    ]
    long = made(spec(layout={"data": 4}, global_batch=4096, data={"seq_len": 1024}))
    assert long.train.model == spec().model
    assert [change.partition(":")[0] for change in long.changes] == ["data.seq_len", "global_batch"]


def test_sequences_and_batches_are_multiples_of_what_divides_them() -> None:
    layout = {"data": 2, "context": 3, "micro_batch": 3}
    found = made(spec(layout=layout, global_batch=384, data={"seq_len": 1536}))
    assert found.changes == ("data.seq_len: 1536 → 36",)
    found = made(spec(layout=layout, global_batch=6 << 11, data={"seq_len": 1536}))
    assert found.changes == ("data.seq_len: 1536 → 36", f"global_batch: {6 << 11} → 6")


@pytest.mark.parametrize(
    "numbers",
    [
        {"preset": "7B", "dim": 64, "heads": 32, "kv_heads": 1},
        {"preset": "7B", "hidden": 24},
        {"family": "moe", "hidden": 24, "experts": 512},
    ],
    ids=str,
)
def test_no_number_of_a_smaller_model_is_larger(numbers: dict[str, Any]) -> None:
    train = spec(model=numbers, layout={"data": 2})
    before, after = train.architecture(256), made(train).train.architecture(256)
    assert before is not None and after is not None
    sizes = {"layers", "dim", "heads", "kv_heads", "hidden", "parameters"}
    assert all(getattr(after, name) <= getattr(before, name) for name in sizes)


def kind(arch: Architecture | None) -> dict[str, Any]:
    """What a smaller model has of a larger one: all but its sizes."""
    assert arch is not None
    sizes = {"layers", "dim", "heads", "kv_heads", "hidden", "max_seq_len", "head_dim", "experts"}
    return {**arch.model_dump(exclude=sizes), "queries per key": arch.heads // arch.kv_heads}


@pytest.mark.parametrize(("family", "preset"), [(family, one) for family, all_ in PRESETS.items() for one in all_])
def test_every_preset_has_a_smaller_one_of_its_kind(family: str, preset: str) -> None:
    train = spec(model={"family": family, "preset": preset}, layout={"data": 2, "zero": 1}, data={"seq_len": 128})
    assert kind(made(train).train.architecture(256)) == kind(train.architecture(256))


def test_heads_of_another_size_are_noted() -> None:
    found = made(spec(model={"preset": "qwen3-8B"}, layout={"data": 2, "zero": 1}))
    assert "size of a head: 128 → 64" in found.changes


def test_numbers_of_a_mixture_stay() -> None:
    given = {"shared_experts": 1, "top_k": 3, "balance": "bias", "bias_update_speed": 0.01}
    train = spec(model={"family": "moe", "preset": "mixtral-8x7B", **given}, layout={"data": 2, "expert": 2})
    after = made(train).train.architecture(256)
    assert kind(after) == kind(train.architecture(256))
    assert after is not None and after.experts is not None and after.experts > after.top_k


@pytest.mark.parametrize("numbers", [{"qkv_bias": True}, {"window": 4096}], ids=str)
def test_a_model_that_no_spec_can_name_smaller_is_refused(numbers: dict[str, Any]) -> None:
    train = spec(model={"preset": "7B"})
    given = train.architecture(256)
    assert given is not None
    arch = Architecture.model_validate({**given.model_dump(), **numbers})
    with pytest.raises(Refusal) as refused:
        shrunk(train, arch)
    assert refused.value.field == "model" and next(iter(numbers)) in refused.value.message
    assert "--whole" in refused.value.remedy


def test_samples_of_an_own_source_keep_their_size_and_their_batch_shrinks() -> None:
    own = {"model": {"import": "a:b"}, "data": {"source": "a:c"}}
    small = spec(layout={"data": 2}, **own)
    assert shrunk(small, None) == Shrunk(small)
    found = shrunk(spec(layout={"data": 2}, **own | {"global_batch": 4 * MOST_TOKENS}), None)
    assert found.train.data == small.data and found.train.global_batch <= MOST_TOKENS
