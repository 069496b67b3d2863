"""Downloads at the same time do not write to one file, and a checkpoint's files are those of one job."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from shardyard.api.client import ApiError, AsyncClient
from shardyard.api.client.artifact_file import ArtifactFile
from shardyard.api.client.transport import Call
from shardyard.service.schemas.checkpoint import CheckpointFile, CheckpointFiles

_TABLE = b"step,loss\n" * 300_000
_DIGEST = hashlib.sha256(_TABLE).hexdigest()
_PART = f".{_DIGEST[:32]}.partial"

Handler = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


class Blocks(httpx2.AsyncByteStream):
    """A body in blocks, between which other tasks run. `breaks`: the connection ends after it."""

    def __init__(self, content: bytes, *, breaks: bool = False) -> None:
        self._content, self._breaks = content, breaks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self._content), 1 << 18):
            await asyncio.sleep(0)
            yield self._content[at : at + (1 << 18)]
        if self._breaks:
            raise httpx2.ReadError("The connection was reset.")


def _answer(status: int, body: Blocks) -> httpx2.Response:
    return httpx2.Response(status, stream=body, headers={"ETag": f'"{_DIGEST}"'})


async def _table(request: httpx2.Request) -> httpx2.Response:
    """The table, from where the request says."""
    start = int(request.headers.get("Range", "bytes=0-")[6:-1])
    return _answer(206 if start else 200, Blocks(_TABLE[start:])) if start < len(_TABLE) else httpx2.Response(416)


async def _broken(_: httpx2.Request) -> httpx2.Response:
    return _answer(200, Blocks(_TABLE[:2_000_000], breaks=True))


@asynccontextmanager
async def _asking(handler: Handler, tries: int = 1) -> AsyncIterator[AsyncClient]:
    """A client whose requests the handler answers."""
    async with AsyncClient("http://127.0.0.1:9", tries=tries) as client:
        await client._http.aclose()
        client._opened[os.getpid()] = httpx2.AsyncClient(transport=httpx2.MockTransport(handler))
        yield client


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_files_of_one_content_arrive_at_the_same_time(tmp_path: Path) -> None:
    """Several steps may have logged the same table."""
    async with _asking(_table) as client:
        load = client.download_artifact
        placed = await asyncio.gather(*(load("j", "t", tmp_path / f"{step}.csv", step=step) for step in range(3)))
    assert all(place.read_bytes() == _TABLE for place in placed)
    assert _names(tmp_path) == ["0.csv", "1.csv", "2.csv"]


class BreaksOnce:
    """The table, at the second request: the first one breaks off, and the second one is not answered with the rest."""

    def __init__(self) -> None:
        self._asked = False

    async def __call__(self, _: httpx2.Request) -> httpx2.Response:
        asked, self._asked = self._asked, True
        return _answer(200, Blocks(_TABLE)) if asked else _answer(200, Blocks(_TABLE[:2_000_000], breaks=True))


@pytest.mark.parametrize(("handler", "arrives"), [(_table, True), (BreaksOnce(), True), (_broken, False)])
async def test_what_another_download_still_writes_is_not_continued(
    handler: Handler, arrives: bool, tmp_path: Path
) -> None:
    """Such as that of another process into a shared folder. Of a download beside it nothing is kept once it broke off."""
    with ArtifactFile(tmp_path / "mine") as file:
        assert file.begin(_DIGEST, resumed=False)
        file.write(_TABLE[:1_000_000])
        async with _asking(handler, tries=2) as client:
            if arrives:
                assert (await client.download_artifact("j", "t", tmp_path / "other")).read_bytes() == _TABLE
            else:
                with pytest.raises(ApiError):
                    await client.download_artifact("j", "t", tmp_path / "other")
    assert _names(tmp_path) == [_PART, "other"][: 1 + arrives]
    assert (tmp_path / _PART).stat().st_size == 1_000_000


async def test_what_a_download_that_broke_off_has_left_is_continued(tmp_path: Path) -> None:
    asked: list[str | None] = []

    async def noted(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.headers.get("Range"))
        return await _table(request)

    async with _asking(_broken) as client:
        with pytest.raises(ApiError):
            await client.download_artifact("j", "t", tmp_path / "mine")
    assert _names(tmp_path) == [_PART]
    async with _asking(noted) as client:
        place = await client.download_artifact("j", "t", tmp_path / "mine")
    assert asked == [None, f"bytes={1 << 20}-"]
    assert place.read_bytes() == _TABLE and _names(tmp_path) == ["mine"]


async def test_a_checkpoint_is_that_of_one_job_while_a_newer_one_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def send(_: AsyncClient, call: Call[Any]) -> Any:
        asked.append(call.path)
        if call.path == "/v1/jobs/train":
            return SimpleNamespace(id="job-1")
        found = CheckpointFile(path="weights", bytes=len(_TABLE), sha256=_DIGEST)
        return CheckpointFiles(step=7, digest="0" * 64, items=[found])

    async def noted(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        return await _table(request)

    monkeypatch.setattr(AsyncClient, "_send", send)
    async with _asking(noted) as client:
        (placed,) = await client.download_checkpoint("train", 7, tmp_path)
    assert placed.read_bytes() == _TABLE
    of_it = "/v1/jobs/job-1/checkpoints/7/files"
    assert asked == ["/v1/jobs/train", of_it, f"{of_it}/weights"]
