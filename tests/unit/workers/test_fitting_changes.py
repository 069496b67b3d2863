"""Thirty specs that cannot fit, of published models and small ones: each has a change that, applied, fits by the same function."""

from typing import Any

import pytest
from harness.unfit_specs import UNFIT, Unfit

from shardyard.strategies.cost.node_room import GPU_RESERVED_BYTES, Cluster, Room, Verdict, verdict
from shardyard.strategies.cost.plan import plan
from shardyard.strategies.layout import ModelFacts
from shardyard.workers import fitting_changes
from shardyard.workers.cost_inputs import planned_setting
from shardyard.workers.elastic_layouts import elastic_layouts
from shardyard.workers.fitting_changes import Change, Edit, applied, few_changes, smallest_change
from shardyard.workers.gpu_models import gpu_named
from shardyard.workers.spec import TrainSpec, facts_of

#: More ranks than any candidate has: only the memory of a GPU decides.
MANY = 10**9


def verdict_on(train: TrainSpec, gpu: str, memory: int | None = None, host: int | None = None) -> Verdict:
    architecture, model = train.architecture(256), gpu_named(gpu)
    assert architecture is not None and model is not None
    found = plan(planned_setting(train, architecture, "cuda"))
    room = Room(MANY if host is None else train.layout.world_size, memory or model.memory_bytes, host=host)
    return verdict(found, "cuda", train.layout.world_size, [Cluster([room])])


def change_of(
    train: TrainSpec, gpu: str, memory: int | None = None, host: int | None = None, most: int = MANY
) -> Change | None:
    """`host`: host memory of the one node on which all ranks are."""
    architecture = train.architecture(256)
    assert architecture is not None
    return smallest_change(train, facts_of(architecture), lambda one: verdict_on(one, gpu, memory, host), most)


@pytest.mark.parametrize("name", UNFIT)
def test_a_spec_that_cannot_fit_has_a_change_that_fits(name: str) -> None:
    unfit = UNFIT[name]
    train = TrainSpec.model_validate(unfit.train)
    train.check()
    assert verdict_on(train, unfit.gpu).fits is False
    change = change_of(train, unfit.gpu)
    assert change is not None and change.fits, str(change)
    again = applied(train, change.edits)
    again.check()
    assert again == change.train and verdict_on(again, unfit.gpu).fits is True
    assert again.global_batch == train.global_batch and again.check().global_batch == train.global_batch


def test_there_are_thirty_of_them_on_several_gpus() -> None:
    assert len(UNFIT) >= 30 and len({unfit.gpu for unfit in UNFIT.values()}) >= 4


def small(**fields: Any) -> TrainSpec:
    base = {"model": {"preset": "124M"}, "data": {"seq_len": 1024}, "precision": "bf16", "steps": 2, "global_batch": 32}
    return TrainSpec.model_validate({**base, **fields})


def test_the_cheapest_single_change_comes_first() -> None:
    train = small(layout={"data": 4})
    needs = {
        mode: verdict_on(small(layout={"data": 4}, recompute=mode), "H100").needed for mode in ("selective", "full")
    }
    assert needs["full"] < needs["selective"] < verdict_on(train, "H100").needed
    selective = change_of(train, "H100", needs["selective"])
    full = change_of(train, "H100", needs["full"])
    assert str(selective) == "recompute: selective" and str(full) == "recompute: full"


def test_a_schedule_that_refuses_the_smallest_micro_batch_is_offered_its_own() -> None:
    """Of 18 sequences on four stages the interleaved schedule runs 3 at a time, and not 1."""
    model = {"preset": "micro", "layers": 16}
    layout = {"pipeline": 4, "schedule": "interleaved", "data": 2}
    train = small(model=model, data={"seq_len": 512}, layout=layout, global_batch=36)
    change = change_of(train, "H100", GPU_RESERVED_BYTES + 95_000_000)
    assert change is not None and change.fits
    assert change.train.layout.data == 2 and change.train.layout.tensor == 1 and len(change.edits) == 2


