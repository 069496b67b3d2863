"""Files of checkpoints over HTTP: what a manifest names, whole or in ranges, and nothing else; by the real clients and commands."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import httpx2
import pytest
from harness.stored_checkpoints import FILE, checkpoint_path, flip_checkpoint_bit, save_checkpoint

from shardyard.api.cli.main import run
from shardyard.api.client import ApiError, AsyncClient, Client
from shardyard.service.queries import checkpoint_files, checkpoint_lists, storage_reads
from shardyard.workers.checkpoint.inspect import inspect_checkpoint
from shardyard.workers.checkpoint.manifest import File, Manifest, digest, write
from shardyard.workers.checkpoint.program_files import Source, publish, write_part
from shardyard.workers.checkpoint.retention import folder
from shardyard.workers.storage.local_folder import LocalFolder
from shardyard.workers.storage.open_folder import folder_at

from ..conftest import SPEC, Gang, Plane, ask, problem

WEIGHTS = bytes(range(256)) * 9000  # more than two blocks
PROGRAM: dict[str, Any] = {"name": "mine", "command": "true", "ranks": 2}


def root_of(plane: Plane, job: str) -> Path:
    return Path(plane.settings.storage) / job


@pytest.fixture
def job(plane: Plane, client: Client) -> str:
    """A training job that saved at step 10, removed step 5, and reported a checkpoint of step 15 that is not in the storage."""
    job = client.submit(SPEC).id
    gang = Gang(plane, job)
    gang.state("starting")
    save_checkpoint(root_of(plane, job), 10, WEIGHTS)
    for step in (5, 10, 15):
        gang.emit(("checkpoint", {"step": step, "path": "/elsewhere", "kept": [step] if step == 10 else None}))
    return job


def program_job(plane: Plane, client: Client, *parts: dict[str, bytes]) -> str:
    """A program whose ranks saved these files at step 7."""
    job = client.submit(PROGRAM).id
    root, place = folder_at(str(root_of(plane, job))), plane.settings.data_dir / "files"
    saved = []
    for rank, files in enumerate(parts):
        sources = []
        for number, (path, content) in enumerate(files.items()):
            place.mkdir(exist_ok=True)
            (place / f"{rank}-{number}").write_bytes(content)
            sources.append(Source(path, place / f"{rank}-{number}"))
        saved.append(write_part(folder(root, 7), rank, sources))
    publish(root, 7, "files", saved, 5, ())
    Gang(plane, job).emit(("checkpoint", {"step": 7, "path": "/elsewhere"}))
    return job


def get(plane: Plane, job: str, path: str = "", step: int = 10, **given: Any) -> httpx2.Response:
    return ask("GET", f"{plane.url}/v1/jobs/{job}/checkpoints/{step}/files{path}", **given)


def test_files_are_listed_and_sent_whole_or_in_one_range(plane: Plane, job: str) -> None:
    found = get(plane, job).json()
    files = {one["path"]: one for one in found["items"]}
    assert list(files) == ["manifest.json", FILE] and files[FILE]["bytes"] == len(WEIGHTS)
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    assert files[FILE]["sha256"] == digest and len(found["digest"]) == 64
    first = get(plane, job, params={"limit": 1}).json()
    assert get(plane, job, params={"after": first["next"]}).json()["items"] == [files[FILE]]
    whole = get(plane, job, f"/{FILE}")
    assert (whole.status_code, whole.content, whole.headers["etag"]) == (200, WEIGHTS, f'"{digest}"')
    assert whole.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert whole.headers["content-disposition"].startswith(f'attachment; filename="{FILE}"')
    for tags, status in ((f'"x", W/"{digest}"', 304), ("*", 304), (f'"{digest}-"', 200)):
        assert get(plane, job, f"/{FILE}", headers={"If-None-Match": tags}).status_code == status
    part = get(plane, job, f"/{FILE}", headers={"Range": "bytes=1048570-1048580"})
    assert (part.status_code, part.content) == (206, WEIGHTS[1048570:1048581])
    beyond = get(plane, job, f"/{FILE}", headers={"Range": f"bytes={len(WEIGHTS)}-"})
    assert problem(beyond, 416, "range_not_satisfiable")
    manifest = get(plane, job, "/manifest.json")
    assert hashlib.sha256(manifest.content).hexdigest() == files["manifest.json"]["sha256"]


def test_what_is_not_there_says_so(plane: Plane, job: str) -> None:
    assert problem(get(plane, job, "/other"), 404, "checkpoint_file_not_found")
    assert problem(get(plane, job, step=11), 404, "checkpoint_not_found")
    assert problem(get(plane, job, step=5), 409, "checkpoint_deleted")
    assert problem(get(plane, job, step=15), 503, "checkpoint_storage_failed")
    assert problem(get(plane, "absent"), 404, "job_not_found")


def test_a_path_is_looked_up_and_never_opened(plane: Plane, job: str) -> None:
    for path in ("/..%2f..%2fetc%2fpasswd", "/%2e%2e/x", "/a%00b", "//etc/passwd"):
        assert get(plane, job, path).status_code == 404


def test_a_manifest_leads_to_no_file_outside_its_folder(plane: Plane, job: str) -> None:
    """A program can write where its checkpoints are: also a manifest of its own, and links."""
    root = root_of(plane, job)
    secret = plane.settings.data_dir / "secret"
    secret.write_bytes(b"a secret")
    path = folder_at(str(checkpoint_path(root, 10)))
    listed = File(8, hashlib.sha256(b"a secret").hexdigest(), ())
    for name in ("../../../secret", str(secret), "..", "a/b", ""):
        write(path, Manifest(10, {}, {}, {name: listed}))
        assert problem(get(plane, job), 409, "checkpoint_corrupt"), name
    (checkpoint_path(root, 10) / "link").symlink_to(secret)
    os.mkfifo(checkpoint_path(root, 10) / "pipe")
    write(path, Manifest(10, {}, {}, {"link": listed, "pipe": listed}))
    for name in ("link", "pipe"):
        assert problem(get(plane, job, f"/{name}"), 503, "checkpoint_storage_failed"), name
    moved = checkpoint_path(root, 10).rename(plane.settings.data_dir / "elsewhere")
    checkpoint_path(root, 10).symlink_to(moved)
    (moved / "plain").write_bytes(b"a secret")
    write(path, Manifest(10, {}, {}, {"plain": listed}))
    assert problem(get(plane, job, "/plain"), 503, "checkpoint_storage_failed")
    checkpoint_path(root, 10).unlink()
    moved.rename(checkpoint_path(root, 10))
    assert get(plane, job, "/plain").content == b"a secret"
    for paths in ({"../x": "link"}, {"/x": "link"}, {"x": "../secret"}, {"x": "missing"}, {"a//b": "link"}):
        training = {"program": {"kind": "files", "parts": [{"rank": 0, "paths": paths}]}}
        write(path, Manifest(10, training, {}, {"link": listed}))
        assert problem(get(plane, job), 409, "checkpoint_corrupt"), paths
    for size, sha256 in ((-1, listed.sha256), (8, "\r\n"), (8, "")):
        write(path, Manifest(10, {}, {}, {"link": File(size, sha256, ())}))
        assert problem(get(plane, job), 409, "checkpoint_corrupt"), (size, sha256)
    signed = json.dumps({"format": 3, "sha256": digest({"format": 3})})
    for text in ("", "{}", '{"a":' * 5000, signed):
        (checkpoint_path(root, 10) / "manifest.json").write_text(text)
        assert problem(get(plane, job), 409, "checkpoint_corrupt"), text


def test_a_manifest_of_any_size_does_not_fill_the_server(
    plane: Plane, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_files, "MOST_BYTES", 10)
    assert "copy" in problem(get(plane, job), 503, "checkpoint_storage_failed")["detail"]


def test_a_manifest_that_takes_more_memory_than_is_left_is_an_error_of_its_request_alone(
    plane: Plane, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own checksum is right, and each of its empty lists takes thirty times the bytes that it has here."""
    monkeypatch.setattr(checkpoint_lists, "_MOST_MEMORY", 128 << 20)
    body = {"format": 3, "step": 10, "training": {"x": [[]] * 1_900_000}, "tensors": {}, "files": {}}
    text = json.dumps({**body, "sha256": digest(body)}, separators=(",", ":"))
    (checkpoint_path(root_of(plane, job), 10) / "manifest.json").write_text(text)
    refused = problem(get(plane, job), 503, "checkpoint_storage_failed")
    assert "128 MiB to parse it" in refused["detail"] and "api.resources.limits.memory" in str(refused["errors"])
    save_checkpoint(root_of(plane, job), 10, b"again")
    assert get(plane, job, f"/{FILE}").content == b"again"


