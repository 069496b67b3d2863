"""A folder of code from a real client to a real server: after a cut the upload continues, into a folder or a bucket."""

import asyncio
import os
import resource
from pathlib import Path

import pytest

from shardyard.api.client import AsyncClient, Client
from shardyard.api.client.transport import Unreachable
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
