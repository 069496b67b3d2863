"""What ZeRO-3 holds beside its shards: blocks that are gathered ahead, and on gloo sums of several blocks, unless others wait for each."""

from typing import Any

import pytest

from shardyard.strategies.cost import gathered
from shardyard.strategies.cost.estimate import Setting
from shardyard.strategies.cost.plan import plan
from shardyard.workers.cost_inputs import planned_setting
from shardyard.workers.device_choices import DeviceKind
from shardyard.workers.spec import TrainSpec

BLOCKS = 6
#: Numbers of one block.
BLOCK = 4 * 512 * 512 + 3 * 512 * 1536 + 2 * 512
MODEL = {"dim": 512, "heads": 8, "kv_heads": 8, "hidden": 1536, "layers": BLOCKS, "vocab": 512}


def setting(layout: dict[str, Any], device: DeviceKind = "cpu", prefetch: int = 2, **model: Any) -> Setting:
    train = TrainSpec.model_validate(
        {
            "model": {**MODEL, **model},
            "data": {"seq_len": 32},
            "precision": "fp32",
            "steps": 2,
            "global_batch": 8,
            "layout": {"zero": 3, **layout},
            "overlap": {"prefetch": prefetch},
        }
    )
    architecture = train.architecture(256)
    assert architecture is not None
    return planned_setting(train, architecture, device)


@pytest.mark.parametrize(
    ("layout", "prefetch", "sums"),
    [
        ({"data": 4}, 1, 2),
        ({"data": 4}, 2, 3),
        ({"data": 4}, 9, BLOCKS),
        ({"data": 4, "zero_plus_plus": {"secondary": 2}}, 2, 3),
        ({"data": 4, "zero_plus_plus": {"gradients": "int8"}}, 2, 0),
        ({"data": 4, "shard": 2}, 2, 0),
        ({"data": 4, "pipeline": 2}, 2, 0),
        ({"data": 4, "zero": 2}, 2, 0),
    ],
    ids=str,
)
def test_so_many_sums_are_in_transit(layout: dict[str, Any], prefetch: int, sums: int) -> None:
    assert gathered.sums_in_transit(setting(layout, prefetch=prefetch), BLOCKS) == sums
    assert gathered.sums_in_transit(setting(layout, "cuda", prefetch), BLOCKS) == 0


@pytest.mark.parametrize(
    ("layout", "prefetch", "ahead"),
    [
        ({"data": 4}, 2, 2),
        ({"data": 4}, 9, BLOCKS - 1),
        ({"data": 4, "pipeline": 2}, 2, None),
        ({"data": 4, "zero": 2}, 2, None),
    ],
    ids=str,
)
def test_so_much_is_gathered_in_the_forward_pass(layout: dict[str, Any], prefetch: int, ahead: int | None) -> None:
    """In fp32. Experts that are on no other rank are not sent ahead."""
    found = gathered.in_forward(setting(layout, "cuda", prefetch), block=100, ends=7, blocks=BLOCKS, unshared=60)
    assert found == (0 if ahead is None else 4 * (7 + 2 * 100 + ahead * 40))


def test_more_in_transit_is_planned() -> None:
    """Each block more: its gradients, and as many that the others sent; and one block's shard of the gradients."""
    few, more = (plan(setting({"data": 4}, prefetch=prefetch)) for prefetch in (2, 3))
    block = 4 * BLOCK
    activations = few.by_kind["activations"] - more.by_kind["activations"]
    assert more.peak - few.peak + activations == pytest.approx(2 * block + block / 4, rel=0.01)


def test_a_pipeline_has_whole_gradients_of_an_only_micro_batch_too() -> None:
    """Torch's schedules let `fully_shard` reduce after a stage's last backward pass: at the first block, those of all blocks after it."""
    only = setting({"data": 2, "pipeline": 2, "schedule": "gpipe", "micro_batch": 4})
    assert only.batch.microbatches == 1
    assert plan(only).by_kind["gradients"] == 4 * (BLOCKS // 2 - 1) * BLOCK


def test_a_tied_head_on_the_rank_of_its_embedding_is_a_copy_without_optimizer_state() -> None:
    """ZBV's first rank has both ends. In ZeRO-3 each has a shard, which is gathered, and gradients of its own."""
    layout = {"data": 2, "pipeline": 2, "schedule": "zbv", "micro_batch": 1}
    own, tied = (plan(setting(layout, vocab=32000, tied=tied)) for tied in (False, True))
    assert own.moment == tied.moment
    of_head = 4 * 32000 * 512 // 2
    assert own.by_kind["optimizer"] - tied.by_kind["optimizer"] == 2 * of_head
    assert {**own.by_kind, "optimizer": 0} == {**tied.by_kind, "optimizer": 0}
    assert own.host["snapshots"] - tied.host["snapshots"] == 2 * 3 * of_head
