"""Which devices a plan is made for, by the known nodes."""

from dataclasses import replace
from typing import Any, cast

import pytest

from shardyard.service.capacity import Nodes
from shardyard.service.errors import DoesNotFit
from shardyard.service.jobs.memory_plan import Planned, device_facts, planned
from shardyard.service.jobs.validation import check_layout
from shardyard.service.policies.queue import Inventory, machine
from shardyard.service.spec import JobSpec
from shardyard.workers.device_choices import DeviceFacts

GIB = 2**30


def cluster(*models: str, gpus: float = 8.0, memory: int = 64 * GIB) -> Nodes:
    rows: list[Any] = [{"cpu": 64.0, "gpu": gpus, "gpu_model": model, "host_memory_bytes": memory} for model in models]
    return Nodes(cast(Any, rows), Inventory([machine(64.0, 0.0, gpus, 0.0, 1) for _ in models]), 4)


def job(device: str = "auto") -> JobSpec:
    train = {"steps": 1, "global_batch": 2}
    return JobSpec.model_validate({"name": "a", "train": train, "resources": {"device": device}})


@pytest.mark.parametrize(
    ("models", "capability"),
    [
        (["T4"], (7, 5)),
        (["T4", "V100"], (7, 5)),
        (["T4", "H100"], (9, 0)),
        (["H100", "B200"], (9, 0)),  # a loop over experts keeps more
        (["B200"], (10, 0)),
        (["T4", "RTX-9090"], None),
        (["A100"], (8, 0)),
    ],
    ids=str,
)
def test_gpus_are_as_new_as_the_newest_known_model_that_groups_experts(
    models: list[str], capability: tuple[int, int] | None
) -> None:
    assert device_facts(job(), [cluster(*models)]) == DeviceFacts("cuda", capability)


def test_cpus_have_no_capability() -> None:
    assert device_facts(job("cpu"), [cluster("T4")]) == DeviceFacts("cpu")
    assert device_facts(job(), [cluster("", gpus=0.0)]) == DeviceFacts("cpu")


def own(at_peak: dict[str, int] | None, resources: dict[str, Any] | None = None, **train: Any) -> JobSpec:
    """A job of a module of the user's own, with a plan that is not checked to be of its spec."""
    plan = (
        None
        if at_peak is None
        else {"of": "0" * 64, "ranks": 2, "parameters": 5, "at_peak": at_peak, "host_bytes": GIB}
    )
    given = {"model": {"import": "a:b"}, "layout": {"data": 2}, "steps": 1, "global_batch": 4, "planned": plan}
    return JobSpec.model_validate({"name": "a", "train": {**given, **train}, "resources": resources or {}})


def test_the_plan_that_came_with_an_own_module_is_judged_as_any_other() -> None:
    spec = own({"parameters": 4 * GIB, "activations": 3 * GIB})
    found = planned(spec, check_layout(spec.train, 256), [cluster("T4")])
    assert found is not None
    record = found.record()
    assert (record.fits, record.bytes, record.needed_bytes, record.source) == (True, 7 * GIB, 9 * GIB, "dry run")
    assert {one.kind: one.bytes for one in record.kinds} == {"parameters": 4 * GIB, "activations": 3 * GIB}
    assert [(one.kind, one.bytes) for one in record.host] == [("tensors", GIB)] and "dry run" in record.notes[0]


def test_an_own_module_that_cannot_fit_is_refused_with_its_breakdown_unless_forced() -> None:
    spec = own({"parameters": 4 * GIB, "activations": 30 * GIB})
    with pytest.raises(DoesNotFit, match=r"activations 30\.0 GiB") as error:
        planned(spec, check_layout(spec.train, 256), [cluster("T4")])
    assert "recompute" in (error.value.remedy or "") and "resources.force" in (error.value.remedy or "")
    forced = own({"parameters": 4 * GIB, "activations": 30 * GIB}, {"force": True})
    found = planned(forced, check_layout(forced.train, 256), [cluster("T4")])
    assert found is not None and found.record().fits is False


def test_on_cpus_its_ranks_share_the_node_with_what_is_on_the_host() -> None:
    spec = own({"parameters": 31 * GIB}, {"device": "cpu"})
    with pytest.raises(DoesNotFit, match=r"tensors on the host 1\.0 GiB"):
        planned(spec, check_layout(spec.train, 256), [cluster("T4")])
    elastic = own({"parameters": 31 * GIB}, {"device": "cpu"}, layout={"data": {"min": 1, "max": 2}})
    found = planned(elastic, check_layout(elastic.train, 256), [cluster("T4")])
    assert found is not None and found.spec.world_size == 1, "one rank has room"
    assert (found.checked.batch.data, found.checked.elastic_layouts, [one.data for one in found.unfit]) == (1, (), [2])


