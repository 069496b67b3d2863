"""The formulas of a job beside what its newest probe measured, from a gang's word to an answer."""

from collections.abc import Callable
from typing import Any

import pytest

from shardyard.service.dispatch.admission import admit
from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.jobs.memory_plan import device_facts
from shardyard.service.jobs.preview import preview
from shardyard.service.queries import resources
from shardyard.service.schemas.resource import MemoryUsage, ResourceReport
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.spec_files import SpecFiles
from shardyard.service.store import events, jobs, nodes
from shardyard.service.store.engine import Store
from shardyard.workers.own_plan import digest

from ..conftest import Submit
from ..gang_events import NODE, event_batch, state

#: Of the nano Llama with 256 tokens.
PARAMETERS = 803_968


def probe(step: int, **memory: int) -> tuple[str, dict[str, Any]]:
    moved = {"calls": 3, "elements": PARAMETERS, "bytes": 2 * PARAMETERS}
    held = {kind: {"min": size, "max": size + 1} for kind, size in memory.items()}
    return "probe", {"step": step, "traffic": {"data": {"all_reduce": moved}}, "memory": held}


async def report(store: Store, settings: Settings, job: str) -> ResourceReport:
    return await resources.resources(store, settings, job, SpecFiles(), device_facts)


def of(kind: str, found: ResourceReport) -> MemoryUsage:
    return next(held for held in found.memory if held.kind == kind)


async def test_a_probe_is_shown_beside_the_formulas(store: Store, settings: Settings, submit: Submit) -> None:
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    job = await submit(ranks=2, precision="bf16")
    before = await report(store, settings, job.name)
    assert before.step is None and before.reason is None
    parameters = of("parameters", before)
    assert (parameters.low, parameters.most, parameters.formula) == (2 * PARAMETERS, None, "2Ψ")
    [flow] = before.traffic
    assert (flow.axis, flow.collective, flow.formula) == ("data", "all_reduce", "2Ψ(N−1)/N")
    assert (flow.formula_elements, flow.formula_bytes) == (PARAMETERS, 4 * PARAMETERS)  # in fp32
    assert (flow.calls, flow.elements, flow.bytes, flow.reason) == (None, None, None, None)

    (lease,) = (await admit(store, settings, "a", None)).leases
    begun = event_batch(
        state("starting"), ("plan", {"parameters": PARAMETERS}), state("running"), probe(2, parameters=7, allocated=9)
    )
    await ingest(store, lease, 1, begun)
    found = await report(store, settings, job.id)
    assert (found.step, of("parameters", found).least, of("parameters", found).most) == (2, 7, 8)
    assert of("gradients", found).most is None
    peak = of("allocated", found)
    assert peak.formula is None and "buffers" in (peak.reason or "")
    assert peak.planned == sum(held.planned or 0 for held in found.memory if held.kind != "allocated")
    assert "100% below the" in (found.off_plan or ""), "a peak of 10 bytes"
    assert [(flow.calls, flow.elements) for flow in found.traffic] == [(3, PARAMETERS)]
    assert len(found.model_dump_json()) < 10_000

    async with store.write() as tx:
        row = {"attempt": 1, "kind": "reshard", "ts": 1.0, "actor": "x", "data": {}}
        await events.append(tx, job.id, [row])
    assert (await report(store, settings, job.id)).step is None, "that was another layout's"


async def test_a_gpus_peak_above_or_below_the_plan_is_reported(
    store: Store, settings: Settings, submit: Submit
) -> None:
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    job = await submit(precision="bf16")
    peak = await _peak(store, settings, job.id)
    (lease,) = (await admit(store, settings, "a", None)).leases
    begun = [state("starting"), ("plan", {"parameters": PARAMETERS}), state("running")]
    await ingest(store, lease, 1, event_batch(*begun))
    said = []
    for number, share in enumerate((1.04, 0.96, 1.5, 0.88)):
        measured = event_batch(probe(2 + number, allocated=int(share * peak)), first=4 + number)
        await ingest(store, lease, 1, measured)
        said.append((await report(store, settings, job.id)).off_plan)
    assert said[:2] == [None, None]
    assert "50% above the" in (said[2] or "") and "12% below the" in (said[3] or "")


async def _peak(store: Store, settings: Settings, job: str) -> float:
    """The planned peak: the sum of all kinds."""
    return sum(held.planned or 0 for held in (await report(store, settings, job)).memory)


async def test_a_spec_that_this_version_cannot_read_is_the_reason(
    store: Store, settings: Settings, submit: Submit
) -> None:
    job = await submit()
    async with store.write() as tx:
        spec = {**job.spec, "train": {**job.spec["train"], "model": {"gone": 1}}}
        await jobs.set_columns(tx, job.id, {"spec": spec})
    found = await report(store, settings, job.id)
    assert "stored spec: train.model" in (found.reason or "") and ".gone: Extra inputs" in (found.reason or "")
    assert found.layout == job.layout and found.traffic == []


