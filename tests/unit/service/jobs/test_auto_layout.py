"""The layout of `layout: auto` is the first of the advisor's answers, for what the spec fixes; what has none is refused with the reason."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from shardyard.service.capacity import Nodes
from shardyard.service.errors import DoesNotFit, InvalidLayout, InvalidSpec
from shardyard.service.jobs import advice
from shardyard.service.jobs.advice import AdviceRequest, Cpus
from shardyard.service.jobs.auto_layout import Devices, decided, of_cluster
from shardyard.service.policies.queue import Inventory, Whole, machine
from shardyard.service.spec import JobSpec
from shardyard.service.spec_files import SpecFiles
from shardyard.service.sweeps.request import spec_of, trial_document
from shardyard.workers.advisor.known_hardware import Given
from shardyard.workers.advisor.search import Advice, Question
from shardyard.workers.gpu_models import GpuModel, gpu_named
from shardyard.workers.spec import TrainSpec

SMALL = {"preset": "nano", "vocab": 256}


def job(layout: Any = "auto", **train: Any) -> JobSpec:
    fields = {"model": SMALL, "data": {"seq_len": 128}, "steps": 10, "global_batch": 16, "layout": layout, **train}
    return JobSpec.model_validate({"name": "x", "train": fields}, strict=True)


def gpu(name: str) -> GpuModel:
    found = gpu_named(name)
    assert found is not None
    return found


def chosen(spec: JobSpec, devices: Devices) -> TrainSpec:
    return decided(spec, spec.train.architecture(256), devices).train


def first_advised(devices: Devices, world: int, **train: Any) -> dict[str, Any]:
    """The lines of the advisor's first answer for a spec that fixes nothing."""
    plain = job({}, **train).train
    wanted = AdviceRequest(world, devices.model, 10, Given(per_node=devices.per_node))
    return advice.answered(advice.question(plain, plain.architecture(256), wanted)).layouts[0].train


def lines(train: TrainSpec) -> dict[str, Any]:
    """As the advisor prints them."""
    layout = train.layout.model_dump(mode="json", exclude_defaults=True, exclude={"auto"})
    offload = train.offload.model_dump(mode="json", exclude_defaults=True)
    return {"layout": layout, "recompute": train.recompute.mode, **({"offload": offload} if offload else {})}


@pytest.mark.parametrize(
    ("devices", "world", "train"),
    [
        (Devices(Cpus(4), 4), 4, {}),
        (Devices(Cpus(2, 16 << 30), 2, 8), 2, {}),
        (Devices(gpu("H100"), 8, 8), 8, {"model": {"preset": "7B", "vocab": 32_000}, "data": {"seq_len": 4096}}),
        (Devices(gpu("A100 40GB"), 2, 2), 2, {"model": {"preset": "7B", "vocab": 32_000}, "data": {"seq_len": 2048}}),
    ],
    ids=["cores", "cores that are shared", "GPUs", "GPUs with the optimizer on their host"],
)
def test_the_advisors_first_answer_is_chosen(devices: Devices, world: int, train: dict[str, Any]) -> None:
    found = chosen(job(**train), devices)
    assert lines(found) == first_advised(devices, world, **train)
    assert found.layout.world_size == world
    auto = found.layout.auto
    assert auto is not None and not found.undecided
    stored = decided(job(**train), found.architecture(256), devices).model_dump(mode="json", by_alias=True)
    read = JobSpec.model_validate(stored, strict=True)
    assert read.train.layout == found.layout and read.model_dump(mode="json", by_alias=True) == stored
    assert (auto.world, auto.devices) == (None, f"{world} × {devices.name}")
    assert found.check().data == found.layout.data


def test_the_spec_may_say_how_many_ranks() -> None:
    devices = Devices(Cpus(8), 8)
    found = chosen(job({"auto": {"world": 2}}), devices)
    assert found.layout.auto is not None
    assert (found.layout.world_size, found.layout.auto.world) == (2, 2)
    assert lines(found) == first_advised(devices, 2)
    assert (
        chosen(job({"auto": {"world": 2}}), Devices(Cpus(8), 0)).layout == found.layout
    )  # if the cluster is not known


def test_what_the_spec_fixes_is_kept() -> None:
    found = chosen(job({"auto": {}, "zero": 3, "tensor": 2}, recompute="every-2"), Devices(Cpus(4), 4))
    assert (found.layout.zero, found.layout.tensor, found.layout.world_size) == (3, 2, 4)
    assert (found.recompute.mode, found.recompute.every) == ("full", 2)
    kept = chosen(job({"auto": {}}, offload={"optimizer": 0.5}), Devices(Cpus(2), 2))
    assert kept.offload.optimizer == 0.5


