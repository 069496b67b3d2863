"""The Python client against a served API: live events without gap or double, over lost connections and restarts."""

import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from harness.patience import PATIENCE_S

from shardyard.api.client import ApiError, Client, Event, Unreachable, WaitTimeout
from shardyard.api.client.transport import Call
from shardyard.service.spec import JobSpec

from ...conftest import SIGNED, SPEC, Gang, Plane, ask, step, until


class Watcher:
    """Gathers a job's events in a thread of its own."""

    def __init__(self, client: Client, job: str, **options: Any) -> None:
        self.events: list[Event] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._watch, args=(client, job, options), daemon=True)
        self._thread.start()

    def _watch(self, client: Client, job: str, options: dict[str, Any]) -> None:
        try:
            for event in client.events(job, **options):
                self.events.append(event)
        except BaseException as error:
            self.error = error

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def done(self) -> list[Event]:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert self.error is None
        return self.events


def test_submit_takes_models_mappings_and_files(client: Client, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    jobs = [
        client.submit(SPEC),
        client.submit(JobSpec.model_validate(SPEC)),
        client.submit(tmp_path / "spec.yaml"),
        client.submit(str(tmp_path / "spec.yaml")),
    ]
    assert len({job.id for job in jobs}) == 4
    assert all(job.spec == jobs[0].spec for job in jobs)
    assert [job.id for job in client.jobs(label={"team": "search"}).items] == [job.id for job in jobs][::-1]


def test_a_key_of_ones_own_gives_one_job(client: Client) -> None:
    assert client.submit(SPEC, idempotency_key="k").id == client.submit(SPEC, idempotency_key="k").id
    with pytest.raises(ApiError) as refusal:
        client.submit({**SPEC, "name": "other"}, idempotency_key="k")
    assert (refusal.value.code, refusal.value.status) == ("idempotency_conflict", 409)


def test_refusals_are_typed(client: Client, tmp_path: Path) -> None:
    with pytest.raises(ApiError) as refusal:
        client.submit({**SPEC, "polcy": 1})
    assert (refusal.value.code, refusal.value.errors[0].field) == ("invalid_spec", "polcy")
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(ApiError) as local:
        client.submit(tmp_path / "bad.yaml")
    assert (local.value.code, local.value.status) == ("invalid_syntax", None)


def test_nan_reaches_the_server_and_is_refused_there(client: Client) -> None:
    with pytest.raises(ApiError) as refusal:
        client.submit({**SPEC, "train": {**SPEC["train"], "optimizer": {"lr": float("nan")}}})
    assert refusal.value.errors[0].field == "train.optimizer.lr"


def test_nothing_listens() -> None:
    with Client("http://127.0.0.1:1") as client:
        with pytest.raises(Unreachable) as refusal:
            client.jobs()
        assert "shardyard up" in (refusal.value.errors[0].remedy or "")
        assert not client.alive()


@pytest.mark.parametrize("url", ["nonsense", "ftp://x", "http://"])
def test_an_impossible_url(url: str) -> None:
    with pytest.raises(ApiError, match="not an http"):
        Client(url)


def test_another_users_server_is_recognised(plane: Plane) -> None:
    with Client(plane.url) as client, pytest.raises(ApiError) as refusal:
        client._send(Call("GET", "/jobs", dict))  # the dashboard's page
    assert refusal.value.code == "not_shardyard"


def test_events_come_live_and_end(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    watcher = Watcher(client, job.id)
    until(lambda: len(watcher.events) == 1)
    gang = Gang(plane, job.id)
    gang.state("running")
    gang.steps(1, 3)
    until(lambda: len(watcher.of("step")) == 3)
    gang.steps(4, 20)
    gang.succeed()
    events = watcher.done()
    assert [event.data["step"] for event in watcher.of("step")] == list(range(1, 21))
    states = [event.data["state"] for event in watcher.of("state")]
    assert states == ["queued", "placing", "starting", "running", "succeeded"]
    assert all(event.ts for event in events)
    assert len({event.cursor for event in events}) == len(events)
    until(lambda: plane.app.state.context.hub.watched == 0)


@pytest.mark.parametrize("split", [1, 4, 9])
def test_a_stream_resumes_after_any_event(plane: Plane, client: Client, split: int) -> None:
    job = client.submit(SPEC)
    gang = Gang(plane, job.id)
    gang.state("running")
    for first in (1, 4, 7):
        gang.steps(first, first + 2)
        gang.log(0, first, "a", "b", "c")
    gang.succeed()
    whole = list(client.events(job.id, logs=True))
    resumed = list(client.events(job.id, whole[split].cursor, logs=True))
    assert [(event.kind, event.data) for event in resumed] == [(e.kind, e.data) for e in whole[split + 1 :]]
    assert [event.kind for event in client.events(job.id)] == [e.kind for e in whole if e.kind != "log"]


def test_a_restarted_control_plane_is_borne_without_gap_or_double(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    gang = Gang(plane, job.id)
    lost: list[ApiError] = []
    watcher = Watcher(client, job.id, on_lost=lost.append)
    gang.steps(1, 5)
    until(lambda: len(watcher.of("step")) == 5)
    plane.stop()
    until(lambda: bool(lost))
    plane.start()
    gang.steps(6, 9)
    until(lambda: len(watcher.of("step")) == 9)
    plane.stop()
    plane.start()
    gang.steps(10, 20)
    gang.succeed()
    watcher.done()
    assert [event.data["step"] for event in watcher.of("step")] == list(range(1, 21))
    assert lost
    assert client.wait(job.id, PATIENCE_S).state == "succeeded"


def test_patience_ends(plane: Plane) -> None:
    with Client(plane.url, patience_s=0.5) as client:
        job = client.submit(SPEC)
        watcher = Watcher(client, job.id)
        until(lambda: len(watcher.events) == 1)
        plane.stop()
        until(lambda: watcher.error is not None)
        assert isinstance(watcher.error, Unreachable)


def test_a_watcher_that_goes_away_is_forgotten(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    hub = plane.app.state.context.hub
    with (
        httpx2.Client(timeout=PATIENCE_S, headers=SIGNED) as http,
        http.stream("GET", f"{plane.url}/v1/jobs/{job.id}/events") as answer,
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()  # kept: with its iterator the answer is closed
        next(lines)
        until(lambda: hub.watched == 1)
    until(lambda: hub.watched == 0)
    until(lambda: not hub.polling)


def test_last_event_id_goes_before_after(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    client.cancel(job.id)
    address = f"{plane.url}/v1/jobs/{job.id}/events?after=0.0.0"
    text = ask("GET", address, headers={"Last-Event-ID": "1.0.0"}, timeout=PATIENCE_S).text
    assert text.count("event: state") == 1
    assert '"cancelled"' in text
    assert text.rstrip().endswith("id: 2.0.0")


def test_a_server_that_stops_does_not_wait_for_watchers(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    with (
        httpx2.Client(timeout=PATIENCE_S, headers=SIGNED) as http,
        http.stream("GET", f"{plane.url}/v1/jobs/{job.id}/events") as answer,
    ):
        lines = answer.iter_lines()  # kept: with its iterator the answer is closed
        next(lines)
        plane.stop()  # which fails where the server does not end


def test_metrics_keep_the_extremes(plane: Plane, client: Client) -> None:
    job = client.submit({**SPEC, "train": {**SPEC["train"], "steps": 400}})
    gang = Gang(plane, job.id)
    gang.steps(1, 200)
    gang.emit(("step", {**step(201), "loss": 99.0}), ("eval", {"step": 201, "loss": 2.0, "unigram_loss": 3.0}))
    gang.steps(202, 400)
    found = client.metrics(job.id, max_points=20)
    assert found.downsampled
    assert len(found.points) <= 20
    assert {99.0, 5.0 / 400} <= {point.loss for point in found.points}
    assert found.last_step == 400
    assert found.evals[0].loss == 2.0
    late = client.metrics(job.id, since=395)
    assert [point.step for point in late.points] == [396, 397, 398, 399, 400]
    assert not late.downsampled


def test_logs_by_rank_and_place(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    gang = Gang(plane, job.id)
    for number in range(1, 6):
        gang.log(0, number, f"zero {number}")
        gang.log(1, number, f"one {number}")
    assert [line.text for line in client.logs(job.id, rank=1, tail=2).lines] == ["one 4", "one 5"]
    first = client.logs(job.id, limit=3)
    assert first.next is not None
    rest = client.logs(job.id, after=first.next)
    assert len({line.position for line in [*first.lines, *rest.lines]}) == 10
    assert rest.next is None
    followed: list[str] = []

    def follow() -> None:
        for page in client.log_pages(job.id, rank=0, follow=True, pause_s=0.05):
            followed.extend(line.text for line in page.lines)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    until(lambda: len(followed) == 5)
    gang.log(0, 6, "zero 6")
    gang.succeed()
    thread.join(PATIENCE_S)
    assert followed == [f"zero {number}" for number in range(1, 7)]


def test_wait_and_story(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    with pytest.raises(WaitTimeout):
        client.wait(job.id, 0.1)
    gang = Gang(plane, job.id)
    gang.steps(1, 20)
    gang.succeed()
    ended = client.wait(job.id, PATIENCE_S)
    assert ended.summary is not None
    assert ended.summary.unigram_loss == 3.0
    assert ended.progress is not None
    assert ended.progress.step == 20
    reported = [event.data["state"] for event in client.past_events(ended) if event.kind == "state"]
    assert (reported[0], reported[-1]) == ("queued", "succeeded")
    assert {event.kind for event in client.past_events(ended)} == {"state", "summary"}
    with pytest.raises(ApiError) as refusal:
        client.cancel(job.id)
    assert (refusal.value.code, refusal.value.status) == ("job_ended", 409)


def test_nodes_and_readiness(plane: Plane, client: Client) -> None:
    Gang(plane, client.submit(SPEC).id)
    assert [node.host for node in client.nodes()] == ["here"]
    assert client.readiness().status == "ready"


def test_a_sender_that_goes_away_hurts_no_other(plane: Plane, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    host, port = plane.url.removeprefix("http://").split(":")
    headers = {"Host": "127.0.0.1", **SIGNED, "Content-Type": "application/json", "Content-Length": "100"}
    head = "POST /v1/jobs HTTP/1.1\r\n" + "".join(f"{name}: {text}\r\n" for name, text in headers.items()) + "\r\n{"
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as sender:
        sender.sendall(head.encode())
        time.sleep(0.2)
    time.sleep(0.2)
    assert client.jobs().items == []
    assert "internal" not in caplog.text and "Exception" not in caplog.text


def test_ten_megabytes_are_refused_over_a_real_connection(client: Client) -> None:
    with pytest.raises(ApiError) as refusal:
        client.submit({**SPEC, "labels": {"a": "x" * (10 << 20)}})
    assert (refusal.value.code, refusal.value.status) == ("spec_too_large", 413)
