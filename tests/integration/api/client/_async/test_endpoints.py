"""Whatever the API answers, both clients can ask: every operation, with every parameter that it takes."""

import hashlib
import inspect
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest
from harness.certificates import certificate

from shardyard.api.client import ApiError, AsyncClient, Client, requests
from shardyard.service.certificate_signature import signed
from shardyard.service.schemas.certificate import Certificate
from shardyard.service.settings import Settings
from shardyard.workers.checkpoint.manifest import encoded
from shardyard.workers.code_archive import Manifest, deflated

from ...conftest import SPEC, Plane
from ..conftest import NOTES, WEIGHTS

#: Parameters that are not the caller's: a stream begins after `Last-Event-ID`, and an image on a page is of one content.
_BESIDES = {"watchJob": {"after"}, "downloadArtifact": {"sha256"}}

#: The place of the job's checkpoint in its history: queued, placing, starting, this.
SAVED = 4

Ask = Callable[[Any, str, str], Any]

#: Of each operation what its method is asked; of the job `job`, which runs, and its trace `trace`.
#: What makes and ends a browser's cookie is for browsers alone, and so is a page.
_FOR_BROWSERS = {"signIn", "signOut", "showCertificate"}

#: Of an empty tar file.
MANIFEST = Manifest(1024, 1, (hashlib.sha256(bytes(1024)).hexdigest(),))

SWEEP = {**SPEC, "name": "tune", "sweep": {"parameters": {"train.seed": [1, 2]}, "search": "grid"}}


def _downloaded(client: Any, job: str) -> Any:
    """The end of a download that broke off."""
    folder = tempfile.mkdtemp()
    Path(folder, f".{hashlib.sha256(NOTES).hexdigest()[:32]}.partial").write_bytes(b"a ")
    return client.download_artifact(job, "notes.txt", folder, step=3)


def _fetched(client: Any, job: str) -> Any:
    """The end of a download of which a part of the manifest was there."""
    folder, manifest = tempfile.mkdtemp(), encoded(WEIGHTS)[0]
    Path(folder, f".{hashlib.sha256(manifest).hexdigest()[:32]}.partial").write_bytes(manifest[:2])
    return client.download_checkpoint(job, 10, folder)


def _proof() -> Certificate:
    """Of the spec of the job, signed with a key of its own."""
    return signed(certificate(given=SPEC["train"]), Settings(data_dir=Path(tempfile.mkdtemp())))


def refusal_of(ask: Callable[[], Any]) -> Any:
    """The code of a request that is refused: the checkpoint is being pinned."""

    async def asked(answer: Any) -> str:
        with pytest.raises(ApiError) as refused:
            await answer
        return refused.value.code

    try:
        answer = ask()
    except ApiError as error:
        return error.code
    return asked(answer)