def test_on_gpus_its_ranks_share_the_host_memory_of_their_node() -> None:
    small = [cluster("T4", memory=2 * GIB)]
    for resources in ({}, {"force": True}):
        spec = own({"parameters": GIB}, resources, offload={"optimizer": 1})
        if resources:
            found = planned(spec, check_layout(spec.train, 256), small)
            assert found is not None and found.record().fits is False
            assert "a node has 2.0 GiB for 2 of them" in found.record().notes[-1]
            continue
        with pytest.raises(DoesNotFit, match=r"In host memory each rank needs 1\.3 GiB \(tensors 1\.0 GiB") as error:
            planned(spec, check_layout(spec.train, 256), small)
        assert (error.value.remedy or "").startswith("Less host memory: a smaller offload.optimizer")
    disk = own({"parameters": GIB}, offload={"optimizer": 1, "to": "disk"})
    found = planned(disk, check_layout(disk.train, 256), small)
    assert found is not None and found.record().fits is True, "its dry run counts state on a disk as host memory"
    elastic = own({"parameters": GIB}, layout={"data": {"min": 1, "max": 2}})
    found = planned(elastic, check_layout(elastic.train, 256), small)
    assert found is not None and found.spec.world_size == 1


def test_an_own_module_without_a_plan_has_none() -> None:
    spec = own(None)
    assert planned(spec, check_layout(spec.train, 256), [cluster("T4")]) is None


def cores(*nodes: float, memory: int = 64 * GIB) -> Nodes:
    """A cluster without GPUs."""
    rows: list[Any] = [{"cpu": cpus, "gpu": 0.0, "gpu_model": "", "host_memory_bytes": memory} for cpus in nodes]
    return Nodes(cast(Any, rows), Inventory([machine(cpus, 0.0, 0.0, 0.0, 1) for cpus in nodes]), 4)


def large(zero: int) -> JobSpec:
    model = {"preset": "7B", "vocab": 32_000}
    train = {"model": model, "layout": {"data": 8, "zero": zero}, "steps": 1, "global_batch": 8, "precision": "bf16"}
    return JobSpec.model_validate({"name": "a", "train": train})


def both_orders(spec: JobSpec, *clusters: Nodes) -> list[Planned | None]:
    orders = (clusters, clusters[::-1])
    return [planned(spec, check_layout(spec.train, 32_000), order) for order in orders]


def test_of_several_clusters_one_with_gpus_for_the_job_decides_whatever_its_name() -> None:
    for nodes in ((8.0, 8.0), (2.0,)):
        clusters = [cores(*nodes), cluster("H100")]
        assert {device_facts(large(3), order) for order in (clusters, clusters[::-1])} == {DeviceFacts("cuda", (9, 0))}
        first, second = both_orders(large(3), *clusters)
        assert first is not None and first == second
        assert (first.record().device, first.record().fits) == ("cuda", True)


def test_a_cluster_whose_gpus_are_too_few_decides_nothing() -> None:
    few = Nodes(cluster("H100").rows, Inventory([machine(4.0, 0.0, 4.0, 0.0, 1)]), 4)
    answers = both_orders(large(3), few, cores(8.0, 8.0, memory=256 * GIB))
    assert [None if one is None else one.record().device for one in answers] == ["cpu", "cpu"]


def test_a_job_is_refused_if_each_cluster_that_is_large_enough_refuses_it() -> None:
    for small in (cores(8.0, 8.0), cores(2.0)):
        for order in ([small, cluster("H100")], [cluster("H100"), small]):
            with pytest.raises(DoesNotFit, match="a GPU has"):
                planned(large(0), check_layout(large(0).train, 32_000), order)
    roomy = both_orders(large(0), cores(8.0, memory=2048 * GIB), cluster("H100"))
    assert [(one.record().device, one.record().fits) for one in roomy if one] == [("cpu", True)] * 2
    assert all("set resources.device to cpu" in one.record().notes[-1] for one in roomy if one)
    alone = planned(large(0), check_layout(large(0).train, 32_000), [cores(8.0, memory=2048 * GIB)])
    assert alone is not None and not any("GPU" in note for note in alone.record().notes)


def elastic(resources: dict[str, Any] | None = None, **layout: Any) -> JobSpec:
    """70B under ZeRO-3, which fits on 16 of the GPUs that Ray calls H100, and not on 8."""
    model = {"preset": "70B", "vocab": 32_000}
    train = {"model": model, "layout": {"zero": 3, **layout}, "recompute": "full", "data": {"seq_len": 1024}}
    fields = {"steps": 1, "global_batch": 32, "precision": "bf16", **train}
    return JobSpec.model_validate({"name": "a", "train": fields, "resources": resources or {}})


def on_h100s(spec: JobSpec, nodes: int) -> Planned:
    found = planned(spec, check_layout(spec.train, 32_000), [cluster(*["H100"] * nodes)])
    assert found is not None
    return found


