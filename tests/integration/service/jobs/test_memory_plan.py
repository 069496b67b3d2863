"""A job that cannot fit is refused with its breakdown and the smallest change; what is not known is not refused."""

import copy
import re
from typing import Any

import pytest
import yaml
from harness.databases import POSTGRESQL_IN_FULL
from harness.unfit_specs import UNFIT

from shardyard.service.errors import DoesNotFit, TooManyRanks
from shardyard.service.jobs import memory_plan, preview
from shardyard.service.jobs import submit as submitting
from shardyard.service.queries import jobs
from shardyard.service.schemas.memory_plan import MemoryPlan
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.spec_files import SpecFiles
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import nodes
from shardyard.service.store.engine import Store
from shardyard.workers.gpu_models import gpu_named

from ..gang_events import NODE

GIB = 2**30
H100 = {"cpu": 64.0, "gpu": 8.0, "gpu_model": "H100"}
LLAMA_8B: dict[str, Any] = {"preset": "8B", "vocab": 128256}
#: Of the specs that cannot fit, those that `make test` submits; `make test-all` submits all of them.
CORE = ("8B-zero1", "70B-pipeline", "405B-tensor8", "gpt3-13b", "mixtral-replicas", "124M-batch")


def job(layout: dict[str, Any], device: str = "auto", force: bool = False, **train: Any) -> JobSpec:
    base = {"data": {"seq_len": 4096}, "precision": "bf16", "steps": 2, "global_batch": 8, "layout": layout}
    resources = {"device": device, "force": force}
    return JobSpec.model_validate({"name": "x", "train": {**base, **train}, "resources": resources})


async def known(store: Store, *rows: dict[str, Any]) -> None:
    """Make these the cluster's nodes."""
    base = {**NODE, "memory_bytes": 1, "seen_at": 0.0, "gpu_model": "", "host_memory_bytes": 0}
    async with store.write() as tx:
        await nodes.replace(tx, [{**base, "id": f"n{number}", **row} for number, row in enumerate(rows)])


async def planned(store: Store, settings: Settings, spec: JobSpec) -> MemoryPlan | None:
    return (await preview.preview(store, settings, spec, SpecFiles())).memory


async def refused(store: Store, settings: Settings, spec: JobSpec) -> DoesNotFit:
    with pytest.raises(DoesNotFit) as error:
        await submitting.submit(store, settings, spec, None, "", "tester")
    with pytest.raises(DoesNotFit):
        await planned(store, settings, spec)
    return error.value


async def test_70b_on_two_cpu_ranks_of_a_23_gib_machine_is_refused(store: Store, settings: Settings) -> None:
    await known(store, {"cpu": 8.0, "host_memory_bytes": 23 * GIB})
    spec = job({"data": 2}, model={"preset": "70B"}, precision="fp32", data={"seq_len": 256})
    error = await refused(store, settings, spec)
    assert "the largest known node has 23.0 GiB for all its ranks" in error.message
    assert all(kind in error.message for kind in ("parameters", "gradients", "optimizer"))
    assert "No change of the layout fits" in (error.remedy or "") and "resources.force" in (error.remedy or "")
    assert (await jobs.list_jobs(store)).items == []
    forced, _ = await submitting.submit(
        store, settings, spec.model_copy(update={"resources": job({}, force=True).resources}), None, "", "tester"
    )
    assert forced.state == "queued"


@POSTGRESQL_IN_FULL
async def test_the_remedy_on_gpus_is_one_that_is_accepted(store: Store, settings: Settings) -> None:
    await known(store, H100)
    error = await refused(store, settings, job({"data": 8}, model=LLAMA_8B))
    assert error.field == "train.layout.zero" and "Set layout.zero: 2: a rank then needs" in (error.remedy or "")
    assert "a GPU has 93.6 GiB" in error.message  # of the models that Ray calls H100, the largest
    found = await planned(store, settings, job({"data": 8, "zero": 2}, model=LLAMA_8B))
    assert found is not None and found.fits is True and found.device == "cuda"
    assert sum(one.bytes for one in found.kinds) == found.bytes == found.needed_bytes - found.reserved_bytes