ASKED: dict[str, list[Ask]] = {
    "submitJob": [lambda client, job, trace: client.submit({**SPEC, "name": "other"}, idempotency_key="mine")],
    "attachCertificate": [lambda client, job, trace: client.attach_certificate(job, _proof())],
    "getCertificate": [lambda client, job, trace: client.certificate(job)],
    "previewJob": [lambda client, job, trace: client.preview(SPEC)],
    "adviseJob": [
        lambda client, job, trace: client.advise(SPEC, world=4, top=2, gpu="H100", gpus_per_node=2),
        lambda client, job, trace: client.advise(SPEC, intra_gbps=800.5, inter_gbps=100, peak_tflops=300.5, mfu=0.4),
    ],
    "listJobs": [
        lambda client, job, trace: client.jobs(
            state="running", label={"team": "search"}, name="tiny", text="t", sort="state", limit=5
        ),
        lambda client, job, trace: client.jobs(limit=1, cursor=job),
        lambda client, job, trace: client.jobs(deleted=True, sort="-highest.acc"),
    ],
    "submitSweep": [lambda client, job, trace: client.submit_sweep(SWEEP, idempotency_key="mine")],
    "listSweeps": [
        lambda client, job, trace: client.sweeps(limit=5),
        lambda client, job, trace: client.sweeps(cursor="sweep-" + "z" * 26),
    ],
    "getSweep": [lambda client, job, trace: client.sweep("tune")],
    "listTrials": [
        lambda client, job, trace: client.trials("tune"),
        lambda client, job, trace: client.trials("tune", since=1.5),
    ],
    "cancelSweep": [lambda client, job, trace: client.cancel_sweep("tune")],
    "beginCodeUpload": [lambda client, job, trace: client._send(requests.begin_code(MANIFEST))],
    "uploadCodePart": [
        lambda client, job, trace: client._send(requests.put_code_part(MANIFEST.digest, 0, deflated(bytes(1024))))
    ],
    "getCode": [lambda client, job, trace: client.code(MANIFEST.digest)],
    "listSecrets": [lambda client, job, trace: client.secrets()],
    "setSecret": [lambda client, job, trace: client.set_secret("HF_TOKEN", "hf_abcdefgh")],
    "removeSecret": [lambda client, job, trace: client.remove_secret("HF_TOKEN")],
    "getJob": [lambda client, job, trace: client.job(job)],
    "watchJob": [lambda client, job, trace: client.events(job, "1.0.0", logs=True, rank=0, ranks=True)],
    "getMetrics": [lambda client, job, trace: client.metrics(job, since=1, max_points=10)],
    "getCurves": [lambda client, job, trace: client.curves(job, ["loss"], from_step=1, to_step=9, buckets=3)],
    "listLoggedMetrics": [lambda client, job, trace: client.logged_metrics(job, text="a", after="a", limit=5)],
    "getLoggedCurves": [lambda client, job, trace: client.logged_curves(job, ["a"], from_step=1, to_step=9, buckets=3)],
    "listLoggedNames": [lambda client, job, trace: client.logged_names([job], text="a", limit=5)],
    "listLoggedValues": [lambda client, job, trace: client.logged_values([job], ["a", "b"])],
    "getSystem": [lambda client, job, trace: client.system(job, "node/cpu", since=1.0, until=2e9, after="a")],
    "listArtifacts": [lambda client, job, trace: client.artifacts(job, prefix="n", kind="file", after="-1/a", limit=5)],
    "downloadArtifact": [lambda client, job, trace: _downloaded(client, job)],
    "getLogs": [
        lambda client, job, trace: client.logs(job, rank=0, after=1, limit=9),
        lambda client, job, trace: client.logs(job, tail=2),
        lambda client, job, trace: client.logs(job, around=2, limit=4),
    ],
    "searchLogs": [
        lambda client, job, trace: client.search_logs(
            job, "a", rank=0, level="error", since=1.0, until=2e9, stream="stdout", regex=True, after=1, limit=5
        )
    ],
    "getIncidents": [
        lambda client, job, trace: client.incidents(job, after=1, limit=5),
        lambda client, job, trace: client.incidents(job, newest=True, before=9),
    ],
    "getTimeline": [lambda client, job, trace: client.timeline(job)],
    "getStory": [lambda client, job, trace: client.history_page(job, before=9, limit=5)],
    "getSubmittedSpec": [lambda client, job, trace: client.submitted_spec(job)],
    "getPlan": [lambda client, job, trace: client.plan(job)],
    "getCheckpoints": [lambda client, job, trace: client.checkpoints(job, before=9, limit=5)],
    "listSparklines": [lambda client, job, trace: client.sparklines([job])],
    "traceJob": [lambda client, job, trace: client.trace(job, steps=2, idempotency_key="mine")],
    "profileRank": [lambda client, job, trace: client.profile(job, rank=0, kind="cpu", seconds=2, idempotency_key="p")],
    "execCommand": [lambda client, job, trace: client.execute(job, ["true"], rank=0, seconds=2, idempotency_key="x")],
    "listExecs": [lambda client, job, trace: client.execs(job, before="exec-" + "z" * 26, limit=5)],
    "listProfiles": [lambda client, job, trace: client.profiles(job, before="profile-" + "z" * 26, limit=5)],
    "listTraces": [lambda client, job, trace: client.traces(job, before=trace, limit=5)],
    "getTrace": [lambda client, job, trace: client.trace_summary(job, trace, step=5)],
    "getTraceSpans": [
        lambda client, job, trace: client.trace_spans(job, trace, step=5, ranks=[0], from_us=1, to_us=9000)
    ],
    "downloadTrace": [lambda client, job, trace: client.perfetto(job, trace)],
    "verifyCheckpoint": [lambda client, job, trace: client.verify_checkpoint(job, SAVED, idempotency_key="v")],
    "exportCheckpoint": [
        lambda client, job, trace: client.export_checkpoint(job, SAVED, dtype="bf16", idempotency_key="e")
    ],
    "pinCheckpoint": [lambda client, job, trace: client.pin_checkpoint(job, SAVED, idempotency_key="p")],
    "unpinCheckpoint": [
        lambda client, job, trace: refusal_of(lambda: client.unpin_checkpoint(job, SAVED, idempotency_key="u"))
    ],
    "listCheckpointFiles": [lambda client, job, trace: client.checkpoint_files(job, 10, after="a", limit=5)],
    "downloadCheckpointFile": [lambda client, job, trace: _fetched(client, job)],
    "createVersion": [
        lambda client, job, trace: client.create_version("nano", job, step=10, notes="one\ntwo", idempotency_key="c"),
        lambda client, job, trace: client.create_version("nano", job, artifact="notes.txt"),
    ],
    "listModels": [lambda client, job, trace: client.models(after="a", limit=5)],
    "getModel": [lambda client, job, trace: client.model("nano")],
    "listVersions": [lambda client, job, trace: client.model_versions("nano", before=9, limit=5)],
    "getVersion": [lambda client, job, trace: client.model_version("nano")],
    "setAlias": [lambda client, job, trace: client.set_alias("nano", "best", 1, expected=0)],
    "removeAlias": [lambda client, job, trace: client.remove_alias("nano", "best", expected=1)],
    "deleteVersion": [lambda client, job, trace: client.delete_version("nano", 2)],
    "getModelHistory": [lambda client, job, trace: client.model_history("nano", before=9, limit=5)],
    "listOperations": [lambda client, job, trace: client.operations(job, before="op-" + "z" * 26, limit=5)],
    "getOperation": [lambda client, job, trace: an_operation(client, job)],
    "getRanks": [lambda client, job, trace: client.ranks(job, before=9, limit=5)],
    "getResources": [lambda client, job, trace: client.resources(job)],
    "injectFault": [
        lambda client, job, trace: client.inject_fault(
            job, "slow-rank", rank=0, delay_ms=1, duration_s=1, idempotency_key="k"
        )
    ],
    "listNodes": [lambda client, job, trace: client.nodes()],
    "getClusterUse": [lambda client, job, trace: client.cluster_use("day")],
    "getDeviceTimes": [lambda client, job, trace: client.device_times("day")],
    "listPastAttempts": [
        lambda client, job, trace: client.past_attempts("day", node="n1", after=f"1.0/{job}/1", limit=5)
    ],
    "listNodeChanges": [
        lambda client, job, trace: client.node_changes("day", node="n1", after="1.0/n1/joined", limit=5)
    ],
    "getNodeUse": [lambda client, job, trace: client.node_use("n1", "day")],
    "getQueue": [lambda client, job, trace: client.queue(after=job, limit=5)],
    "listRunning": [lambda client, job, trace: client.running(after=job, limit=5)],
    "cordonNode": [lambda client, job, trace: client.cordon("n1", seconds=60, message="so")],
    "uncordonNode": [lambda client, job, trace: client.uncordon("n1")],
    "listCordons": [lambda client, job, trace: client.cordons(limit=5)],
    "getJobSchema": [lambda client, job, trace: client.job_schema("command")],
    "getServer": [lambda client, job, trace: client.server()],
    "createSignInCode": [lambda client, job, trace: client.sign_in_code()],
    "listTemplates": [lambda client, job, trace: client.templates()],
    "health": [lambda client, job, trace: client.alive()],
    "readiness": [lambda client, job, trace: client.readiness()],
    "reshardJob": [lambda client, job, trace: client.reshard(job, {"data": 2, "zero": 1})],
    "editJob": [lambda client, job, trace: client.edit(job, name="other", labels={"team": "search"}, notes="one\ntwo")],
    "resumeJob": [lambda client, job, trace: client.resume(job)],
    "pauseJob": [lambda client, job, trace: client.pause(job)],
    "cancelJob": [lambda client, job, trace: client.cancel(job)],
    "retryJob": [
        lambda client, job, trace: of_ended(client, lambda ended: client.retry(ended, idempotency_key="again"))
    ],
    "cloneJob": [lambda client, job, trace: client.clone(job, name="other", idempotency_key="clone")],
    "deleteJob": [lambda client, job, trace: of_ended(client, client.delete)],
    "undeleteJob": [lambda client, job, trace: client.undelete(job)],
}