def between(train: TrainSpec, *edits: Edit) -> int:
    """Memory of a GPU on which these edits fit, and no single change."""
    facts = facts_of(train.architecture(256))  # type: ignore[arg-type]
    together = verdict_on(applied(train, edits), "H100").needed
    single = [one.train for one in few_changes(train, facts) if len(one.edits) == 1]
    least = min(verdict_on(one, "H100").needed for one in single)
    assert together < least
    return (together + least) // 2


FRUGAL: tuple[Edit, ...] = (("recompute", "full"), ("layout.micro_batch", 2), ("layout.zero", 2))


def test_a_grid_that_refuses_the_smallest_micro_batch_is_offered_its_own() -> None:
    """Its two rows do not divide a micro-batch of one sequence."""
    train = small(layout={"data": 2, "tensor": {"mode": "2d", "shape": [2, 2]}})
    change = change_of(train, "H100", between(train, *FRUGAL), most=8)
    assert change is not None and change.fits and len(change.edits) > 1
    assert change.train.check().micro_batch % 2 == 0 and change.train.layout.tensor_shape == train.layout.tensor_shape


def test_fp8_is_offered_no_micro_batch_that_its_kernels_refuse() -> None:
    """They multiply multiples of 16 tokens, and a sequence has 8 less than such a number."""
    train = small(layout={"data": 2}, precision="fp8", data={"seq_len": 1000})
    change = change_of(train, "H100", between(train, *FRUGAL), most=2)
    assert change is not None and change.fits and len(change.edits) > 1
    assert change.train.check().micro_batch % 2 == 0


def test_no_more_ranks_are_tried_than_there_are_and_only_so_many_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    train, asked = small(model={"preset": "1.3B"}, layout={"data": 2}, global_batch=4096), list[TrainSpec]()
    facts = facts_of(train.architecture(256))  # type: ignore[arg-type]

    def judge(one: TrainSpec) -> Verdict:
        asked.append(one)
        return verdict_on(one, "H100", 2**20)

    change = smallest_change(train, facts, judge, 16)
    assert change is not None and max(one.layout.world_size for one in asked) == 16 and len(asked) < 300
    asked.clear()
    monkeypatch.setattr(fitting_changes, "_MOST_JUDGED", 100)
    smallest_change(train, facts, judge, MANY)
    assert len(asked) < 110


def test_if_nothing_fits_the_closest_is_returned() -> None:
    train = small(layout={"data": 2})
    change = change_of(train, "H100", 2**20)
    assert change is not None and not change.fits
    assert change.verdict.needed < verdict_on(train, "H100").needed


ON_HOST: dict[str, Any] = {"offload": {"optimizer": 1}}


@pytest.mark.parametrize(
    ("train", "host", "named"),
    [
        ({"layout": {"data": 4, "micro_batch": 1}, **ON_HOST}, 5000, "layout.zero: 1"),
        ({"layout": {"data": 4, "zero": 3, "micro_batch": 1}, **ON_HOST}, 2000, "offload.optimizer: 0"),
        (
            {"layout": {"data": 4, "zero": 3, "micro_batch": 1}, "offload": {"parameters": True}},
            2000,
            "offload.parameters: false",
        ),
        (
            {"layout": {"data": 4, "zero": 3, "micro_batch": 1}, "offload": {"activations": True}},
            1200,
            "offload.activations: false",
        ),
    ],
    ids=["more ZeRO", "the optimizer on the device", "parameters on the device", "activations on the device"],
)
def test_where_host_memory_is_short_less_is_offloaded(train: dict[str, Any], host: int, named: str) -> None:
    """On GPUs that have room for it."""
    spec = small(**train, recompute="full")
    assert verdict_on(spec, "H100").fits is True and verdict_on(spec, "H100", host=host << 20).lacks_host
    change = change_of(spec, "H100", host=host << 20, most=4)
    assert change is not None and change.fits and str(change).startswith(named), str(change)
    assert change.train.offload == applied(spec, change.edits).offload