@POSTGRESQL_IN_FULL
async def test_state_that_the_hosts_of_gpus_cannot_hold_is_refused(store: Store, settings: Settings) -> None:
    """Of 70B each of eight ranks offloads 97 GiB."""
    spec = job({"data": 8, "zero": 3}, model={"preset": "70B", "vocab": 32000}, recompute="full")
    offloaded = job(
        {"data": 8, "zero": 3},
        model={"preset": "70B", "vocab": 32000},
        recompute="full",
        offload={"optimizer": 1},
    )
    await known(store, {**H100, "host_memory_bytes": 1024 * GIB})
    assert "Set offload.optimizer: 1: a rank then needs" in ((await refused(store, settings, spec)).remedy or "")
    found = await planned(store, settings, offloaded)
    assert found is not None and found.fits is True
    await known(store, {**H100, "host_memory_bytes": 512 * GIB})
    error = await refused(store, settings, offloaded)
    assert re.search(
        r"a GPU has 93\.6 GiB\. In host memory each rank needs 96\.\d GiB \(optimizer 96\.\d GiB", error.message
    )
    assert error.message.endswith("the process itself 0.3 GiB); a node has 512 GiB for 8 of them.")
    for asked in (spec, offloaded):
        remedy = (await refused(store, settings, asked)).remedy or ""
        assert re.match(
            r"Set .*offload\.to: disk: a rank then needs \d\d\.\d GiB, and 0\.\d GiB of host memory\.", remedy
        )
    changed = offloaded.model_dump(mode="json", by_alias=True, exclude_unset=True)
    accepted = JobSpec.model_validate({**changed, "train": with_the_change(changed["train"], remedy)})
    assert (await submitting.submit(store, settings, accepted, None, "", "tester"))[0].state == "queued"
    await known(store, {**H100, "gpu_model": "RTX-9090", "host_memory_bytes": 512 * GIB})
    error = await refused(store, settings, offloaded)
    assert "what memory a GPU has is not known. In host memory" in error.message
    assert "and what memory a GPU has is not known" in (error.remedy or "")


@POSTGRESQL_IN_FULL
async def test_the_remedy_has_no_larger_tensor_groups_than_the_nodes(store: Store, settings: Settings) -> None:
    """On nodes of four: tensor 8 would fit, and would be refused."""
    spec = job({"data": 8}, model=LLAMA_8B, data={"seq_len": 262_144})
    await known(store, {**H100, "gpu_model": "A100"})
    offered = (await refused(store, settings, spec)).remedy
    await known(store, *[{**H100, "gpu_model": "A100", "gpu": 4.0}] * 2)
    error = await refused(store, settings, spec)
    assert offered is not None and "layout.tensor: 8" in offered
    assert error.remedy is not None and "tensor: 8" not in error.remedy


@POSTGRESQL_IN_FULL
async def test_a_preview_says_what_auto_means_on_the_devices_of_the_cluster(store: Store, settings: Settings) -> None:
    spec = job({"data": 2}, precision="auto", steps=1000, data={"seq_len": 64})
    for node, dtype, compiled in (({"cpu": 8.0}, "fp32", False), (H100, "bf16", True)):
        await known(store, node)
        found = await preview.preview(store, settings, spec, SpecFiles())
        assert (found.precision, found.compile) == (dtype, compiled)
        assert found.choices[0].startswith(f"precision is {dtype}: ") and len(found.choices) == 2
    await known(store, {**H100, "gpu_model": "T4"})
    older = await preview.preview(store, settings, spec, SpecFiles())
    assert older.precision == "fp32" and "Set precision to fp16" in older.choices[0]
    named = await preview.preview(store, settings, job({"data": 2}, compile=False), SpecFiles())
    assert (named.precision, named.choices) == ("bf16", [])


@POSTGRESQL_IN_FULL
async def test_what_is_not_known_is_not_refused(store: Store, settings: Settings) -> None:
    large = job({"data": 8}, model=LLAMA_8B)
    found = await planned(store, settings, large)
    assert found is not None and found.fits is None and found.device_bytes is None
    await known(store, {**H100, "gpu_model": "RTX-9090"})
    found = await planned(store, settings, large)
    assert found is not None and found.fits is None
    await known(store, {"cpu": 8.0})
    found = await planned(store, settings, large)
    assert found is not None and found.fits is None and found.device == "cpu"
    own = job({"data": 8}, model={"import": "some:model", "code": "/nowhere"})
    assert await planned(store, settings.model_copy(update={"local_files": False}), own) is None


@POSTGRESQL_IN_FULL
async def test_nodes_that_may_come_count_as_unknown(store: Store, settings: Settings) -> None:
    await known(store, {**H100, "gpu_model": "T4"})
    await refused(store, settings, job({"data": 8}, model=LLAMA_8B))
    growing = settings.model_copy(update={"max_ranks": 16})
    found = await planned(store, growing, job({"data": 8}, model=LLAMA_8B))
    assert found is not None and found.fits is None


@POSTGRESQL_IN_FULL
async def test_some_nodes_of_several_kinds_are_enough(store: Store, settings: Settings) -> None:
    spec = job({"data": 8, "zero": 3}, model=LLAMA_8B)
    await known(store, {**H100, "gpu_model": "T4"})
    await refused(store, settings, spec)
    await known(store, {**H100, "gpu_model": "T4"}, H100)
    found = await planned(store, settings, spec)
    assert found is not None and found.fits is True


def named(gpu: str, ranks: int = 8) -> JobSpec:
    spec = job({"data": ranks, "zero": 3}, model=LLAMA_8B, global_batch=2 * ranks).model_dump(
        mode="json", by_alias=True
    )
    return JobSpec.model_validate({**spec, "resources": {"gpu": gpu}})


@POSTGRESQL_IN_FULL
async def test_a_job_that_names_a_gpu_model_must_fit_on_that_one(store: Store, settings: Settings) -> None:
    await known(store, {**H100, "gpu_model": "T4"}, H100)
    await refused(store, settings, named("t4"))
    found = await planned(store, settings, named("H100"))
    assert found is not None and found.fits is True and found.device == "cuda"


