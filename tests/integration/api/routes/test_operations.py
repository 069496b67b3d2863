"""Operations over HTTP, from Python and the command line: asked for once, followed to their end, refused with a remedy."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.stored_checkpoints import (
    FILE,
    checkpoint_path,
    flip_checkpoint_bit,
    save_checkpoint,
    save_model_checkpoint,
)

from shardyard.api.cli.main import run
from shardyard.api.client import AsyncClient, Client
from shardyard.service.dispatch.operation_runner import OperationRunner
from shardyard.service.store import operations as rows
from shardyard.workers.storage.open_folder import folder_at

from ...inprocess_cluster import InProcessCluster
from ..conftest import SPEC, Gang, Plane, ask, problem


@pytest.fixture
def job(plane: Plane, client: Client, tmp_path: Path) -> str:
    """A job that has reported a checkpoint."""
    made = client.submit(SPEC).id
    gang = Gang(plane, made)
    gang.state("running")
    gang.emit(("checkpoint", save_checkpoint(tmp_path / made, 10)))
    return made


def test_an_operation_is_asked_for_once_and_read_until_it_ends(job: str, plane: Plane, client: Client) -> None:
    base = f"{plane.url}/v1/jobs/{job}"
    [checkpoint] = client.checkpoints(job).items
    asked = [
        ask("POST", f"{base}/checkpoints/{checkpoint.position}/{what}", headers={"Idempotency-Key": key})
        for what, key in (("verify", "a"), ("verify", "a"), ("export?dtype=bf16", "b"))
    ]
    assert [answer.status_code for answer in asked] == [202] * 3
    first, again, export = [answer.json() for answer in asked]
    assert again == first and (first["kind"], first["state"], first["step"], first["position"]) == (
        "verify",
        "pending",
        10,
        checkpoint.position,
    )
    assert (export["dtype"], export["exported"], export["error"]) == ("bf16", None, None)
    assert ask("GET", f"{base}/operations/{export['id']}").json() == export
    page = ask("GET", f"{base}/operations?limit=1").json()
    assert page["items"] == [export]
    assert ask("GET", f"{base}/operations?before={page['next']}").json() == {"items": [first], "next": None}


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "field"),
    [
        ("POST", f"/job-{'0' * 26}/checkpoints/1/verify", 404, "job_not_found", None),
        ("POST", "/{job}/checkpoints/1/verify", 404, "checkpoint_not_found", "position"),
        ("POST", "/{job}/checkpoints/99/export", 404, "checkpoint_not_found", "position"),
        ("POST", "/{job}/checkpoints/0/export", 422, "invalid_request", "position"),
        ("POST", "/{job}/checkpoints/4/export?dtype=int8", 422, "invalid_request", "dtype"),
        ("GET", "/{job}/operations?before=nonsense", 400, "invalid_cursor", "before"),
        ("GET", "/{job}/operations?limit=0", 422, "invalid_request", "limit"),
        ("GET", "/{job}/operations/op-1", 404, "operation_not_found", "operation"),
        ("GET", "/{job}/operations/%00", 404, "operation_not_found", "operation"),
    ],
)
def test_refusals(job: str, plane: Plane, method: str, path: str, status: int, code: str, field: str | None) -> None:
    answer: Any = ask(method, f"{plane.url}/v1/jobs{path.format(job=job)}")
    [error, *_] = problem(answer, status, code)["errors"]
    assert error["field"] == field and error["message"] and error["remedy"]


def test_a_position_and_a_key_need_the_jobs_id(job: str, plane: Plane, client: Client) -> None:
    """The newest job of a name may be another one when the request arrives, or is sent again."""
    [checkpoint] = client.checkpoints(job).items
    name = client.job(job).name
    what = {
        **{f"checkpoints/{checkpoint.position}/{kind}": None for kind in ("verify", "export", "pin", "unpin")},
        "trace": None,
        "execs": {"rank": 0, "command": ["true"]},
        "profiles": {"rank": 0},
        "faults": {"kind": "kill-rank", "rank": 0},
    }
    for path, body in what.items():
        answer = ask("POST", f"{plane.url}/v1/jobs/{name}/{path}", json=body, headers={"Idempotency-Key": "mine"})
        [error] = problem(answer, 422, "invalid_request")["errors"]
        assert error["field"] == "job" and "GET /v1/jobs/NAME" in error["remedy"]
    assert client.operations(job).items == []


def test_the_clients_give_an_order_the_jobs_id(job: str, client: Client) -> None:
    """Their requests have a key, and are sent again if no answer comes."""
    sent: list[str] = []
    client._http.event_hooks["request"].append(lambda request: sent.append(request.url.path))
    assert client.trace(client.job(job).name).job == job
    assert [path for path in sent if path.endswith("/trace")] == [f"/v1/jobs/{job}/trace"]


@pytest.fixture
def saved(plane: Plane, client: Client, tmp_path: Path) -> tuple[str, Path]:
    """A job that has reported four checkpoints, and their folder: of a model, valid, corrupt and deleted."""
    made = client.submit(SPEC).id
    folder = tmp_path / made
    gang = Gang(plane, made)
    gang.state("running")
    gang.emit(
        ("checkpoint", save_model_checkpoint(folder, 10)),
        *(("checkpoint", save_checkpoint(folder, step)) for step in (20, 30, 40)),
    )
    flip_checkpoint_bit(folder, 30)
    folder_at(str(checkpoint_path(folder, 40))).remove_all()
    return made, folder


@pytest.fixture
def operated(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is asked for is done, as by a dispatcher."""
    monkeypatch.setenv("SHARDYARD_URL", plane.url)
    runner = OperationRunner(plane.store, plane.settings, InProcessCluster(), "test")

    async def work() -> None:
        while True:
            async with plane.store.read() as tx:
                pending = await rows.free(tx, runner.room)
            await runner.begin(pending)
            await asyncio.sleep(0.05)

    async def begin() -> "asyncio.Task[None]":
        return asyncio.create_task(work())

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.stop()

    task = plane.do(begin())
    yield
    plane.do(end())