@pytest.mark.parametrize(
    ("train", "word"),
    [
        ({"model": {"family": "moe", "preset": "nano"}}, "experts"),
        ({"model": {"vocab": 300}, "layout": {"tensor": 2}, "compile": True}, None),
    ],
    ids=str,
)
async def test_what_has_no_formula_has_a_reason(
    store: Store, settings: Settings, submit: Submit, train: dict[str, Any], word: str | None
) -> None:
    found = await report(store, settings, (await submit(**train)).id)
    if word is not None:
        assert word in (found.reason or "")
        assert all(held.formula is None and held.reason == found.reason for held in found.memory)
        assert found.traffic == []
    else:
        assert found.reason is None
        assert "compiled" in (of("activations", found).reason or "")
        assert found.traffic == []


async def test_a_vocabulary_that_only_the_trainers_know_is_reported_by_their_plan(
    store: Store, settings: Settings, submit: Submit
) -> None:
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    job = await submit()
    (lease,) = (await admit(store, settings, "a", None)).leases
    await ingest(store, lease, 1, event_batch(state("starting"), ("plan", {"parameters": PARAMETERS + 2 * 128 * 744})))
    assert of("parameters", await report(store, settings, job.id)).low == 4 * (PARAMETERS + 2 * 128 * 744)
    await ingest(store, lease, 1, event_batch(("plan", {"parameters": PARAMETERS + 1}), first=3))
    assert "other sizes" in ((await report(store, settings, job.id)).reason or "")


async def test_the_plan_of_older_gpus_holds_what_their_attention_does(
    store: Store, settings: Settings, submit: Submit
) -> None:
    """A T4 has no kernel for grouped heads: each layer keeps repeated keys and values for its backward."""
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "gpu": 1.0, "memory_bytes": 1, "seen_at": 0.0}])
    model = {"preset": "nano", "heads": 4, "kv_heads": 2, "vocab": 256}
    job = await submit(device="cuda", model=model, precision="fp16")
    unknown = of("activations", await report(store, settings, job.id)).planned
    (lease,) = (await admit(store, settings, "a", None)).leases
    planned = []
    for number, capability in enumerate(([8, 0], [7, 5], None)):
        reported = {"parameters": PARAMETERS, "device": "cuda", "capability": capability}
        await ingest(store, lease, 1, event_batch(("plan", reported), first=1 + number))
        planned.append(of("activations", await report(store, settings, job.id)).planned)
    assert planned[0] == planned[2] == unknown, "without a report, GPUs count as new"
    assert unknown is not None and planned[1] is not None and planned[1] > unknown


@pytest.mark.parametrize("device", ["cuda", "auto"])
@pytest.mark.parametrize(("model", "formula"), [("", "2Ψ"), ("T4", "4Ψ")], ids=["new GPUs", "old GPUs"])
async def test_a_queued_job_is_planned_for_the_devices_that_it_would_get(
    store: Store,
    settings: Settings,
    spec: Callable[..., JobSpec],
    submit: Submit,
    device: str,
    model: str,
    formula: str,
) -> None:
    """As its preview is: with bf16 on GPUs that have it."""
    async with store.write() as tx:
        node = {**NODE, "gpu": 1.0, "gpu_model": model, "memory_bytes": 1, "seen_at": 0.0}
        await nodes.replace(tx, [node])
    shown = await preview(store, settings, spec(device=device), SpecFiles())
    assert shown.memory is not None and shown.memory.device == "cuda"
    job = await submit(device=device)
    found = await report(store, settings, job.id)
    assert of("parameters", found).formula == formula
    assert {kind.kind: kind.bytes for kind in shown.memory.kinds} == {
        held.kind: held.planned for held in found.memory if held.kind != "allocated" and held.planned
    }


async def test_the_plan_that_came_with_a_module_stands_beside_its_probe(
    store: Store, settings: Settings, spec: Callable[..., JobSpec], submit: Submit
) -> None:
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    given: dict[str, Any] = {"ranks": 2, "model": {"import": "net:make"}}
    plan = {"ranks": 2, "parameters": 9, "at_peak": {"parameters": 700, "activations": 300}}
    job = await submit(**given, planned={**plan, "of": digest(spec(**given).train)})
    (lease,) = (await admit(store, settings, "a", None)).leases
    begun = [state("starting"), ("plan", {"parameters": 9}), state("running"), probe(2, allocated=1500)]
    await ingest(store, lease, 1, event_batch(*begun))
    found = await report(store, settings, job.id)
    held = {kind: of(kind, found).planned for kind in ("parameters", "gradients", "activations", "allocated")}
    assert held == {"parameters": 700, "gradients": None, "activations": 300, "allocated": 1000}
    assert found.planned_by == "dry run" and "50% above the" in (found.off_plan or "")
    assert found.reason is not None, "it has no formulas"

    other = await submit(**given, planned={**plan, "of": "0" * 64})
    assert other.spec["train"]["planned"] is None, "it is the plan of another spec"
    without = await report(store, settings, other.id)
    assert without.planned_by is None and of("parameters", without).planned is None
