"""Submitting and cancelling over both databases."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shardyard.service.errors import (
    EmptyCorpus,
    IdempotencyConflict,
    InvalidLayout,
    InvalidSpec,
    JobEnded,
    JobNotFound,
    MissingFile,
    ShardyardError,
    TooManyRanks,
    UnknownCheckpoint,
)
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.transitions import Cause, move
from shardyard.service.queries import jobs
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.settings import Settings
from shardyard.service.states import State
from shardyard.service.store import nodes
from shardyard.service.store.engine import Store

from ..conftest import Submit
from ..gang_events import NODE
from ..queries.test_jobs import Spec


async def test_twenty_submits_with_one_key_make_one_job(store: Store, settings: Settings, spec: Spec) -> None:
    answers = await asyncio.gather(
        *(submitting.submit(store, settings, spec(), "key", "hash", "tester") for _ in range(20))
    )
    assert len({job.id for job, _ in answers}) == 1
    assert sorted(created for _, created in answers) == [False] * 19 + [True]
    assert len((await jobs.list_jobs(store)).items) == 1
    with pytest.raises(IdempotencyConflict):
        await submitting.submit(store, settings, spec(steps=7), "key", "another hash", "tester")


async def test_cancel_is_idempotent_and_refuses_what_has_ended(store: Store, submit: Submit) -> None:
    job = await submit()
    answers = await asyncio.gather(*(submitting.cancel(store, job.id, "tester") for _ in range(5)))
    assert {answer.state for answer in answers} == {State.CANCELLED}
    assert Cursor.parse((await jobs.get_job(store, job.id)).cursor).event == 2
    other = await submit()
    async with store.write() as tx:
        await move(tx, other.id, State.QUEUED, State.FAILED, Cause("tester", 0.0))
    with pytest.raises(JobEnded):
        await submitting.cancel(store, other.id, "tester")
    with pytest.raises(JobNotFound):
        await submitting.cancel(store, "job-absent", "tester")


async def test_refusals_name_the_field_and_a_remedy_and_store_nothing(
    store: Store, settings: Settings, spec: Spec, tmp_path: Path
) -> None:
    local = settings.model_copy(update={"local_files": True})
    (tmp_path / "empty.txt").touch()
    (tmp_path / "some.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "not-a-checkpoint").mkdir()

    def text(*files: str, **more: Any) -> dict[str, Any]:
        return {"data": {"source": "text", "files": list(files), **more}}

    cases: list[tuple[dict[str, Any], type[ShardyardError], str]] = [
        ({"layout": {"tensor": 3}}, InvalidLayout, "train.layout.tensor"),
        ({"layout": {"data": 3}, "global_batch": 4}, InvalidLayout, "train.global_batch"),
        (text(str(tmp_path / "nowhere.txt")), MissingFile, "train.data.files"),
        (text(str(tmp_path / "*.csv")), MissingFile, "train.data.files"),
        (text("nul\0"), InvalidSpec, "train.data.files.0"),
        (text(str(tmp_path / "empty.txt")), EmptyCorpus, "train.data.files"),
        (text(str(tmp_path / "some.jsonl")), InvalidSpec, "train.data.field"),
        ({"data": {"tokenizer": str(tmp_path / "none.json")}}, MissingFile, "train.data.tokenizer"),
        ({"model": {"import": "m:f", "code": str(tmp_path / "none")}}, MissingFile, "train.model.code"),
        (text("~no-such-user/a.txt"), MissingFile, "train.data"),
        ({"model": {"import": "m:f", "code": "~no-such-user"}}, MissingFile, "train.model.code"),
        ({"resume_from": "~no-such-user"}, UnknownCheckpoint, "train.resume_from"),
        ({"resume_from": ""}, UnknownCheckpoint, "train.resume_from"),
        ({"resume_from": "absent"}, UnknownCheckpoint, "train.resume_from"),
        ({"resume_from": "nul\0"}, InvalidSpec, "train.resume_from"),
        ({"resume_from": "x" * 4000}, UnknownCheckpoint, "train.resume_from"),
        ({"resume_from": str(tmp_path / "not-a-checkpoint")}, UnknownCheckpoint, "train.resume_from"),
    ]
    for fields, kind, field in cases:
        with pytest.raises(kind) as refused:
            await submitting.submit(store, local, spec(**fields), "key", "hash", "tester")
        assert (refused.value.field, bool(refused.value.remedy)) == (field, True), fields
    assert (await jobs.list_jobs(store)).items == []


async def test_more_ranks_than_there_can_ever_be_are_refused(store: Store, settings: Settings, spec: Spec) -> None:
    await submitting.submit(store, settings, spec(ranks=64), None, "", "tester")  # no node is known yet
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    await submitting.submit(store, settings, spec(ranks=8), None, "", "tester")
    with pytest.raises(TooManyRanks, match=r"Needs 9 ranks; the cluster has 8 CPU ranks\."):
        await submitting.submit(store, settings, spec(ranks=9), None, "", "tester")
    with pytest.raises(TooManyRanks, match="0 GPUs") as refused:
        await submitting.submit(store, settings, spec(ranks=1, device="cuda"), None, "", "tester")
    assert refused.value.field == "resources.device" and "Use auto" in (refused.value.remedy or "")
    await submitting.submit(store, settings, spec(ranks=1, device="auto"), None, "", "tester")  # that remedy works
    with pytest.raises(TooManyRanks) as refused:
        await submitting.submit(store, settings, spec(ranks=9, device="cuda"), None, "", "tester")
    assert refused.value.field == "train.layout"
    with pytest.raises(TooManyRanks, match="Needs 8 ranks and 1 spare; ") as refused:
        await submitting.submit(store, settings, spec(ranks=8, spares=1), None, "", "tester")
    assert refused.value.field == "policy.spares" and "fewer spares" in (refused.value.remedy or "")
    growing = settings.model_copy(update={"max_ranks": 16})
    await submitting.submit(store, growing, spec(ranks=16), None, "", "tester")
    with pytest.raises(TooManyRanks, match="may grow to 16"):
        await submitting.submit(store, growing, spec(ranks=17), None, "", "tester")
