"""A job with `layout: auto` is stored with the layout that was chosen for its cluster, and keeps it."""

from typing import Any

import pytest

from shardyard.api.spec_copy import cloned
from shardyard.api.spec_document import read_text
from shardyard.api.spec_file import sent_text
from shardyard.api.spec_overrides import placed
from shardyard.service.errors import DoesNotFit, InvalidLayout, InvalidSpec
from shardyard.service.jobs import preview
from shardyard.service.jobs.reshard import reshard
from shardyard.service.jobs.retry import retry
from shardyard.service.jobs.submit import Request, cancel, requested
from shardyard.service.queries import jobs
from shardyard.service.queries.submitted_specs import submitted_spec
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.spec_files import SpecFiles
from shardyard.service.spec_text import SpecText
from shardyard.service.store import nodes
from shardyard.service.store.engine import Store

from ..gang_events import NODE

GIB = 2**30
TEXT = """\
name: open
train:
  model: {preset: nano}   # small
  steps: 50
  global_batch: 16
  layout: auto  # the fastest
"""
H100 = {"cpu": 64.0, "gpu": 8.0, "gpu_model": "H100"}


async def known(store: Store, *rows: dict[str, Any]) -> None:
    """Make these the cluster's nodes."""
    base = {**NODE, "memory_bytes": 1, "seen_at": 0.0, "gpu_model": "", "host_memory_bytes": 0}
    async with store.write() as tx:
        await nodes.replace(tx, [{**base, "id": f"n{number}", **row} for number, row in enumerate(rows)])


async def sent(store: Store, settings: Settings, text: str = TEXT) -> Job:
    given = SpecText("yaml", text)
    spec = JobSpec.model_validate(read_text(given), strict=True)
    return (await requested(store, settings, spec, Request(None, "a", "tester", text=given), SpecFiles()))[0]


def open_job(resources: dict[str, Any] | None = None, **train: Any) -> JobSpec:
    base = {"model": {"preset": "nano"}, "steps": 2, "global_batch": 16, "layout": "auto", **train}
    return JobSpec.model_validate({"name": "x", "train": base, "resources": resources or {}})


async def test_the_layout_and_what_was_written_are_stored(store: Store, settings: Settings) -> None:
    await known(store, {"cpu": 4.0, "host_memory_bytes": 16 * GIB})
    spec = JobSpec.model_validate(read_text(SpecText("yaml", TEXT)), strict=True)
    shown = await preview.preview(store, settings, spec, SpecFiles())
    job = await sent(store, settings)
    assert (shown.layout, shown.layout_choice, shown.world_size) == (job.layout, job.layout_choice, job.world_size)
    assert job.world_size == 4 and job.layout_choice is not None
    assert job.layout_choice.startswith("chosen by the layout advisor for 4 × CPU")
    stored = job.spec["train"]["layout"]
    assert stored["auto"]["devices"] == "4 × CPU" and stored["auto"]["step_s"] > 0
    assert JobSpec.model_validate(job.spec, strict=True).world_size == 4
    assert (await submitted_spec(store, job.id)).text == TEXT
    assert (await jobs.get_job(store, job.id)).layout_choice == job.layout_choice
    again = await sent(store, settings)
    assert again.spec == job.spec


async def test_a_retry_keeps_the_layout_and_its_text_says_it(store: Store, settings: Settings) -> None:
    await known(store, {"cpu": 4.0})
    job = await cancel(store, (await sent(store, settings)).id, "tester")
    await known(store, {"cpu": 2.0})
    new, _ = await retry(store, settings, job.id, Request(None, "b", "tester"), SpecFiles(), read_text)
    assert (new.layout, new.layout_choice, new.spec) == (job.layout, job.layout_choice, job.spec)
    text = (await submitted_spec(store, new.id)).text
    assert text is not None and "auto" not in text and "# small" in text
    assert (await sent(store, settings, text)).layout == job.layout
    asked_again = await sent(store, settings)
    assert asked_again.world_size == 2


async def test_the_text_of_a_retry_keeps_fields_beside_auto(store: Store, settings: Settings) -> None:
    await known(store, {"cpu": 4.0})
    fixed = TEXT.replace("layout: auto", "layout: {auto: {world: 2}, zero: 1}")
    job = await cancel(store, (await sent(store, settings, fixed)).id, "tester")
    assert job.world_size == 2 and job.spec["train"]["layout"]["zero"] == 1
    new, _ = await retry(store, settings, job.id, Request(None, "b", "tester"), SpecFiles(), read_text)
    text = (await submitted_spec(store, new.id)).text
    assert text is not None
    await known(store, {"cpu": 8.0})
    again = await sent(store, settings, text)
    assert again.spec["train"]["layout"] == {**job.spec["train"]["layout"], "auto": None}
    assert again.layout_choice is None, "of this text it is the user's own layout"