@pytest.mark.usefixtures("operated")
async def test_both_clients_follow_an_operation_to_its_end(
    saved: tuple[str, Path], plane: Plane, client: Client
) -> None:
    job, folder = saved
    n = {one.step: one.position for one in client.checkpoints(job).items}
    found = await asyncio.to_thread(lambda: client.finished(client.job(job).verify_checkpoint(n[30])))
    assert found.state == "done" and found.verified is not None
    assert (found.verified.verdict, found.verified.corrupt, found.verified.corrupt_files) == ("corrupt", [FILE], 1)
    async with AsyncClient(plane.url) as other:
        handle = await other.job(job)
        made = await other.finished(await handle.export_checkpoint(n[10], dtype="fp16"))
        assert made.exported is not None and made.exported.path == str(folder / "export-00000010-fp16")
        failed = await other.finished(await other.export_checkpoint(job, n[40]))
        assert failed.state == "failed" and failed.error is not None and failed.error.code == "checkpoint_deleted"
        assert [one.id for one in (await handle.operations()).items] == [failed.id, made.id, found.id]
        assert await other.operation(job, made.id) == made


@pytest.mark.usefixtures("operated")
def test_an_export_without_the_tokenizer_of_the_training_says_so(
    plane: Plane, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, gone = client.submit(SPEC).id, tmp_path / "gone" / "tokenizer.json"
    gang = Gang(plane, job)
    gang.state("running")
    gang.emit(("checkpoint", save_model_checkpoint(tmp_path / job, 10, tokenizer=str(gone))))
    for where in ("--on-cluster", str(tmp_path / "here")):
        assert run(["export", job, where]) == 0
        printed = capsys.readouterr()
        assert "KiB of fp32 in 1 file" in printed.out
        assert f"warning: tokenizer: {gone} does not exist on" in printed.err and "export again" in printed.err
    [made] = client.operations(job).items
    assert made.exported is not None and str(gone) in str(made.exported.tokenizer_missing)


@pytest.mark.usefixtures("operated")
def test_the_command_line_has_the_cluster_verify_and_export(
    saved: tuple[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job, folder = saved
    assert run(["checkpoints", job, "--on-cluster", "--json"]) == 1
    items = json.loads(capsys.readouterr().out)["items"]
    assert [(one["step"], one["verdict"]) for one in items] == [
        (40, "deleted"),
        (30, "corrupt"),
        (20, "valid"),
        (10, "valid"),
    ]
    assert FILE in items[1]["message"]
    assert run(["export", f"{job}@10", "--on-cluster", "--dtype", "bf16"]) == 0
    printed = capsys.readouterr().out
    assert str(folder / "export-00000010-bf16") in printed and "KiB of bf16 in 1 file" in printed
    assert run(["export", f"{job}@10", str(tmp_path / "by-step")]) == 0
    assert (
        str(checkpoint_path(folder, 10)) in capsys.readouterr().out and (tmp_path / "by-step" / "config.json").is_file()
    )
    for refused, expected in (
        (["export", f"{job}@11", str(tmp_path / "out")], "no checkpoint of step 11"),
        (["export", f"{job}@40", str(tmp_path / "out")], "--on-cluster"),
        (["export", "absent", str(tmp_path / "out")], "There is no folder absent, and it cannot be read as a job"),
        (["export", f"{job}@40", "--on-cluster"], "was deleted"),
        (["export", f"{job}@11", "--on-cluster"], "no checkpoint of step 11"),
        (["export", f"{job}@10", str(tmp_path / "out"), "--on-cluster"], "Leave out OUT"),
        (["export", str(checkpoint_path(folder, 10))], "--on-cluster"),
    ):
        assert run(refused) == 1
        assert expected in capsys.readouterr().err, refused
