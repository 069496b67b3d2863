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


def test_groups_of_zero_plus_plus_shrink_with_the_replicas() -> None:
    layout = {"data": 64, "zero": 3, "zero_plus_plus": {"secondary": 16}}
    found = made(spec(layout=layout, global_batch=64)).train.layout
    assert found.zero_plus_plus is not None
    assert (found.data, found.zero_plus_plus.secondary, found.zero_plus_plus.node) == (4, 2, None)


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
    assert refused.value.field == "model" and [*numbers][0] in refused.value.message
    assert "--whole" in refused.value.remedy


def test_samples_of_an_own_source_keep_their_size_and_their_batch_shrinks() -> None:
    own = {"model": {"import": "a:b"}, "data": {"source": "a:c"}}
    small = spec(layout={"data": 2}, **own)
    assert shrunk(small, None) == Shrunk(small)
    found = shrunk(spec(layout={"data": 2}, **own | {"global_batch": 4 * MOST_TOKENS}), None)
    assert found.train.data == small.data and found.train.global_batch <= MOST_TOKENS