def test_an_elastic_job_does_not_take_layouts_on_which_a_rank_does_not_fit() -> None:
    found = on_h100s(elastic(data={"min": 4, "max": 32}), nodes=4)
    assert [one.data for one in found.unfit] == [8, 4]
    assert [one.data for one in found.checked.elastic_layouts] == [32, 16]
    assert (found.spec.world_size, found.verdict.fits) == (32, True)
    (warning,) = found.warnings
    assert warning.field == "train.layout.data" and "fit: data 8 (ZeRO-3), data 4 (ZeRO-3)." in warning.message
    forced = on_h100s(elastic({"force": True}, data={"min": 4, "max": 32}), nodes=4)
    assert len(forced.checked.elastic_layouts) == 4 and forced.warnings == []
    assert "does not fit on these elastic layouts: data 8" in forced.record().notes[-1]


def test_an_elastic_job_keeps_layouts_for_which_nodes_may_come() -> None:
    found = on_h100s(elastic(data={"min": 4, "max": 32}), nodes=2)
    assert [one.data for one in found.checked.elastic_layouts] == [32, 16] and found.spec.world_size == 32


def test_an_elastic_job_is_refused_if_none_of_its_layouts_that_fit_has_devices() -> None:
    """Eight GPUs are too few for the layouts that fit."""
    with pytest.raises(DoesNotFit, match="a GPU has"):
        on_h100s(elastic(data={"min": 4, "max": 32}), nodes=1)


def test_an_elastic_job_is_planned_for_the_devices_of_its_smallest_layout() -> None:
    """As the queue places it: 32 ranks would be on CPUs, which have more room."""
    train = {"layout": {"data": {"min": 1, "max": 32}}, "steps": 1, "global_batch": 32}
    spec = JobSpec.model_validate({"name": "a", "train": train})
    assert on_h100s(spec, nodes=1).device.kind == "cuda"


def remedy_of(spec: JobSpec, nodes: Nodes) -> str:
    with pytest.raises(DoesNotFit) as error:
        planned(spec, check_layout(spec.train, 32_000), [nodes])
    return error.value.remedy or ""


def unfit(policy: dict[str, Any] | None = None, resources: dict[str, Any] | None = None, **train: Any) -> JobSpec:
    """A job that needs more ranks, if there are any, or larger tensor groups."""
    fields = {"steps": 1, "global_batch": 8, "precision": "bf16", "recompute": "full", **train}
    return JobSpec.model_validate({"name": "a", "train": fields, "policy": policy or {}, "resources": resources or {}})


FOUR: dict[str, Any] = {
    "model": {"preset": "7B", "vocab": 32_000},
    "data": {"seq_len": 2048},
    "layout": {"data": 2, "zero": 3},
    "offload": {"optimizer": 0},
}


def test_spares_leave_fewer_ranks_for_a_remedy() -> None:
    """Four GPUs run four ranks, but not with a spare."""
    plain = remedy_of(unfit(**FOUR), cluster("L40S", gpus=4.0))
    spare = remedy_of(unfit({"spares": 1}, **FOUR), cluster("L40S", gpus=4.0))
    assert plain.startswith("Set layout.data: 4") and not spare.startswith("Set layout.data: 4")
    more = remedy_of(unfit({"spares": 1}, **FOUR), cluster("L40S", gpus=5.0))
    assert more.startswith("Set layout.data: 4")


def test_a_remedy_has_no_more_tensor_groups_than_nodes_have_room_for() -> None:
    """Two nodes of six GPUs have room for two groups of four, not for three."""
    train = {
        "model": {"preset": "8B", "vocab": 32_000},
        "data": {"seq_len": 262_144},
        "global_batch": 12,
        "layout": {"data": 12, "zero": 3, "micro_batch": 1},
        "offload": {"optimizer": 1},
    }
    remedy = remedy_of(unfit(**train), cluster("L40S", "L40S", gpus=6.0))
    assert "layout.tensor: 4" not in remedy
    roomy = remedy_of(unfit(**train), cluster("L40S", gpus=12.0))
    assert "layout.tensor: 4" in roomy


def test_a_remedy_keeps_within_what_the_nodes_of_a_job_must_share() -> None:
    """Ranks that must be in one zone have two GPUs there, ranks with many cores one of each node."""
    both = cluster("L40S", "L40S", gpus=2.0, memory=32 * GIB)
    zones = [replace(one, zone=zone, cores=2.0) for one, zone in zip(both.inventory.machines, "ab", strict=True)]
    nodes = replace(both, inventory=Inventory(zones))
    assert remedy_of(unfit(**FOUR), nodes).startswith("Set layout.data: 4")
    for wants in ({"within": "zone"}, {"cpus_per_gpu": 2.0}):
        assert not remedy_of(unfit(resources=wants, **FOUR), nodes).startswith("Set layout.data: 4"), wants
