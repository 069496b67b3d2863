"""Logged files over HTTP: whole or in ranges, by headers that no browser can be tricked with; and by the real clients and commands."""

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import ApiError, AsyncClient, Client
from shardyard.service.queries import stored_file as reading
from shardyard.workers.messages.artifact import Artifact
from shardyard.workers.messages.event import ArtifactsEvent, to_json

from ..conftest import SPEC, Gang, Plane, ask, problem

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
TEXT = bytes(range(256)) * 9000  # more than two blocks


@pytest.fixture
def job(plane: Plane, client: Client) -> str:
    """A job whose program logged an image at two steps, a table, an empty file, files in a folder, and one with and without a step."""
    job = client.submit(SPEC).id
    folder = Path(plane.settings.artifacts(job))
    folder.mkdir(parents=True)

    def kept(name: str, content: bytes, **known: Any) -> Artifact:
        digest = hashlib.sha256(content).hexdigest()
        (folder / digest).write_bytes(content)
        return Artifact(name=name, bytes=len(content), sha256=digest, **known)

    files = (
        kept("samples", PNG, step=1, type="image", media_type="image/png"),
        kept("samples", PNG + b"2", step=20, type="image", media_type="image/png"),
        kept("table ü", b"a,b\r\n1,2\r\n", type="table", media_type="text/csv"),
        kept("run/page.html", b"<script>alert(1)</script>"),
        kept("run/empty", b""),
        kept("run/log.txt", TEXT),
        kept("run/model", b"of step 7", step=7),
        kept("run/model", b"of the run"),
    )
    gang = Gang(plane, job)
    gang.state("starting")
    gang.emit(("artifacts", to_json(ArtifactsEvent(rank=1, generation=1, artifacts=files))))
    return job


def get(plane: Plane, job: str, name: str, **given: Any) -> httpx2.Response:
    return ask("GET", f"{plane.url}/v1/jobs/{job}/artifacts/{name}", **given)


def test_a_file_is_sent_whole_or_in_one_range(plane: Plane, job: str) -> None:
    whole = get(plane, job, "run/log.txt")
    assert (whole.status_code, whole.content, whole.headers["content-length"]) == (200, TEXT, str(len(TEXT)))
    tag = whole.headers["etag"]
    assert tag == f'"{hashlib.sha256(TEXT).hexdigest()}"' and whole.headers["accept-ranges"] == "bytes"
    part = get(plane, job, "run/log.txt", headers={"Range": "bytes=1048570-1048580"})
    assert (part.status_code, part.content) == (206, TEXT[1048570:1048581])
    assert part.headers["content-range"] == f"bytes 1048570-1048580/{len(TEXT)}"
    changed = get(plane, job, "run/log.txt", headers={"Range": "bytes=5-", "If-Range": '"other"'})
    assert (changed.status_code, changed.content) == (200, TEXT)
    beyond = get(plane, job, "run/log.txt", headers={"Range": f"bytes={len(TEXT)}-"})
    assert problem(beyond, 416, "range_not_satisfiable") and beyond.headers["content-range"] == f"bytes */{len(TEXT)}"
    assert get(plane, job, "run/log.txt", headers={"If-None-Match": tag}).status_code == 304
    assert get(plane, job, "run/empty").content == b""


def test_a_step_is_chosen_and_the_newest_is_sent_without_one(plane: Plane, job: str) -> None:
    assert get(plane, job, "samples").content == PNG + b"2"
    assert get(plane, job, "samples", params={"step": 1}).content == PNG
    assert problem(get(plane, job, "samples", params={"step": 2}), 404, "artifact_not_found")
    assert get(plane, job, "run/model", params={"step": 7}).content == b"of step 7"
    assert get(plane, job, "run/model").content == b"of the run", "a file without a step can be had, too"


def test_only_the_content_that_is_named_is_sent(plane: Plane, job: str) -> None:
    digest = hashlib.sha256(PNG).hexdigest()
    assert get(plane, job, "samples", params={"step": 1, "sha256": digest}).content == PNG
    other = get(plane, job, "samples", params={"step": 20, "sha256": digest})
    assert problem(other, 404, "artifact_not_found"), "as after the name was logged again"
    assert problem(get(plane, job, "samples", params={"sha256": "no"}), 422, "invalid_request")


def test_nothing_that_holds_a_script_is_shown_in_place(plane: Plane, job: str) -> None:
    image, page, table = (get(plane, job, name) for name in ("samples", "run/page.html", "table ü"))
    assert image.headers["content-type"] == "image/png" and image.headers["content-disposition"].startswith("inline;")
    assert page.headers["content-type"] == "application/octet-stream"
    assert page.headers["content-disposition"].startswith('attachment; filename="page.html"')
    assert "filename=\"table _.csv\"; filename*=UTF-8''table%20%C3%BC.csv" in table.headers["content-disposition"]
    for answer in (image, page, table):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize("name", ["..%2f..%2fetc%2fpasswd", "%2e%2e/x", "no", "a%00b", "run"])
