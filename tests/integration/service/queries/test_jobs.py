import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardyard.service.errors import (
    EmptyCorpus,
    IdempotencyConflict,
    InvalidCursor,
    InvalidLayout,
    InvalidSpec,
    JobEnded,
    JobNotFound,
    MissingFile,
    ResumeMismatch,
    ShardyardError,
    TooManyRanks,
    UnknownCheckpoint,
)
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.transitions import Word, move
from shardyard.service.queries import jobs, live_tail, logs, steps
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.states import State
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import logs as log_rows
from shardyard.service.store import nodes
from shardyard.service.store import steps as step_rows
from shardyard.service.store.engine import Store
from shardyard.workers.checkpoint.manifest import Manifest, write
from shardyard.workers.storage.open_folder import folder_at

from ..conftest import Submit
from ..store.test_leases import NODE

Spec = Callable[..., JobSpec]


async def test_twenty_submits_with_one_key_make_one_job(store: Store, settings: Settings, spec: Spec) -> None:
    answers = await asyncio.gather(
        *(submitting.submit(store, settings, spec(), "key", "hash", "tester") for _ in range(20))
    )
    assert len({job.id for job, _ in answers}) == 1
    assert sorted(created for _, created in answers) == [False] * 19 + [True]
    assert len((await jobs.list_jobs(store)).items) == 1
    with pytest.raises(IdempotencyConflict):
        await submitting.submit(store, settings, spec(steps=7), "key", "another hash", "tester")


async def test_a_job_is_found_by_id_and_by_its_newest_name(store: Store, submit: Submit) -> None:
    old, new = await submit(name="twin"), await submit(name="twin")
    assert (await jobs.get_job(store, old.id)).id == old.id
    assert (await jobs.get_job(store, "twin")).id == new.id
    assert new.spec["train"]["steps"] == 100
    assert (new.layout, new.batch) == ("data 1", "global batch 4 = 1 data × 1 micro-batches × 4 sequences")
    for nobody in ("", "nobody", "nul\0"):
        with pytest.raises(JobNotFound):
            await jobs.get_job(store, nobody)


async def test_pages_neither_repeat_nor_skip_while_jobs_are_added(store: Store, submit: Submit) -> None:
    made = [(await submit(name=f"job-{i}")).id for i in range(7)]
    seen, cursor = [], None
    while True:
        page = await jobs.list_jobs(store, cursor=cursor, limit=3)
        seen += [job.id for job in page.items]
        await submit(name="later")
        if page.next is None:
            break
        cursor = page.next
    assert seen == sorted(made, reverse=True)
    for wrong in ("", "job-", "' OR 1=1", "job-" + "\0" * 26):
        with pytest.raises(InvalidCursor):
            await jobs.list_jobs(store, cursor=wrong)


async def test_filters_hold_together(store: Store, submit: Submit) -> None:
    a = await submit(name="vision", labels={"team": "a", "run": "1"})
    b = await submit(name="vision", labels={"team": "b"})
    c = await submit(name="text_50%".replace("_", "-").replace("%", ""), labels={"team": "a"})
    await submitting.cancel(store, c.id, "tester")

    async def found(**filters: Any) -> set[str]:
        return {job.id for job in (await jobs.list_jobs(store, job_rows.Filter(**filters))).items}

    assert await found(name="vision") == {a.id, b.id}
    assert await found(labels={"team": "a"}) == {a.id, c.id}
    assert await found(labels={"team": "a", "run": "1"}) == {a.id}
    assert await found(labels={"team": "a"}, state=State.QUEUED) == {a.id}
    assert await found(text="VISI") == {a.id, b.id}
    assert await found(text=a.id[-8:]) == {a.id}
    assert await found(text="%") == await found(text="_") == await found(text="\0") == set()


