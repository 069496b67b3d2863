"""The text of a spec lives and ends with its job, and goes on to the jobs that retry it."""

from pathlib import Path

import pytest
from harness.stored_checkpoints import save_checkpoint
from sqlalchemy import func, select

from shardyard.api.spec_document import read_text
from shardyard.service.jobs.edit import edit
from shardyard.service.jobs.reshard import reshard
from shardyard.service.jobs.retry import retry
from shardyard.service.jobs.submit import Request, cancel, requested
from shardyard.service.queries.submitted_specs import submitted_spec
from shardyard.service.schemas.job import Job, JobEdit
from shardyard.service.settings import Settings
from shardyard.service.spec import CommandSpec, JobSpec, kind_of
from shardyard.service.spec_files import SpecFiles
from shardyard.service.spec_text import SpecText
from shardyard.service.store.engine import Store
from shardyard.service.store.removals import OF_JOBS
from shardyard.service.store.spec_tables import submitted_specs

TEXT = """\
name: try  # the third
train:
  steps: 50   # until noon
  global_batch: 4
  layout: {data: 2}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, local_files=True)


async def sent(store: Store, settings: Settings, text: str = TEXT, key: str | None = None) -> Job:
    given = SpecText("yaml", text)
    document = read_text(given)
    spec = kind_of(document).model_validate(document)
    return (await requested(store, settings, spec, Request(key, "a", "tester", text=given)))[0]


async def again(store: Store, settings: Settings, job: Job) -> tuple[Job, str | None]:
    await cancel(store, job.id, "tester")
    request = Request(None, "b", "tester")
    new, _ = await retry(store, settings, job.id, request, SpecFiles(), read_text)
    return new, (await submitted_spec(store, new.id)).text


async def test_a_job_has_the_text_of_its_submission_whatever_came_twice(store: Store, settings: Settings) -> None:
    first = await sent(store, settings, key="k")
    assert (await sent(store, settings, TEXT + "# another comment\n", key="k")).id == first.id
    found = await submitted_spec(store, first.name)
    assert (found.job, found.format, found.text, found.layout_changed) == (first.id, "yaml", TEXT, False)
    async with store.read() as tx:
        assert (await tx.execute(select(func.count()).select_from(submitted_specs))).scalar_one() == 1
    assert submitted_specs in OF_JOBS  # it is removed with its job


async def test_a_retry_has_the_text_of_the_first_job_with_its_own_values(store: Store, settings: Settings) -> None:
    job = await sent(store, settings)
    save_checkpoint(Path(settings.storage) / job.id, 10)
    await edit(store, job.id, JobEdit(name="other", labels={"team": "a"}))
    new, text = await again(store, settings, job)
    resumed = TEXT.replace("name: try", "name: other").replace("{data: 2}\n", f"{{data: 2}}\n  resume_from: {job.id}\n")
    assert text == resumed + "labels: {team: a}\n"
    save_checkpoint(Path(settings.storage) / new.id, 20)
    _, text = await again(store, settings, new)
    assert text is not None and f"resume_from: {new.id}\n" in text and "# until noon" in text


async def test_a_retry_has_the_layout_that_its_job_got_later(store: Store, settings: Settings) -> None:
    job = await sent(store, settings)
    spec = JobSpec.model_validate({**job.spec, "train": {**job.spec["train"], "layout": {"data": 1}}})
    await reshard(store, settings, job.id, spec, "tester")
    found = await submitted_spec(store, job.id)
    assert (found.text, found.layout_changed) == (TEXT, True)
    new, text = await again(store, settings, job)
    assert (new.world_size, text) == (1, TEXT.replace("{data: 2}", "{data: 1}"))
    assert not (await submitted_spec(store, new.id)).layout_changed


async def test_a_retry_of_a_command_has_the_ranks_that_its_job_got_later(store: Store, settings: Settings) -> None:
    text = "name: try  # the third\ncommand: [python, train.py]\nranks: {min: 1, max: 4}\n"
    job = await sent(store, settings, text)
    spec = CommandSpec.model_validate({**job.spec, "ranks": 2, "elastic": None})
    await reshard(store, settings, job.id, spec, "tester")
    new, found = await again(store, settings, job)
    assert (new.world_size, found) == (2, text.replace("{min: 1, max: 4}", "2"))
