"""A folder of code from a real client to a real server: after a cut the upload continues, into a folder or a bucket."""

import asyncio
import errno
import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

from shardyard.api.client import ApiError, AsyncClient, Client, clone_requests
from shardyard.api.client.transport import Call, Unreachable
from shardyard.service.errors import CodeStorageFailed
from shardyard.service.jobs import code_archives
from shardyard.service.jobs.code_archives import CodeStorage
from shardyard.service.schemas.code import CodeArchive
from shardyard.workers.code_archive import MANIFEST, PART_BYTES, part_name
from shardyard.workers.program.program import Code
from shardyard.workers.program.working_copy import working_copy
from shardyard.workers.storage.open_folder import folder_at

from ..conftest import Plane


def spec(folder: Path) -> dict[str, object]:
    return {"name": "shipped", "command": ["true"], "code": {"dir": str(folder)}}


def with_random_bytes(folder: Path, size: int) -> None:
    folder.mkdir()
    (folder / "train.py").write_text("print(1)")
    with (folder / "big.bin").open("wb") as file:
        for _ in range(size >> 20):
            file.write(os.urandom(1 << 20))


def unpacked(plane: Plane, archive: CodeArchive, cache: Path) -> set[str]:
    """What a node finds in its copy."""
    [at] = folder_at(plane.settings.storage + "/code").folders()
    with working_copy(Code(f"{plane.settings.storage}/code/{at}", archive.id), "job-a", cache, lambda: False) as copy:
        return {path.name for path in copy.iterdir()}


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(3 * PART_BYTES, id="12MiB"),
        pytest.param(1 << 30, id="1GiB", marks=[pytest.mark.full, pytest.mark.timeout(900)]),
    ],
)
def test_an_upload_that_was_cut_off_continues(size: int, plane: Plane, tmp_path: Path) -> None:
    """The server ends after a third of it, and starts again; only what is missing is sent. Neither side holds the archive in memory."""
    with_random_bytes(tmp_path / "code", size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen: list[int] = []

    def cut(arrived: int, total: int) -> None:
        seen.append(arrived)
        if arrived >= total // 3:
            plane.stop()

    with Client(plane.url, tries=1) as client, pytest.raises(Unreachable):
        client.submit(spec(tmp_path / "code"), on_upload=cut)
    arrived, parts = seen[-1], -(-size // PART_BYTES)
    assert 0 < arrived < size and arrived % PART_BYTES == 0
    plane.start()
    more: list[int] = []
    with Client(plane.url) as client:
        job = client.submit(spec(tmp_path / "code"), on_upload=lambda arrived, _: more.append(arrived))
        archive = client.code(job.spec["code"]["archive"])
    assert more[0] == arrived and len(more) == parts + 1 - arrived // PART_BYTES
    assert archive.complete and archive.bytes > size
    assert unpacked(plane, archive, tmp_path / "cache") == {"train.py", "big.bin"}
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 160 << 10, f"{grown >> 10} MiB"


@pytest.mark.parametrize(
    ("place", "name", "error"),
    [
        pytest.param(code_archives, "_after_a_part", CodeStorageFailed("No answer within 600 s."), id="begin"),
        pytest.param(CodeStorage, "do", TimeoutError(errno.ETIMEDOUT, "No answer within 600 s"), id="part"),
    ],
)
def test_storage_that_does_not_answer_is_named(
    place: object, name: str, error: Exception, plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server asks a bucket for minutes before it has failed: longer than other answers take."""

    async def failing(*_: object) -> None:
        await asyncio.sleep(0.5)
        raise error

    monkeypatch.setattr(place, name, failing)
    with_random_bytes(tmp_path / "code", 5 << 20)
    with Client(plane.url, timeout_s=0.1) as client, pytest.raises(ApiError, match="No answer within") as refused:
        client.submit(spec(tmp_path / "code"))
    assert refused.value.code == "code_storage_failed"


@pytest.fixture
def slow_line() -> Iterator[str]:
    """The address of a server to which a body takes long, and which then answers at once."""
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as sent:
            size = 0
            while (line := sent.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    size = int(line.partition(b":")[2])
            ended.wait(0.75)
            sent.read(size)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n12345")

    def accept() -> None:
        while not ended.is_set():
            with suppress(TimeoutError):
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=accept)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        ended.set()
        thread.join(PATIENCE_S)


def test_a_body_may_take_longer_than_an_answer(slow_line: str) -> None:
    call = Call("POST", "/v1/jobs", int, content=bytes(16 << 20))
    with Client(slow_line, token="a" * 40, timeout_s=0.5) as client:
        assert client._send(call) == 12345

    async def sent() -> int:
        async with AsyncClient(slow_line, token="a" * 40, timeout_s=0.5) as client:
            return await client._send(call)

    assert asyncio.run(sent()) == 12345


def test_a_clone_with_code_from_elsewhere_uploads_it(plane: Plane, tmp_path: Path) -> None:
    """The service cannot, so it makes no clone that would run the old code."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(name)
    (tmp_path / "job.yaml").write_text("name: shipped\ncommand: [python, train.py]\ncode: {dir: one}  # mine\n")
    elsewhere = {"code.dir": str(tmp_path / "two")}
    with Client(plane.url) as client:
        job = client.submit(tmp_path / "job.yaml")
        with pytest.raises(ApiError) as refused:
            client._send(clone_requests.clone(job.id, None, elsewhere, None))
        clone = client.clone(job.id, set=elsewhere)
        assert refused.value.errors[0].field == "code.archive" and "upload" in (refused.value.errors[0].remedy or "")
        assert clone.spec["code"]["dir"] == elsewhere["code.dir"]
        assert client.code(clone.spec["code"]["archive"]).id != job.spec["code"]["archive"]
        assert "# mine" in (client.submitted_spec(clone.id).text or "")


def test_code_goes_to_a_bucket_as_well(prefix: str, plane: Plane, tmp_path: Path) -> None:
    plane.stop()
    plane.settings = plane.settings.model_copy(update={"storage": prefix})
    plane.start()
    with_random_bytes(tmp_path / "code", 5 << 20)

    async def submitted() -> CodeArchive:
        async with AsyncClient(plane.url) as client:
            job = await client.submit(spec(tmp_path / "code"))
            return await client.code(job.spec["code"]["archive"])

    archive = asyncio.run(submitted())
    [at] = folder_at(f"{prefix}/code").folders()
    assert set((folder_at(f"{prefix}/code") / at).files()) == {MANIFEST, part_name(0), part_name(1)}
    assert unpacked(plane, archive, tmp_path / "cache") == {"train.py", "big.bin"}