def an_operation(client: Any, job: str) -> Any:
    """One that was asked for."""

    async def asked() -> Any:
        return await client.operation(job, (await client.operations(job)).items[0].id)

    return client.operation(job, client.operations(job).items[0].id) if isinstance(client, Client) else asked()


def of_ended(client: Any, act: Callable[[str], Any]) -> Any:
    """What comes of a job that is cancelled in the queue."""

    async def asked() -> Any:
        await client.cancel((job := await client.submit(SPEC)).id)
        return await act(job.id)

    if not isinstance(client, Client):
        return asked()
    client.cancel((job := client.submit(SPEC)).id)
    return act(job.id)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"fault_injection": True, "exec": True})


async def settled(answer: Any) -> Any:
    """What comes of it, of either client; of a stream its first event."""
    if inspect.isgenerator(answer):
        with closing(answer):
            return next(answer)
    if inspect.isasyncgen(answer):
        async with aclosing(answer):
            return await anext(answer)
    return await answer if inspect.isawaitable(answer) else answer


@pytest.mark.parametrize("kind", [Client, AsyncClient])
async def test_every_operation_can_be_asked_with_all_that_it_takes(
    kind: type[Client | AsyncClient], recorded: tuple[str, str], plane: Plane
) -> None:
    document = plane.app.openapi()
    operations = {
        operation["operationId"]: (method.upper(), re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert ASKED.keys() == operations.keys() - _FOR_BROWSERS
    sent: list[Any] = []

    def hear(request: Any) -> None:
        sent.append(request)

    async def hear_too(request: Any) -> None:
        sent.append(request)

    client: Any = kind(plane.url)
    client._http.event_hooks = {"request": [hear if kind is Client else hear_too]}
    for name, asks in ASKED.items():
        method, path, operation = operations[name]
        given: dict[str, set[str]] = defaultdict(set)
        for ask in asks:
            sent.clear()
            assert await settled(ask(client, *recorded)) is not None
            asked = sent[-1]  # a stream asks for the job's id before
            assert asked.method == method and path.fullmatch(asked.url.path), (name, asked)
            given["query"] |= set(asked.url.params)
            given["header"] |= {header.lower() for header in asked.headers}
        for taken in operation.get("parameters", []):
            if taken["in"] != "path" and taken["name"] not in _BESIDES.get(name, set()):
                assert taken["name"].lower() in given[taken["in"]], f"{name} cannot be asked with {taken['name']}"
    await settled(client.close())


async def test_both_clients_read_what_was_reported(recorded: tuple[str, str], plane: Plane, client: Client) -> None:
    job = client.job(recorded[0])
    curves = job.curves("loss,lr", buckets=4)
    assert (curves.width, curves.starts, curves.last_step) == (8, [1, 9, 17], 20)
    assert curves.series["loss"].high == [5.0, pytest.approx(5 / 9, abs=1e-5), pytest.approx(5 / 17, abs=1e-5)]
    timeline, plan = job.timeline(), job.plan()
    assert [span.state for span in timeline.spans] == ["queued", "placing", "starting", "running"]
    assert (plan.parameters, plan.train_tokens) == (7, 9000)
    history = job.history_page(limit=3)
    whole_history = [*history.items, *job.history_page(before=history.next).items]
    states = [entry.data["state"] for entry in whole_history if entry.kind == "state"]
    assert (len(history.items), states) == (3, ["running", "starting", "placing", "queued"])
    hits = job.search_logs(level="error")
    assert [line.text for line in hits.lines] == ["ERROR: out of cheese", "error: none here"]
    assert [line.text for line in job.search_logs("CHEESE", rank=1).lines] == []
    around = job.logs(around=hits.lines[0].position, limit=3)
    assert [line.position for line in around.lines] == [1, 2, 3]
    preview = client.preview({**SPEC, "train": {**SPEC["train"], "layout": {"data": 4}}})
    assert preview.world_size == 4
    [sparkline] = client.sparklines([job.id, "absent"])
    assert sparkline.job == job.id and sparkline.high[0] == 5.0
    assert client.templates()[0].name == "quickstart" and client.server().fault_injection
    assert next(event for event in job.events(job.cursor, ranks=True)).kind == "rank_metrics"
    async with AsyncClient(plane.url) as other:
        same = await other.job(job.id)
        assert await same.curves(["loss", "lr"], buckets=4) == curves
        assert (await same.timeline(), await same.plan(), await same.history_page(limit=3)) == (timeline, plan, history)
        assert await same.search_logs(level="error") == hits
        assert await same.logs(around=hits.lines[0].position, limit=3) == around
        assert await other.preview({**SPEC, "train": {**SPEC["train"], "layout": {"data": 4}}}) == preview
        assert await other.sparklines([job.id]) == [sparkline]


async def test_a_search_goes_on_from_page_to_page(recorded: tuple[str, str], plane: Plane, client: Client) -> None:
    pages = list(client.search_pages(recorded[0], level="error", limit=1))
    assert [[line.text for line in page.lines] for page in pages] == [["ERROR: out of cheese"], ["error: none here"]]
    assert [page.done for page in pages] == [False, True]
    async with AsyncClient(plane.url) as other:
        assert [page async for page in other.search_pages(recorded[0], level="error", limit=1)] == pages


async def test_a_series_that_there_is_not(recorded: tuple[str, str], client: Client) -> None:
    with pytest.raises(ApiError) as refused:
        client.curves(recorded[0], "lost")
    assert refused.value.errors[0].field == "names" and "loss" in (refused.value.errors[0].remedy or "")
