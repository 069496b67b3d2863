"""The downloads of `AsyncClient`: each file appears whole at its place, and one that broke off continues."""

from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx2

from ....service.schemas.checkpoint import CheckpointFile, CheckpointFiles
from ....workers.checkpoint.manifest import MANIFEST
from .. import requests
from ..artifact_file import ArtifactFile, digest_of, is_there, place_below, place_of, remove_other
from ..transport import ApiError, Call, Tries, checked, find_url, readable
from .connection import AsyncConnection
from .runtime import for_each, in_thread, sleep, stay

T = TypeVar("T")

#: Files that are downloaded at the same time, and files in a request for a list.
AT_ONCE = 4
_PAGE = 1000


class AsyncDownloads(AsyncConnection, ABC):
    """The client implements how a request is sent."""

    _tries: int

    @abstractmethod
    async def _send(self, call: Call[T]) -> T: ...

    async def download_artifact(
        self, job: str, name: str, to: str | Path, *, step: int | None = None, digest: str | None = None
    ) -> Path:
        """Download a logged file to the path `to`, or into that folder. Returns its path.

        `step`: None is the file that was logged without a step, or if there is none that of the newest step. A download that broke off
        continues. The file appears once its SHA-256 is that of the logged one. Raises `ApiError`, also if it has not the SHA-256 `digest`.
        """
        place = await in_thread(partial(place_of, to, name))
        return await self._download(requests.artifact(job, name, step), place, digest)

    async def download_checkpoint(
        self, job: str, step: int, to: str | Path, *, digest: str | None = None
    ) -> list[Path]:
        """Download all files of a job's checkpoint into the folder `to`, several at once. Returns their paths.

        Repeated, it continues: files that are there and match their checksums are kept. A training job's folder is a checkpoint as
        soon as its manifest is there, which comes last; that of another checkpoint is removed first. A program's has the program's own
        files. Raises `ApiError`, also if the manifest has not the checksum `digest`.
        """
        found = await self._send(requests.job(job))
        job = found.id  # else files of a newer job of the name would come between
        files = await self._files_of(job, step, digest)
        places = {file.path: place_below(to, file.path) for file in files}

        async def fetch(several: list[CheckpointFile]) -> None:
            for file in several:
                place = places[file.path]
                if not await in_thread(partial(is_there, place, file.bytes, file.sha256)):
                    await self._download(requests.checkpoint_file(job, step, file.path), place, file.sha256)

        last = [file for file in files if file.path == MANIFEST]
        for file in last:  # an earlier one would make files of two checkpoints look like one
            await in_thread(partial(remove_other, places[file.path], file.bytes, file.sha256))
        await for_each(fetch, _apart([file for file in files if file.path != MANIFEST], places), AT_ONCE)
        await fetch(last)
        return list(places.values())

    async def checkpoint_files(
        self, job: str, step: int, *, after: str | None = None, limit: int = 100
    ) -> CheckpointFiles:
        """One page of the files of a job's checkpoint with sizes and checksums, in order of their paths, after a path."""
        return await self._send(requests.checkpoint_files(job, step, after=after, limit=limit))

    async def _files_of(self, job: str, step: int, digest: str | None) -> list[CheckpointFile]:
        """All files of one edition of the checkpoint. Raises `ApiError` if it is saved again meanwhile."""
        files: list[CheckpointFile] = []
        after: str | None = None
        while True:
            page = await self.checkpoint_files(job, step, after=after, limit=_PAGE)
            if digest not in (None, page.digest):
                again = "Start the download again." if files else "What has the checksum that you named is gone."
                raise ApiError("checkpoint_changed", f"The checkpoint of step {step} was saved again. {again}")
            digest, after = page.digest, page.next
            files += page.items
            if after is None:
                return files

    async def _download(self, call: Call[bytes], place: Path, digest: str | None = None) -> Path:
        """The file at `place`. `digest`: its SHA-256, if it is known before. Raises `ApiError`."""
        tries, arrived = Tries(self.url, self._tries), 0
        with ArtifactFile(place) as file:
            while True:
                stay()  # also between tries, which take minutes
                try:
                    with readable(self.url):
                        async with self._http.stream(
                            "GET",
                            self.url + call.path,
                            params=call.given,
                            headers={**call.headers, **file.rest},
                            timeout=call.timeout(self._http.timeout),
                        ) as answer:
                            if answer.status_code == 416 and file.arrived:
                                return await in_thread(file.finish)  # all of it has arrived
                            if answer.is_success:
                                found = digest_of(answer.headers, digest)
                                if file.begin(found, resumed=answer.status_code == 206):
                                    async for block in answer.aiter_bytes(1 << 20):
                                        stay()
                                        file.write(block)
                                    return await in_thread(file.finish)
                                continue
                            await answer.aread()
                            pause = tries.again(answer)
                            if pause is None:
                                checked(answer)
                except httpx2.TransportError as error:
                    if file.arrived > arrived:  # tries in a row without a byte count
                        tries, arrived = Tries(self.url, self._tries), file.arrived
                    self.url = find_url(self._given, self.url)
                    pause = tries.failed(error, self.url)
                await sleep(pause or 0.0)


def _apart(files: list[CheckpointFile], places: dict[str, Path]) -> list[list[CheckpointFile]]:
    """Lists of files that can be downloaded at the same time: those of one content in one folder share what has arrived."""
    found: dict[tuple[Path, str], list[CheckpointFile]] = {}
    for file in files:
        found.setdefault((places[file.path].parent, file.sha256), []).append(file)
    return list(found.values())