def test_a_manifest_is_read_once_for_all_files_until_the_step_is_saved_again(
    plane: Plane, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint of 50,000 files would be listed and parsed as often."""
    parsed, usual = list[str](), checkpoint_lists.listed

    def noted(where: str, content: bytes) -> checkpoint_lists.Listing:
        parsed.append(where)
        return usual(where, content)

    monkeypatch.setattr(checkpoint_lists, "listed", noted)
    monkeypatch.delattr(LocalFolder, "files")
    for _ in range(3):
        assert get(plane, job, f"/{FILE}").content == WEIGHTS
    assert len(parsed) == 1
    save_checkpoint(root_of(plane, job), 10, b"again")
    assert get(plane, job, f"/{FILE}").content == b"again" and len(parsed) == 2


def test_a_training_checkpoint_is_one_wherever_it_is_downloaded_to(
    plane: Plane, job: str, client: Client, tmp_path: Path
) -> None:
    to = tmp_path / "taken"
    placed = client.job(job).download_checkpoint(10, to)
    assert {path.name for path in placed} == {path.name for path in to.iterdir()} == {FILE, "manifest.json"}
    assert inspect_checkpoint(str(to), verify=True).verdict == "valid"


def test_a_program_gets_its_own_paths(plane: Plane, client: Client, tmp_path: Path) -> None:
    alone = program_job(plane, client, {"a/model ü.bin": b"one", "a/same": b"one", "empty": b""})
    client.download_checkpoint(alone, 7, tmp_path / "alone")
    assert (tmp_path / "alone" / "a" / "model ü.bin").read_bytes() == b"one"
    assert (tmp_path / "alone" / "empty").read_bytes() == b""
    to = tmp_path / "alone"
    names = sorted(str(path.relative_to(to)) for path in to.rglob("*") if path.is_file())
    assert names == ["a/model ü.bin", "a/same", "empty"]


@pytest.mark.full
def test_a_path_that_is_no_text_is_listed_and_sent(plane: Plane, client: Client, tmp_path: Path) -> None:
    job = program_job(plane, client, {os.fsdecode(b"a\xff"): b"one"})
    assert [one.path for one in client.checkpoint_files(job, 7).items] == ["a\\xff"]
    (placed,) = client.download_checkpoint(job, 7, tmp_path)
    assert placed.read_bytes() == b"one"


def test_files_of_several_ranks_have_folders(plane: Plane, client: Client) -> None:
    both = program_job(plane, client, {"x": b"0"}, {"x": b"1"})
    assert [one.path for one in client.checkpoint_files(both, 7).items] == ["rank-00000/x", "rank-00001/x"]


async def test_a_download_continues_and_what_is_there_is_not_requested_again(
    plane: Plane, job: str, client: Client, tmp_path: Path
) -> None:
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    (tmp_path / f".{digest[:32]}.partial").write_bytes(WEIGHTS[:1_500_000])
    asked: list[httpx2.Request] = []

    async def note(request: httpx2.Request) -> None:
        asked.append(request)

    async with AsyncClient(plane.url) as other:
        other._http.event_hooks = {"request": [note]}
        await other.download_checkpoint(job, 10, tmp_path)
        assert [one.headers["Range"] for one in asked if "Range" in one.headers] == ["bytes=1500000-"]
        assert (tmp_path / FILE).read_bytes() == WEIGHTS
        asked.clear()
        await other.download_checkpoint(job, 10, tmp_path)
        assert len(asked) == 2, "the job and the list alone"
        (tmp_path / FILE).write_bytes(b"changed")
        await other.download_checkpoint(job, 10, tmp_path)
        assert (tmp_path / FILE).read_bytes() == WEIGHTS
        with pytest.raises(ApiError) as refused:
            await other.download_checkpoint(job, 10, tmp_path, digest="0" * 64)
        assert refused.value.code == "checkpoint_changed"


def test_a_download_that_broke_off_leaves_no_manifest_of_another_checkpoint(
    plane: Plane, job: str, client: Client, tmp_path: Path
) -> None:
    """Such as of the version that an alias named before."""
    to = tmp_path / "to"
    client.download_checkpoint(job, 10, to)
    save_checkpoint(root_of(plane, job), 10, WEIGHTS[::-1])
    flip_checkpoint_bit(root_of(plane, job), 10)
    with pytest.raises(ApiError):
        client.download_checkpoint(job, 10, to)
    assert [path.name for path in to.iterdir()] == [FILE], "an incomplete folder has no manifest"


def test_damaged_files_do_not_arrive(plane: Plane, job: str, client: Client, tmp_path: Path) -> None:
    flip_checkpoint_bit(root_of(plane, job), 10)
    with pytest.raises(ApiError) as refused:
        client.download_checkpoint(job, 10, tmp_path / "to")
    assert refused.value.code == "artifact_damaged" and not list((tmp_path / "to").iterdir())


async def test_storage_that_fails_is_reported_after_one_request(plane: Plane, job: str, tmp_path: Path) -> None:
    """The server retries a bucket for longer than a client waits for other answers, and has 16 turns for that."""
    (checkpoint_path(root_of(plane, job), 10) / FILE).unlink()
    asked: list[httpx2.Request] = []

    async def note(request: httpx2.Request) -> None:
        if "/checkpoints/" in request.url.path:
            asked.append(request)

    async with AsyncClient(plane.url) as other:
        other._http.event_hooks = {"request": [note]}
        with pytest.raises(ApiError) as refused:
            await other.download_checkpoint(job, 10, tmp_path)
        assert (refused.value.code, len(asked)) == ("checkpoint_storage_failed", 2)
        with pytest.raises(ApiError) as refused:
            await other.checkpoint_files(job, 15)
        assert (refused.value.code, len(asked)) == ("checkpoint_storage_failed", 3)
    assert all(one.extensions["timeout"]["read"] > storage_reads.LIMIT_S for one in asked)


def test_a_command_downloads(plane: Plane, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = ["--url", plane.url]
    assert run(["checkpoints", job, "--download", "10", "--to", str(tmp_path / "it"), "--json", *url]) == 0
    placed = json.loads(capsys.readouterr().out)
    assert sorted(Path(path).name for path in placed) == ["manifest.json", FILE]
    assert (tmp_path / "it" / FILE).read_bytes() == WEIGHTS
    assert run(["checkpoints", job, "--to", str(tmp_path), *url]) == 1
    assert run(["checkpoints", job, "--download", "10", "--to", str(tmp_path / "other"), "--pin", "11", *url]) == 1
    assert not (tmp_path / "other").exists(), "a pin beside a download is made, too"
    assert run(["checkpoints", job, "--download", "11", *url]) == 1
    assert "no checkpoint of step 11" in capsys.readouterr().err