def test_equal_specs_get_equal_layouts_and_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred trials that differ in their rates alone, submitted at once."""
    searches: list[Question] = []
    search = advice.found_layouts

    def counted(asked: Question) -> Advice:
        searches.append(asked)
        return search(asked)

    monkeypatch.setattr(advice, "found_layouts", counted)
    devices, files = Devices(Cpus(4), 4), SpecFiles()
    trials = [job(optimizer={"lr": 1e-4 * (1 + n)}, seed=n, global_batch=24) for n in range(100)]

    async def all_at_once() -> list[JobSpec]:
        each = (partial(decided, one, one.train.architecture(256), devices) for one in trials)
        return await asyncio.gather(*map(files.search, each))

    found = asyncio.run(all_at_once())
    assert len({one.train.layout for one in found}) == 1 and len(searches) == 1
    assert [one.train.optimizer.lr for one in found] == [one.train.optimizer.lr for one in trials]
    chosen(job(global_batch=24, precision="fp64"), devices)
    assert len(searches) == 2


def test_a_trial_of_a_sweep_chooses_for_its_own_values() -> None:
    document = job({"auto": {"world": 4}}).model_dump(mode="json", exclude_unset=True)
    values = {"train.global_batch": 2, "train.layout.zero": 1}
    trial, _ = spec_of(trial_document(document, "sweep-1", 3, values))
    assert isinstance(trial, JobSpec)
    found = chosen(trial, Devices(Cpus(4), 4)).layout
    assert found.zero == 1 and found.data <= 2 and found.world_size == 4


def test_fewer_ranks_are_taken_where_that_many_have_no_layout() -> None:
    devices = Devices(Cpus(7), 7)
    with pytest.raises(InvalidLayout) as refused:
        chosen(job({"auto": {"world": 7}}), devices)
    assert refused.value.field == "train.layout" and "global_batch: 16 sequences" in refused.value.message
    found = chosen(job(), devices)
    assert found.layout.world_size < 7
    assert lines(found) == first_advised(devices, found.layout.world_size)


def test_fewer_ranks_are_taken_where_a_layout_of_that_many_is_too_large() -> None:
    """Six GPUs take tensor groups of 2 at most, four hold the model in one group."""
    fixed = {"auto": {}, "zero": 0, "pipeline": 1}
    large = {"model": {"preset": "7B", "vocab": 32_000}, "global_batch": 12, "offload": {"optimizer": 0}}
    with pytest.raises(DoesNotFit, match="No layout of 6"):
        chosen(job({**fixed, "auto": {"world": 6}}, **large), Devices(gpu("A100 40GB"), 6, 8))
    found = chosen(job(fixed, **large), Devices(gpu("A100 40GB"), 6, 8))
    assert (found.layout.tensor, found.layout.world_size) == (4, 4)
    with pytest.raises(DoesNotFit, match="No layout of 3"):
        chosen(job(fixed, **large), Devices(gpu("A100 40GB"), 3, 8))


def test_tensor_groups_are_those_for_which_the_nodes_have_room() -> None:
    """Two nodes of six: three groups of four are not among them, though they are twelve."""
    nodes, heads = (6, 6), {**SMALL, "heads": 4, "kv_heads": 4}
    devices = Devices(Cpus(6), 12, 6, lambda world, tensor: sum(node // tensor for node in nodes) * tensor >= world)
    layout = chosen(job({"auto": {}, "tensor": 4}, global_batch=12, model=heads), devices).layout
    assert (layout.tensor, layout.world_size) == (4, 8)
    given = chosen(job({"auto": {"world": 12}, "tensor": 4}, global_batch=12, model=heads), devices).layout
    assert given.world_size == 12, "the submission says what is missing"


def test_what_fits_nowhere_is_said_with_what_is_short() -> None:
    large = {"model": {"preset": "70B", "vocab": 32_000}, "data": {"seq_len": 4096}}
    with pytest.raises(DoesNotFit) as refused:
        chosen(job({"auto": {"world": 2}, "tensor": 2}, **large), Devices(gpu("T4"), 2))
    error = refused.value
    assert error.field == "train.layout" and error.message.startswith("No layout of 2 × T4 with tensor 2 fits.")
    assert "a GPU has 15.0 GiB: " in error.message and error.message.endswith(" are short.")
    assert (error.remedy or "").startswith("Add devices, or use a shorter data.seq_len, or a smaller model.")
    assert "fixes: tensor 2" in (error.remedy or "")
    with pytest.raises(DoesNotFit, match=r"a CPU rank has 4\.0 GiB"):
        chosen(job(**large), Devices(Cpus(4, 16 << 30), 4))


@pytest.mark.parametrize(
    ("world", "most", "remedy"),
    [
        (2, 8, "Use more ranks, as in layout: {auto: {world: 4}}, a shorter"),
        (2, 3, "Use more ranks, as in layout: {auto: {world: 3}}, a shorter"),
        (2, 0, "Use more ranks, as in layout: {auto: {world: 4}}, a shorter"),
        (8, 8, "Add devices, or use a shorter"),
        (4096, 10_000, "Use a shorter"),
    ],
)
def test_more_ranks_are_offered_up_to_those_that_there_are_and_that_a_spec_may_have(
    world: int, most: int, remedy: str
) -> None:
    sizes = {"preset": "70B", "dim": 65_536, "heads": 8, "kv_heads": 8, "hidden": 65_536, "layers": 8, "vocab": 32_000}
    fixed = {"auto": {"world": world}, "data": world, "zero": 0, "tensor": 1, "pipeline": 1, "context": 1}
    large = {"model": sizes, "global_batch": world, "offload": {"optimizer": 0}, "recompute": "full"}
    with pytest.raises(DoesNotFit) as refused:
        chosen(job(fixed, **large), Devices(gpu("T4"), most, 8))
    assert (refused.value.remedy or "").startswith(remedy)


def test_state_is_offloaded_only_to_nodes_that_have_host_memory_for_it() -> None:
    large = {"model": {"preset": "7B", "vocab": 32_000}, "data": {"seq_len": 2048}, "global_batch": 4}
    for memory in (None, 80 << 30):
        assert chosen(job(**large), Devices(gpu("A100 40GB"), 2, 2, host_memory=memory)).offload.optimizer == 1
    with pytest.raises(DoesNotFit) as refused:
        chosen(job({"auto": {"world": 2}}, **large), Devices(gpu("A100 40GB"), 2, 2, host_memory=64 << 30))
    error = refused.value
    assert "GiB of host memory per rank or more, and a rank's part of its node has 32.0 GiB: " in error.message
    assert "offload: {optimizer: 1, to: disk} beside layout" in (error.remedy or "")
    disk = job(**large, offload={"optimizer": 1, "to": "disk"})
    assert chosen(disk, Devices(gpu("A100 40GB"), 2, 2, host_memory=64 << 30)).offload.to == "disk"


@pytest.mark.parametrize(
    ("layout", "train", "field"),
    [
        ({"data": {"min": 1, "max": 2}}, {}, "train.layout.data"),
        ({"tensor": {"mode": "2d", "shape": [2, 2]}}, {}, "train.layout.tensor"),
        ({"pipeline": {"stages": 2, "split": "profile"}}, {}, "train.layout.pipeline"),
        ({"schedule": "2bw"}, {}, "train.layout.schedule"),
        ({"parameter_server": {"servers": 1}}, {}, "train.layout.parameter_server"),
        ({"zero_plus_plus": {"weights": "int8"}}, {}, "train.layout.zero_plus_plus"),
        ({"ring_window": 2}, {}, "train.layout.ring_window"),
        ({}, {"offload": {"parameters": True}}, "train.offload.parameters"),
    ],
)
def test_options_that_are_not_searched_are_refused(layout: Any, train: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidLayout) as refused:
        chosen(job({"auto": {}, **layout}, **train), Devices(Cpus(4), 4))
    assert refused.value.field == field and "Leave" in (refused.value.remedy or "")


def test_a_layout_that_no_number_of_ranks_has_is_refused() -> None:
    with pytest.raises(InvalidLayout, match="any number of ranks with tensor 3"):
        chosen(job({"auto": {}, "tensor": 3}), Devices(Cpus(4), 4))


def test_what_cannot_be_known_is_refused() -> None:
    with pytest.raises(InvalidSpec) as unknown:
        chosen(job(), Devices(Cpus(4), 0))
    assert unknown.value.field == "train.layout.auto.world"
    own = job(model={"import": "somewhere:build"})
    with pytest.raises(InvalidSpec) as sizes:
        decided(own, None, Devices(Cpus(4), 4))
    assert sizes.value.field == "train.model"


def nodes(count: int, cpus: float, gpus: float = 0.0, memory: int = 64 << 30) -> Nodes:
    """A cluster of equal nodes, with GPUs of one model."""
    row = {"cpu": cpus, "gpu": gpus, "gpu_model": "H100" if gpus else "", "host_memory_bytes": memory}
    return Nodes(cast(Any, [row] * count), Inventory([machine(cpus, 0.0, gpus, 0.0, 1)] * count), 1)


@pytest.mark.parametrize("lives", [True, False])
def test_nodes_with_an_image_of_their_own_are_for_no_training(lives: bool) -> None:
    plain, gpu = machine(4.0, 0.0, 0.0, 0.0, 1), replace(machine(64.0, 0.0, 8.0, 0.0, 1), image="nemo")
    here = [plain, plain, *([gpu] if lives else [])]
    whole: Whole = {"cpu": {"": [4, 4], "nemo": [64]}, "cuda": {"nemo": [8]}}
    devices = of_cluster(job(), [Nodes(nodes(2, 4.0).rows, Inventory(here, whole=whole), 1)])
    assert (devices.name, devices.most, devices.per_node) == ("CPU", 8, 4)


@pytest.mark.parametrize(
    ("world", "other", "expected"),
    [
        (None, nodes(1, 64.0, 8.0), ("H100", 8)),
        (16, nodes(1, 64.0, 8.0), ("CPU", 64)),
        (16, nodes(1, 8.0, 8.0), ("CPU", 48)),
    ],
    ids=["GPUs first", "GPUs too few, cores enough", "both too few"],
)
def test_of_several_clusters_the_best_one_is_taken_whatever_its_name(
    world: int | None, other: Nodes, expected: tuple[str, int]
) -> None:
    clusters = [nodes(2, 24.0), other]
    for order in (clusters, clusters[::-1]):
        devices = of_cluster(job({"auto": {"world": world}}), order)
        assert (devices.name, devices.most) == expected


def together(*clusters: Nodes) -> Nodes:
    """One cluster of all their nodes."""
    machines = [machine for one in clusters for machine in one.inventory.machines]
    return Nodes([row for one in clusters for row in one.rows], Inventory(machines), 1)


def labelled(one: Nodes, model: str, **labels: str) -> Nodes:
    """The same nodes with GPUs of this model, and these labels."""
    machines = [replace(machine, model=model, **cast(Any, labels)) for machine in one.inventory.machines]
    return Nodes([cast(Any, {**row, "gpu_model": model, **labels}) for row in one.rows], Inventory(machines), 1)


def asking(**resources: str) -> JobSpec:
    spec = job()
    return spec.model_copy(update={"resources": spec.resources.model_copy(update=resources)})


def test_nodes_have_the_size_of_the_model_that_a_job_names() -> None:
    """Ranks would be taken for neighbours on a node of another model, and groups laid over slow links."""
    l40s, large = labelled(nodes(4, 32.0, 4.0), "L40S", zone="a"), labelled(nodes(2, 64.0, 8.0), "H100", zone="")
    cluster = together(l40s, large)
    wanted = [asking(), asking(gpu="H100"), asking(gpu="l40s"), asking(within="zone")]
    assert [of_cluster(one, [cluster]).per_node for one in wanted] == [8, 8, 4, 4]
    away = Nodes(large.rows, replace(large.inventory, whole={"cuda": {"": [8, 8, 4]}}), 1)
    assert of_cluster(asking(gpu="L40S"), [away]).per_node == 8, "none lives"


def test_ranks_on_cpus_have_the_memory_of_the_node_with_least_for_each() -> None:
    """A head of two small cores does not make a large worker's ranks share its memory."""
    worker, head = nodes(1, 16.0, memory=64 << 30), nodes(1, 2.0, memory=4 << 30)
    found = [of_cluster(job(), [one]).model for one in (worker, together(worker, head), nodes(1, 16.0, memory=0))]
    assert found == [Cpus(16, 64 << 30), Cpus(16, 32 << 30), Cpus(16)]
    sizes = {"dim": 512, "layers": 8, "heads": 8, "kv_heads": 8, "hidden": 1536, "vocab": 8192}
    large = job({"auto": {"world": 16}}, model={"family": "llama", **sizes}, data={"seq_len": 512})
    with_head, alone = (chosen(large, of_cluster(large, [one])).layout for one in (together(worker, head), worker))
    assert with_head.world_size == 16 and with_head.with_(auto=None) == alone.with_(auto=None)


def test_memory_of_nodes_without_the_label_that_a_job_asks_for_does_not_count() -> None:
    least = nodes(1, 2.0, memory=4 << 30)
    cluster = together(labelled(nodes(1, 16.0), "", zone="a"), labelled(least, "", zone=""))
    found = [of_cluster(one, [cluster]).model for one in (job(), asking(within="zone"))]
    assert found == [Cpus(16, 32 << 30), Cpus(16, 64 << 30)]


def test_the_host_memory_of_gpus_is_that_of_the_node_with_least_for_each() -> None:
    """As a node with as many GPUs as the largest would have it."""
    large, small = nodes(1, 64.0, 8.0, 1 << 40), nodes(1, 8.0, 1.0, 32 << 30)
    clusters = (large, together(large, small), nodes(1, 64.0, 8.0, 0), nodes(1, 8.0))
    found = [of_cluster(job(), [one]).host_memory for one in clusters]
    assert found == [1 << 40, 8 * (32 << 30), None, None]