def test_a_name_is_looked_up_and_never_a_path(plane: Plane, job: str, name: str) -> None:
    assert get(plane, job, name).status_code == 404


def test_a_file_that_is_gone_from_storage_is_no_empty_file(plane: Plane, job: str) -> None:
    (Path(plane.settings.artifacts(job)) / hashlib.sha256(PNG).hexdigest()).unlink()
    assert problem(get(plane, job, "samples", params={"step": 1}), 503, "artifact_storage_failed")


def test_a_cursor_that_is_none_is_refused(plane: Plane, job: str) -> None:
    answer = ask("GET", f"{plane.url}/v1/jobs/{job}/artifacts", params={"after": "x"})
    assert problem(answer, 400, "invalid_cursor")


def test_a_download_that_broke_off_continues(
    plane: Plane, job: str, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends within the file; the client requests the rest."""
    usual, broken = reading._block, list[int]()

    async def breaks(folder: Any, content: Any, start: int, end: int) -> bytes:
        if start > reading.BLOCK_BYTES and not broken:
            broken.append(start)
            raise OSError
        return await usual(folder, content, start, end)

    monkeypatch.setattr(reading, "_block", breaks)
    asked: list[httpx2.Request] = []
    client._http.event_hooks = {"request": [asked.append]}
    place = client.job(job).download_artifact("run/log.txt", tmp_path / "new" / "log.txt")
    assert place.read_bytes() == TEXT and broken
    assert [request.headers.get("Range") for request in asked if "/artifacts/" in request.url.path][1] is not None
    assert [file.name for file in place.parent.iterdir()] == ["log.txt"]


@pytest.mark.full
def test_a_download_may_break_off_often_while_it_goes_on(
    plane: Plane, job: str, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of 100 GB through a proxy that ends each connection after a minute. A request has five tries."""
    monkeypatch.setattr(reading, "BLOCK_BYTES", 1 << 18)
    usual, broken = reading._block, []

    async def breaks(reads: Any, content: Any, start: int, end: int) -> bytes:
        if start and start not in broken:
            broken.append(start)
            raise OSError
        return await usual(reads, content, start, end)

    monkeypatch.setattr(reading, "_block", breaks)
    place = client.job(job).download_artifact("run/log.txt", tmp_path / "log.txt")
    assert place.read_bytes() == TEXT and len(broken) > 5


async def test_a_part_of_another_file_is_not_kept(plane: Plane, job: str, tmp_path: Path) -> None:
    """A damaged part is found by its SHA-256; the next download is whole."""
    tmp_path = tmp_path / "to"
    tmp_path.mkdir()
    digest = hashlib.sha256(TEXT).hexdigest()
    (tmp_path / f".{digest[:32]}.partial").write_bytes(b"damaged")
    async with AsyncClient(plane.url) as client:
        with pytest.raises(ApiError) as refused:
            await client.download_artifact(job, "run/log.txt", tmp_path)
        assert refused.value.code == "artifact_damaged" and not list(tmp_path.iterdir())
        assert (await client.download_artifact(job, "run/log.txt", tmp_path)).read_bytes() == TEXT


def test_a_command_lists_and_downloads(
    plane: Plane, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, tmp_path = ["--url", plane.url], tmp_path / "to"
    assert run(["artifacts", job, *url]) == 0
    assert "run/page.html" in (shown := capsys.readouterr().out) and "samples" in shown
    assert run(["artifacts", job, "--all", "--to", str(tmp_path), *url]) == 0
    placed = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert placed == {
        "samples.step-1.png",
        "samples.step-20.png",
        "table ü.csv",
        "run/page.html",
        "run/empty",
        "run/log.txt",
        "run/model",
        "run/model.step-7",
    }
    assert (tmp_path / "run/model").read_bytes() == b"of the run"
    capsys.readouterr()
    two = ["--to", str(tmp_path / "two"), "--json", *url]
    for name, asked, step in (
        ("samples", [], 20),
        ("samples", ["--step", "1"], 1),
        ("run/model", [], None),
        ("run/model", ["--step", "7"], 7),
    ):
        assert run(["artifacts", job, "--download", name, *asked, *two]) == 0
        assert [one["step"] for one in json.loads(capsys.readouterr().out)] == [step]
    assert run(["artifacts", job, "--download", "samples", "--step", "2", *two]) == 1
    assert "at step 2" in capsys.readouterr().err
    assert run(["artifacts", job, "--all", "--step", "1", *url]) == 1
    assert "--download names" in capsys.readouterr().err
    assert run(["artifacts", job, "--download", "samples", "--all", *url]) == 1
    assert "takes one file" in capsys.readouterr().err
    assert run(["artifacts", job, "--download", "no", "--to", str(tmp_path / "two"), *url]) != 0
    assert "shardyard artifacts JOB" in capsys.readouterr().err
