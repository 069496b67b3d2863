"""Jobs that run a command: what is refused before anything is stored, and what the cluster is to run."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.service.dispatch.admission import admit
from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.dispatch.gang_spec import gang_spec
from shardyard.service.errors import InvalidSpec, MissingFile, NotAFile, TooManyRanks, UnknownCheckpoint
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.preview import preview
from shardyard.service.queries import jobs
from shardyard.service.schemas.job import Job, JobFiles
from shardyard.service.settings import Settings
from shardyard.service.spec import CommandSpec
from shardyard.service.spec_files import SpecFiles
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import nodes
from shardyard.service.store.engine import Store
from shardyard.workers.program.program import Program, argv

from ..gang_events import NODE, event_batch


async def submit(store: Store, settings: Settings, **fields: Any) -> Job:
    spec = CommandSpec.model_validate({"name": "mine", "command": ["python", "train.py"], **fields})
    job, created = await submitting.submit(store, settings, spec, None, "", "tester")
    assert created
    return job


async def test_refusals_name_the_field_and_store_nothing(store: Store, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"cwd": "here"}, InvalidSpec, "cwd"),
        ({"cwd": str(tmp_path / "none")}, MissingFile, "cwd"),
        ({"cwd": str(tmp_path / "file")}, NotAFile, "cwd"),
        ({"command": ["a"], "resources": {"env": {"RANK": "0"}}}, InvalidSpec, "resources.env.RANK"),
        ({"env": {"python": "requirements.txt"}}, InvalidSpec, "env.python"),
        ({"env": {"python": "/shared/../x.txt"}}, InvalidSpec, "env.python"),
        ({"env": {"python": str(tmp_path / "none.txt")}}, MissingFile, "env.python"),
        ({"env": {"python": "environment.yaml"}}, InvalidSpec, "env.python"),
        ({"env": {"conda": "environment.yml"}}, InvalidSpec, "env.conda"),
        ({"env": {"conda": "/shared/../environment.yml"}}, InvalidSpec, "env.conda"),
        ({"env": {"conda": "/shared/requirements.txt"}}, InvalidSpec, "env.conda"),
        ({"env": {"conda": str(tmp_path / "none.yml")}}, MissingFile, "env.conda"),
        ({"env": {"python": "einops"}}, InvalidSpec, "env.python"),
        ({"env": {"python": ["einops", "-e ."]}}, InvalidSpec, "env.python[1]"),
        ({"env": {"python": ["einops=0.8"]}}, InvalidSpec, "env.python[0]"),
        ({"env": {"python": ["a @ file:///a"]}}, InvalidSpec, "env.python[0]"),
        ({"env": {"python": ["a @ git+https://me:secret@example.com/a"]}}, InvalidSpec, "env.python[0]"),
        ({"files": {"/data": "s3://bucket/a"}}, InvalidSpec, "files./data"),
        ({"files": {"data/../x": "s3://bucket/a"}}, InvalidSpec, "files.data/../x"),
        ({"files": {"a/b": "s3://bucket/a", "a": "/mnt"}}, InvalidSpec, "files.a/b"),
        ({"files": {"a": "ftp://host/a"}}, InvalidSpec, "files.a"),
        ({"files": {"a": "hf://name"}}, InvalidSpec, "files.a"),
        ({"files": {"a": str(tmp_path / "none")}}, MissingFile, "files.a"),
        ({"ranks": 4000, "resources": {"device": "cpu"}}, TooManyRanks, "ranks"),
    ]
    for fields, kind, field in cases:
        with pytest.raises(kind) as refused:
            await submit(store, settings.model_copy(update={"local_files": True}), **fields)
        assert refused.value.field == field  # type: ignore[attr-defined]
    assert (await jobs.list_jobs(store)).items == []


async def test_the_gang_runs_the_program(store: Store, settings: Settings) -> None:
    fields = {
        "ranks": 4,
        "ranks_per_node": 2,
        "cwd": "/w",
        "tensorboard": "runs",
        "policy": {"max_repairs": 7},
        "resources": {"device": "cpu"},
    }
    job = await submit(store, settings, command="a && b", **fields)
    assert (job.layout, job.world_size, job.spec["apiVersion"]) == ("4 ranks", 4, "shardyard/v1")
    async with store.read() as tx:
        row = await job_rows.by_id(tx, job.id)
    assert row is not None
    spec = gang_spec(row, {"number": 2, "gang": "g", "device": "cpu"}, settings)  # type: ignore[arg-type]
    assert spec.entry.endswith(".program.launch:run_program")
    assert (spec.world_size, spec.tensor, spec.max_repairs, spec.hang_timeout_s) == (4, 2, 7, 600.0)
    assert spec.run == {
        "job": job.id,
        "command": [*argv("a && b")],
        "attempt": 2,
        "cwd": "/w",
        "tensorboard": "runs",
        "max_restarts": 7,
        "checkpoints": f"{settings.storage}/{job.id}",
        "artifacts": {
            "address": f"{settings.storage}/artifacts/{job.id}",
            "spool": f"{settings.cache}/artifacts",
            "file_bytes": 1 << 30,
            "bytes": 20 << 30,
            "files": 10_000,
        },
        "cache": str(settings.cache),
    }


async def test_the_nodes_get_the_file_of_conda(store: Store, settings: Settings) -> None:
    job = await submit(store, settings, env={"conda": "/shared/environment.yml"}, resources={"device": "cpu"})
    async with store.read() as tx:
        row = await job_rows.by_id(tx, job.id)
    assert row is not None
    run = gang_spec(row, {"number": 1, "gang": "g", "device": "cpu"}, settings).run  # type: ignore[arg-type]
    assert run["conda"] == "/shared/environment.yml" and "python" not in run


async def test_a_job_with_an_image_runs_on_nodes_that_have_it_and_no_other_job_does(
    store: Store, settings: Settings
) -> None:
    known = {**NODE, "memory_bytes": 1, "seen_at": 0.0, "cpu": 1.0, "gpu": 0.0}
    async with store.write() as tx:
        rows = [{**known, "id": "own", "image": ""}, {**known, "id": "nemo", "host": "nemo", "image": "nemo"}]
        await nodes.replace(tx, rows)
    ranks = settings.cpu_ranks_per_core
    with pytest.raises(TooManyRanks, match="image namo") as refused:
        await submit(store, settings, env={"image": "namo"})
    assert refused.value.field == "env.image" and "shardyard nodes" in (refused.value.remedy or "")
    with pytest.raises(TooManyRanks, match="on nodes of the cluster's own image; the most together are") as refused:
        await submit(store, settings, ranks=2 * ranks)
    assert refused.value.field == "ranks"
    named = [await submit(store, settings, ranks=ranks, env={"image": "nemo"}) for _ in range(2)]
    plain = await submit(store, settings, ranks=ranks)
    assert {lease.job_id for lease in (await admit(store, settings, "a", None)).leases} == {named[0].id, plain.id}
    waits = await jobs.get_job(store, named[1].id)
    assert waits.reason == "waiting_for_devices" and "on nodes of the image nemo" in (waits.message or "")
    async with store.read() as tx:
        row = await job_rows.by_id(tx, named[0].id)
    assert row is not None
    spec = gang_spec(row, {"number": 1, "gang": "g", "device": "cpu"}, settings)  # type: ignore[arg-type]
    assert spec.image == "nemo" and not {"python", "conda"} & spec.run.keys()


async def test_the_nodes_get_the_sources_of_files_and_the_job_what_they_had(store: Store, settings: Settings) -> None:
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    asked = {"model": "hf://org/name", "data/train": "s3://bucket/a"}
    job = await submit(store, settings, files=asked, resources={"device": "cpu"})
    async with store.read() as tx:
        row = await job_rows.by_id(tx, job.id)
    assert row is not None
    run = gang_spec(row, {"number": 1, "gang": "g", "device": "cpu"}, settings).run  # type: ignore[arg-type]
    assert {one["target"]: one["source"] for one in run["mounts"]} == asked
    assert run["files"] == {"record": f"{settings.storage}/files/{job.id}", "most_bytes": 50 << 30}
    (lease,) = (await admit(store, settings, "a", None)).leases
    assert (await jobs.get_job(store, job.id)).files == []
    found: dict[str, Any] = {"target": "model", "source": "hf://org/name", "digest": "d", "files": 1, "bytes": 2}
    for number in (1, 2):  # every attempt sends them
        batch = event_batch(("files", {"files": [{**found, "revision": f"commit {number}"}]}), first=number)
        await ingest(store, lease, 1, batch)
    found["revision"] = "commit 2"
    assert (await jobs.get_job(store, job.id)).files == [JobFiles(**found)]
    assert (await jobs.list_jobs(store)).items[0].files == []


async def test_a_driver_gets_a_cluster_of_what_its_ranks_hold(store: Store, settings: Settings) -> None:
    """`ray: true` is stored in full. Its environment may set variables of Ray, but none that the cluster sets."""
    env = {"RAY_DEDUP_LOGS": "0"}
    job = await submit(store, settings, ray=True, ranks=3, resources={"cpus_per_gpu": 6, "env": env})
    assert job.spec["ray"] == {"object_store_mb": 512}
    async with store.read() as tx:
        row = await job_rows.by_id(tx, job.id)
    assert row is not None
    run = gang_spec(row, {"number": 1, "gang": "g", "device": "cuda"}, settings).run  # type: ignore[arg-type]
    assert (run["per_node"], run["command"]) == (True, ["python", "train.py"])
    assert run["ray"] == {"object_store": 512 << 20, "cpus": 6.0, "storage": f"{settings.storage}/{job.id}"}
    assert (
        "ray" not in Program("a", ("b",)).to_json() and (await submit(store, settings, ray=False)).spec["ray"] is None
    )
    with pytest.raises(InvalidSpec, match="RAY_ADDRESS is not for jobs: the job's Ray cluster"):
        await submit(store, settings, ray=True, resources={"env": {"RAY_ADDRESS": "x"}})
    with pytest.raises(InvalidSpec, match="not passed to trainers"):
        await submit(store, settings, resources={"env": env})


@pytest.mark.parametrize(
    "fields", [{"command_per": "node", "ranks_per_node": 1}, {"ray": {"object_store_mb": 10}}, {"ray": 1}]
)
def test_a_driver_runs_once_with_room_for_its_objects(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CommandSpec.model_validate({"name": "mine", "command": ["python"], "ray": True, **fields}, strict=True)


@pytest.mark.parametrize(
    ("python", "sent"),
    [
        (
            ["einops==0.8", "a @ git+https://example.com/a"],
            {"requirements": ["einops==0.8", "a @ git+https://example.com/a"]},
        ),
        ("/shared/uv.lock", {"file": "/shared/uv.lock"}),
    ],
)
async def test_the_nodes_get_the_environment(
    store: Store, settings: Settings, python: Any, sent: dict[str, Any]
) -> None:
    job = await submit(store, settings, env={"python": python, "version": "3.12", "inherit": True})
    async with store.read() as tx:
        row = await job_rows.by_id(tx, job.id)
    assert row is not None
    spec = gang_spec(row, {"number": 1, "gang": "g", "device": "cpu"}, settings)  # type: ignore[arg-type]
    assert spec.run["python"] == {"version": "3.12", "inherit": True, **sent}


@pytest.mark.parametrize(
    "env",
    [{}, {"python": []}, {"python": ""}, {"python": "uv.lock", "conda": "x"}, {"python": "uv.lock", "version": "3"}],
)
def test_an_environment_of_another_shape_is_refused(env: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="env"):
        CommandSpec.model_validate({"name": "mine", "command": "x", "env": env})


async def test_a_preview_says_what_would_run(store: Store, settings: Settings) -> None:
    spec = CommandSpec.model_validate({"name": "mine", "command": "echo $RANK", "ranks": 2, "policy": {"spares": 1}})
    found = await preview(store, settings, spec, SpecFiles())
    assert (found.layout, found.command, found.spares) == ("2 ranks", ["bash", "-c", "echo $RANK"], 1)
    assert (found.precision, found.memory, found.global_batch) == (None, None, None)


async def test_a_command_has_no_checkpoint_to_resume_from(store: Store, settings: Settings, spec: Any) -> None:
    job = await submit(store, settings)
    with pytest.raises(UnknownCheckpoint, match="runs a command"):
        await submitting.submit(store, settings, spec(resume_from=job.id), None, "", "tester")