@pytest.mark.parametrize(
    ("gpu", "ranks", "says"), [("L4", 8, "the cluster has H100, T4"), ("H100", 16, "the most together are 8")]
)
@POSTGRESQL_IN_FULL
async def test_a_model_that_the_cluster_lacks_is_refused_with_those_that_it_has(
    store: Store, settings: Settings, gpu: str, ranks: int, says: str
) -> None:
    await known(store, {**H100, "gpu_model": "T4"}, H100)
    with pytest.raises(TooManyRanks, match=says) as error:
        await submitting.submit(store, settings, named(gpu, ranks), None, "", "tester")
    assert error.value.field == "resources.gpu" and "mixed" in (error.value.remedy or "")


@pytest.mark.parametrize("asked", [{"within": "domain"}, {"cpus_per_gpu": 9}])
@POSTGRESQL_IN_FULL
async def test_a_refusal_names_what_keeps_the_job_from_the_gpus_that_are_there(
    store: Store, settings: Settings, asked: dict[str, Any]
) -> None:
    await known(store, {**H100, "domain": "a"}, {**H100, "domain": "b"})
    spec = named("H100", 16).model_dump(mode="json", by_alias=True)
    spec["resources"] = asked
    with pytest.raises(TooManyRanks, match="the most together are") as error:
        await submitting.submit(store, settings, JobSpec.model_validate(spec), None, "", "tester")
    assert error.value.field == f"resources.{next(iter(asked))}"


@POSTGRESQL_IN_FULL
async def test_an_elastic_job_takes_only_its_layouts_that_fit(store: Store, settings: Settings) -> None:
    """Its largest layout needs 8 ranks of this machine's memory; four of them have room."""
    await known(store, {"cpu": 8.0, "host_memory_bytes": 2 * GIB})
    spec: dict[str, Any] = {"model": {"preset": "nano"}, "data": {"seq_len": 256}, "precision": "fp32"}
    await refused(store, settings, job({"data": 8}, **spec))
    asked = job({"data": {"min": 1, "max": 8}}, **spec)
    found = await preview.preview(store, settings, asked, SpecFiles())
    assert found.memory is not None and found.memory.fits is True
    assert (found.data, [layout.data for layout in found.elastic_layouts]) == (4, [4, 2, 1])
    made, _ = await submitting.submit(store, settings, asked, None, "", "tester")
    assert made.warnings == found.warnings and "fit: data 8." in made.warnings[0].message
    assert (made.world_size, made.layout, made.batch) == (4, "data 4", found.batch)
    assert made.spec["train"]["layout"]["elastic"] == {"min": 1, "max": 8}
    async with store.read() as tx:
        row = await job_rows.by_id(tx, made.id)
    assert row is not None and [layout["world_size"] for layout in row["elastic"]] == [4, 2, 1]
    forced = asked.model_copy(update={"resources": job({}, force=True).resources})
    assert (await submitting.submit(store, settings, forced, None, "", "tester"))[0].world_size == 8


def with_the_change(train: dict[str, Any], remedy: str) -> dict[str, Any]:
    """The spec with the change that a refusal names."""
    named = re.match(r"Set (.+): a rank then needs ", remedy)
    assert named is not None, remedy
    changed = copy.deepcopy(train)
    for edit in named[1].split(", "):
        path, value = edit.split(": ")
        *outer, field = path.split(".")
        part = changed
        for name in outer:
            part = part.setdefault(name, {})
        part[field] = yaml.safe_load(value)
    return changed


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "name", [name if name in CORE else pytest.param(name, marks=pytest.mark.full) for name in UNFIT]
)
async def test_a_spec_that_cannot_fit_is_refused_and_accepted_with_the_change_that_the_refusal_names(
    name: str, store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On enough GPUs of its model. Ray's names stand for models of several sizes, these for one."""
    unfit = UNFIT[name]
    monkeypatch.setattr(memory_plan, "gpus_of_ray", lambda ray: (gpu_named(ray),))
    await known(store, {"cpu": 1e6, "gpu": 1e6, "gpu_model": unfit.gpu})

    def spec(train: dict[str, Any]) -> JobSpec:
        return JobSpec.model_validate({"name": "x", "train": train})

    with pytest.raises(DoesNotFit) as error:
        await submitting.submit(store, settings, spec(unfit.train), None, "", "tester")
    assert "parameters" in error.value.message and "a GPU has" in error.value.message
    changed = with_the_change(unfit.train, error.value.remedy or "")
    assert changed["global_batch"] == unfit.train["global_batch"]
    found = await planned(store, settings, spec(changed))
    assert found is not None and found.fits is True and found.device == "cuda"
    accepted, _ = await submitting.submit(store, settings, spec(changed), None, "", "tester")
    assert accepted.state == "queued"
    assert [job.id for job in (await jobs.list_jobs(store)).items] == [accepted.id]