@pytest.mark.parametrize(
    ("layout", "values"), [("auto", {"train.layout": "auto"}), ("{auto: {}}", {"train.layout.auto.world": 8})]
)
async def test_a_layout_is_chosen_again_for_the_clone_of_a_retry(
    store: Store, settings: Settings, layout: str, values: dict[str, Any]
) -> None:
    await known(store, {"cpu": 4.0})
    first = await sent(store, settings, TEXT.replace("layout: auto", f"layout: {layout}"))
    job = await cancel(store, first.id, "tester")
    retried, _ = await retry(store, settings, job.id, Request(None, "b", "tester"), SpecFiles(), read_text)
    await known(store, {"cpu": 8.0})
    given = cloned(retried, await submitted_spec(store, retried.id), None, values)
    clone = await sent(store, settings, sent_text(given, placed(given.document, values)).text)
    assert (first.world_size, clone.world_size) == (4, 8) and clone.layout_choice is not None


async def test_a_layout_that_is_changed_by_hand_is_no_longer_the_advisors(store: Store, settings: Settings) -> None:
    await known(store, {"cpu": 4.0})
    job = await sent(store, settings)
    same = JobSpec.model_validate(job.spec)
    assert (await reshard(store, settings, job.id, same, "tester")).layout_choice == job.layout_choice
    other = JobSpec.model_validate({**job.spec, "train": {**job.spec["train"], "layout": {"data": 2}}})
    changed = await reshard(store, settings, job.id, other, "tester")
    assert (changed.layout, changed.layout_choice) == ("data 2", None)
    open_again = JobSpec.model_validate({**job.spec, "train": {**job.spec["train"], "layout": "auto"}})
    with pytest.raises(InvalidLayout, match="no layout has been chosen yet"):
        await reshard(store, settings, job.id, open_again, "tester")


async def test_tensor_groups_are_on_nodes_that_are_there(store: Store, settings: Settings) -> None:
    """Two nodes of six have room for two groups of four, not for three."""
    await known(store, *[{**H100, "gpu": 6.0}] * 2)
    text = TEXT.replace("layout: auto  # the fastest", "layout: {auto: {}, tensor: 4}")
    text = text.replace("preset: nano", "preset: nano, kv_heads: 4").replace("global_batch: 16", "global_batch: 12")
    job = await sent(store, settings, text)
    assert job.spec["train"]["layout"]["tensor"] == 4 and job.world_size == 8


async def test_gpus_of_a_model_that_is_known_are_counted_with_its_memory(store: Store, settings: Settings) -> None:
    large = {"model": {"preset": "8B", "vocab": 128_256}, "data": {"seq_len": 4096}, "precision": "bf16"}
    await known(store, H100, {**H100, "host": "h2"})
    found = await preview.preview(store, settings, open_job(**large), SpecFiles())
    assert found.world_size == 16 and found.memory is not None and found.memory.fits is True
    assert "16 × H100" in (found.layout_choice or "")
    alone = await preview.preview(store, settings, open_job(**{**large, "layout": {"auto": {"world": 1}}}), SpecFiles())
    assert "with optimizer state on the host" in (alone.layout_choice or "") and alone.memory is not None
    few = open_job(**{**large, "model": {"preset": "70B"}, "layout": {"auto": {"world": 1}}})
    with pytest.raises(DoesNotFit, match="are short"):
        await preview.preview(store, settings, few, SpecFiles())
    await known(store, {**H100, "gpu_model": "RTX-9090"})
    with pytest.raises(InvalidSpec) as unknown:
        await preview.preview(store, settings, open_job(**large), SpecFiles())
    remedy = unknown.value.remedy or ""
    assert "resources.gpu" in remedy and "`shardyard advise SPEC --world N --gpu MODEL`" in remedy
    on_cpus = open_job({"device": "cpu"})
    assert "CPU" in ((await preview.preview(store, settings, on_cpus, SpecFiles())).layout_choice or "")


async def test_the_whole_cluster_counts_and_not_what_is_free(store: Store, settings: Settings) -> None:
    await known(store, {"cpu": 4.0}, {"cpu": 4.0, "host": "h2", "cpu_used": 4.0})
    assert (await sent(store, settings)).world_size == 8
    spares = open_job().model_copy(update={"policy": open_job().policy.model_copy(update={"spares": 1})})
    assert (await preview.preview(store, settings, spares, SpecFiles())).world_size < 8


async def test_an_unknown_cluster_needs_a_number_of_ranks(store: Store, settings: Settings) -> None:
    with pytest.raises(InvalidSpec) as unknown:
        await sent(store, settings)
    assert unknown.value.field == "train.layout.auto.world" and "world: 8" in (unknown.value.remedy or "")
    assert (await sent(store, settings, TEXT.replace("layout: auto", "layout: {auto: {world: 2}}"))).world_size == 2
    assert len((await jobs.list_jobs(store)).items) == 1