def test_state_goes_to_a_disk_where_neither_device_nor_host_has_room_for_it() -> None:
    train = small(model={"preset": "1.3B"}, layout={}, global_batch=1)
    assert str(change_of(train, "T4", host=16 << 30, most=1)) == "offload.optimizer: 1"
    change = change_of(train, "T4", host=14 << 30, most=1)
    assert change is not None and change.fits and str(change) == "offload.optimizer: 1, offload.to: disk"
    assert change.verdict.host.needed < 2**30
    none = change_of(train, "T4", host=2**20, most=1)
    assert none is not None and not none.fits and none.train.offload.optimizer == 0, "the nearest lacks no host memory"


def test_an_elastic_job_keeps_its_degrees() -> None:
    change = change_of(small(layout={"data": {"min": 1, "max": 4}}), "H100", 2**20)
    assert change is not None and not {"layout.tensor", "layout.pipeline", "layout.data"} & dict(change.edits).keys()


@pytest.mark.parametrize(
    ("degrees", "fewest"), [({"min": 1, "max": 2}, 1), ({"min": 1, "max": 4}, 1), ({"min": 2, "max": 4}, 2)]
)
def test_an_elastic_job_keeps_its_smallest_layout(degrees: dict[str, int], fewest: int) -> None:
    """One replica has nothing to shard: ZeRO is offered only to ranges without it."""
    train = small(model={"preset": "7B"}, layout={"data": degrees, "micro_batch": 1}, recompute="full", global_batch=4)
    architecture = train.architecture(256)
    assert architecture is not None
    change = change_of(train, "A100 80GB")
    assert change is not None and ("layout.zero" in dict(change.edits)) == (fewest > 1)
    layouts = elastic_layouts(change.train, facts_of(architecture))
    assert min(layout.data for layout in layouts) == fewest


def test_the_change_of_every_knob_leaves_out_what_an_elastic_job_may_not_have() -> None:
    layout = {"data": {"min": 1, "max": 4}, "micro_batch": 2}
    found = [*few_changes(small(model={"import": "net:make"}, layout=layout), ModelFacts(None, None, None, None))]
    assert str(found[-1]) == "recompute: full, layout.micro_batch: 1, offload.optimizer: 1"


def test_unfit_specs_are_not_all_alike() -> None:
    found = {str(change_of(TrainSpec.model_validate(unfit.train), unfit.gpu)) for unfit in UNFIT.values()}
    assert isinstance(next(iter(UNFIT.values())), Unfit) and len(found) > 8


def test_what_is_offered_beside_parameter_servers_counts_their_workers_only() -> None:
    train = small(layout={"data": 4, "parameter_server": {"servers": 3}})
    change = change_of(train, "H100", 2**20)
    assert change is not None and change.train.layout.servers == 3
    assert change.train.layout.data in (4, *(4 << shift for shift in range(1, 13)))


def test_few_changes_are_single_ones_and_then_one_of_every_knob() -> None:
    train = small(model={"import": "net:make"}, layout={"data": 4, "micro_batch": 2})
    found = [*few_changes(train, ModelFacts(None, None, None, None))]
    assert [str(change) for change in found] == [
        "recompute: selective",
        "recompute: full",
        "layout.micro_batch: 1",
        "layout.zero: 1",
        "layout.zero: 2",
        "layout.zero: 3",
        "offload.optimizer: 1",
        "recompute: full, layout.micro_batch: 1, layout.zero: 3, offload.optimizer: 1",
    ]
    assert all(change.train == applied(train, change.edits) and not change.fits for change in found)
    offloads = [*few_changes(small(**{**ON_HOST, "model": {"import": "net:make"}}), ModelFacts(None, None, None, None))]
    assert str(offloads[-2]) == "offload.optimizer: 0" and "offload" not in str(offloads[-1])


def test_where_one_knob_is_left_it_is_offered_once() -> None:
    train = small(model={"import": "net:make"}, recompute="full", layout={"micro_batch": 1})
    found = [*few_changes(train, ModelFacts(None, None, None, None))]
    assert [str(change) for change in found] == ["offload.optimizer: 1"]