async def test_cancel_is_idempotent_and_refuses_what_has_ended(store: Store, submit: Submit) -> None:
    job = await submit()
    answers = await asyncio.gather(*(submitting.cancel(store, job.id, "tester") for _ in range(5)))
    assert {answer.state for answer in answers} == {State.CANCELLED}
    assert Cursor.parse((await jobs.get_job(store, job.id)).cursor).event == 2
    other = await submit()
    async with store.write() as tx:
        await move(tx, other.id, State.QUEUED, State.FAILED, Word("tester", 0.0))
    with pytest.raises(JobEnded):
        await submitting.cancel(store, other.id, "tester")
    with pytest.raises(JobNotFound):
        await submitting.cancel(store, "job-nobody", "tester")


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
        (text("~nobody-here/a.txt"), MissingFile, "train.data"),
        ({"model": {"import": "m:f", "code": "~nobody-here"}}, MissingFile, "train.model.code"),
        ({"resume_from": "~nobody-here"}, UnknownCheckpoint, "train.resume_from"),
        ({"resume_from": ""}, UnknownCheckpoint, "train.resume_from"),
        ({"resume_from": "nobody"}, UnknownCheckpoint, "train.resume_from"),
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


async def test_resuming_finds_the_newest_complete_checkpoint(
    store: Store, settings: Settings, spec: Spec, submit: Submit
) -> None:
    local = settings.model_copy(update={"local_files": True})
    source = await submit(name="source")
    root = Path(settings.storage) / source.id
    for step, complete in ((10, True), (20, True), (30, False)):
        (root / f"step-{step:08d}").mkdir(parents=True)
        if complete:
            write(folder_at(root / f"step-{step:08d}"), Manifest(step, {}, {}, {}))
    newest = str(root / "step-00000020")
    for wanted in (source.id, "source", str(root), newest):
        job, _ = await submitting.submit(store, local, spec(resume_from=wanted), None, "", "tester")
        async with store.read() as tx:
            row = await job_rows.by_id(tx, job.id)
        assert row is not None and row["resume"] == newest


async def test_a_job_that_cannot_go_on_in_another_ones_data_is_refused(
    store: Store, settings: Settings, spec: Spec, submit: Submit
) -> None:
    source = await submit(name="source")
    async with store.write() as tx:
        await job_rows.set_columns(tx, source.id, {"checkpoint": "/far/away/step-00000020"})
    with pytest.raises(ResumeMismatch) as refused:
        await submit(resume_from="source", data={"seq_len": 128})
    assert refused.value.field == "train.data.seq_len"
    assert "resume_data: restart" in (refused.value.remedy or "")
    await submit(resume_from="source", data={"seq_len": 128}, resume_data="restart")
    await submit(resume_from="source", global_batch=8)


async def _fill_steps(store: Store, job_id: str, losses: dict[int, float | None]) -> None:
    numbers = ("lr", "grad_norm", "loss_scale", "tokens", "tokens_per_s", "step_s")
    more = ("step_s_min", "step_s_median", "step_s_max", "slowest_rank")
    empty = dict.fromkeys((*numbers, *more))
    rows = [{**empty, "step": s, "loss": x, "attempt": 1, "ts": float(s), "skipped": False} for s, x in losses.items()]
    async with store.write() as tx:
        for start in range(0, len(rows), 5000):
            await step_rows.append(tx, job_id, rows[start : start + 5000])


def _naive_extremes(losses: dict[int, float | None], buckets: int) -> set[int]:
    """First, last, and each bucket's steps of lowest and highest loss, as one would write it in Python."""
    low, high = min(losses), max(losses)
    width = -(-(high - low + 1) // buckets)
    chosen = {low, high}
    for start in range(low, high + 1, width):
        inside = [
            (loss, step) for step in range(start, min(start + width, high + 1)) if (loss := losses[step]) is not None
        ]
        chosen |= {min(inside)[1], min((-loss, step) for loss, step in inside)[1]}
    return chosen


async def test_downsampling_keeps_every_buckets_extremes(store: Store, submit: Submit) -> None:
    job = await submit()
    losses: dict[int, float | None] = {step: 10 / step + 0.01 * (step % 7) for step in range(1, 5001)}
    losses |= {1234: 99.0, 3333: -5.0, 2000: None}
    await _fill_steps(store, job.id, losses)
    for most in (2, 3, 10, 100, 1000):
        thinned = await steps.metrics(store, job.id, max_points=most)
        assert thinned.downsampled and thinned.last_step == 5000
        assert len(thinned.points) <= max(most, 4)
        seen = [point.step for point in thinned.points]
        assert seen == sorted(set(seen)) and seen[0] == 1 and seen[-1] == 5000
        assert set(seen) == _naive_extremes(losses, max(1, (most - 2) // 2))
        assert all(point.loss == losses[point.step] for point in thinned.points)
    rest = await steps.metrics(store, job.id, since=4990, max_points=10)
    assert (rest.downsampled, [point.step for point in rest.points]) == (False, list(range(4991, 5001)))
    nothing = await steps.metrics(store, job.id, since=5000)
    assert (nothing.points, nothing.last_step) == ([], 5000)


async def test_log_ranges_by_rank_and_from_the_end(store: Store, submit: Submit) -> None:
    job = await submit()
    rows = [
        {"attempt": 1, "rank": i % 2, "stream": "stdout", "line": i // 2, "text": f"line {i}", "ts": float(i)}
        for i in range(10)
    ]
    async with store.write() as tx:
        await log_rows.append(tx, job.id, rows)
    page = await logs.page(store, job.id, limit=4)
    assert ([line.n for line in page.lines], page.next) == ([1, 2, 3, 4], 4)
    page = await logs.page(store, job.id, after=4, limit=6)
    assert ([line.n for line in page.lines], page.next) == ([5, 6, 7, 8, 9, 10], None)
    page = await logs.page(store, job.id, rank=1, tail=2)
    assert [(line.n, line.line, line.text) for line in page.lines] == [(8, 3, "line 7"), (10, 4, "line 9")]
    assert (await logs.page(store, job.id, rank=7)).lines == []


async def test_a_reader_that_comes_back_misses_nothing(store: Store, submit: Submit) -> None:
    job = await submit()
    await _fill_steps(store, job.id, dict.fromkeys(range(1, 21), 1.0))
    seen, cursor = [], Cursor()
    while True:
        tail = await live_tail.tail(store, job.id, cursor, limit=3)
        if not tail.items:
            break
        seen += [(item.kind, item.data.get("step")) for item in tail.items]
        cursor = Cursor.parse(str(tail.items[-1].cursor))
        assert cursor == tail.cursor
    assert [step for kind, step in seen if kind == "step"] == list(range(1, 21))
    assert [kind for kind, _ in seen].count("state") == 1
    assert not tail.done
    await submitting.cancel(store, job.id, "tester")
    tail = await live_tail.tail(store, job.id, cursor)
    assert ([item.data["state"] for item in tail.items], tail.done) == (["cancelled"], True)


async def test_positions_are_seen_in_the_order_of_their_commits(
    store: Store, database_url: str, submit: Submit
) -> None:
    """Writers and a reader at once: whatever the reader has passed, nothing appears behind it."""
    job = await submit()
    other = Store(database_url)
    reading, seen = True, list[int]()

    async def write(to: Store, base: int) -> None:
        for i in range(15):
            await _fill_steps(to, job.id, {base + 2 * i: 1.0, base + 2 * i + 1: 1.0})

    async def read() -> None:
        cursor, over = Cursor(), False
        while not over:
            last = not reading  # what is asked from now on sees every commit
            tail = await live_tail.tail(store, job.id, cursor)
            seen.extend(item.data["step"] for item in tail.items if item.kind == "step")
            over, cursor = last and tail.cursor == cursor, tail.cursor
            await asyncio.sleep(0)

    reader = asyncio.create_task(read())
    try:
        await asyncio.gather(write(store, 1), write(other, 1001))
    finally:
        reading = False
        await reader
        await other.close()
    assert sorted(seen) == [*range(1, 31), *range(1001, 1031)]
