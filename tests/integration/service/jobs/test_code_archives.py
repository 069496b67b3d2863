"""Uploads of code: parts in any order and more than once, continued after a cut, checked, kept while a job names them."""

import asyncio
import io
import os
import tarfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.patience import PATIENCE_S
from sqlalchemy import select, update

from shardyard.service.errors import CodeNotFound, CodeStorageFailed, InvalidCode, InvalidSpec, UnknownCode
from shardyard.service.jobs import code_archives
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.code_archives import CodeStorage
from shardyard.service.queries import jobs
from shardyard.service.queries.sweeps import get_sweep
from shardyard.service.schemas.code import CodeArchive, CodeManifest
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.spec import CommandSpec
from shardyard.service.store import code_archives as rows
from shardyard.service.store.engine import Store
from shardyard.service.store.program_tables import code_archives as archives
from shardyard.service.sweeps.submit import cancel
from shardyard.workers.code_archive import MANIFEST, PART_BYTES, deflated, manifest_of, part_name
from shardyard.workers.storage import s3_bucket, s3_folder
from shardyard.workers.storage.errors import StorageUnreachable
from shardyard.workers.storage.local_folder import LocalFolder

from ..sweeps.learning import advance, submit_sweep

T = TypeVar("T")
Archive = tuple[CodeManifest, Callable[[int], bytes]]


def archive(size: int = 2 * PART_BYTES, name: str = "x", before: bytes = b"") -> Archive:
    """An archive with one file of random bytes: three parts by default. `before`: bytes of a hostile client before it."""
    file = io.BytesIO()
    file.write(before)
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo(name)
        member.size = size
        tar.addfile(member, io.BytesIO(os.urandom(size)))
    content = file.getvalue()
    manifest = manifest_of(file, 1, "a" * 40, "a diff")
    wanted = CodeManifest(
        bytes=manifest.bytes, files=1, parts=list(manifest.parts), commit=manifest.commit, diff=manifest.diff
    )
    return wanted, lambda number: deflated(content[number * PART_BYTES : (number + 1) * PART_BYTES])


async def uploaded(store: Store, settings: Settings, one: Archive) -> CodeArchive:
    manifest, part = one
    found = await code_archives.begin(store, CodeStorage(settings), manifest, "tester")
    while found.missing:
        found = await code_archives.put_part(
            store, CodeStorage(settings), found.id, found.missing[0], part(found.missing[0])
        )
    return found


async def submit(store: Store, settings: Settings, digest: str | None) -> Job:
    spec = {"name": "mine", "command": ["python", "train.py"], "code": {"dir": "/code", "archive": digest}}
    job, _ = await submitting.submit(store, settings, CommandSpec.model_validate(spec), None, "", "tester")
    return job


def stored(settings: Settings) -> list[str]:
    """Names of all files below the storage for code."""
    return sorted(path.name for path in Path(settings.storage).rglob("*") if path.is_file())


def lose(settings: Settings, *kept: str) -> list[Path]:
    """Remove all files below the storage for code but those that are kept. Returns where all were."""
    files = [path for path in Path(settings.storage).rglob("*") if path.is_file()]
    for path in files:
        if path.name not in kept:
            path.unlink()
    return files


def grow(settings: Settings, name: str) -> None:
    """Give the only file of this name below the storage for code 1 GiB, which takes no room."""
    (path,) = Path(settings.storage).rglob(name)
    os.truncate(path, 1 << 30)


async def test_an_upload_continues_where_it_broke_off(store: Store, settings: Settings) -> None:
    manifest, part = archive()
    begun = await code_archives.begin(store, CodeStorage(settings), manifest, "tester")
    assert (begun.missing, begun.complete, begun.arrived) == ([0, 1, 2], False, 0)
    first = await code_archives.put_part(store, CodeStorage(settings), begun.id, 1, part(1))
    again = await code_archives.put_part(store, CodeStorage(settings), begun.id, 1, part(1))
    assert first.missing == again.missing == [0, 2]
    continued = await code_archives.begin(store, CodeStorage(settings), manifest, "another user")
    assert (continued.id, continued.missing, continued.actor) == (begun.id, [0, 2], "tester")
    assert continued.arrived == PART_BYTES
    last = await uploaded(store, settings, (manifest, part))
    assert (last.complete, last.missing) == (True, [])
    assert stored(settings) == [MANIFEST, "part-0000", "part-0001", "part-0002"]
    same = await code_archives.begin(store, CodeStorage(settings), manifest, "tester")
    assert (same.complete, same.arrived) == (True, manifest.bytes)
    found = await code_archives.get(store, begun.id)
    assert (found.commit, found.diff, found.complete) == ("a" * 40, "a diff", True)


async def test_many_uploads_of_one_archive_at_once_are_one(store: Store, settings: Settings) -> None:
    one = archive()
    found = await asyncio.gather(*(uploaded(store, settings, one) for _ in range(4)))
    assert all(each.complete for each in found)
    assert stored(settings) == [MANIFEST, "part-0000", "part-0001", "part-0002"]


@POSTGRESQL_IN_FULL
async def test_a_part_that_is_not_the_manifests_is_refused(store: Store, settings: Settings) -> None:
    manifest, part = archive()
    begun = await code_archives.begin(store, CodeStorage(settings), manifest, "tester")
    for number, content in ((0, part(1)), (0, b"no"), (3, part(0)), (2, part(0))):
        with pytest.raises(InvalidCode) as refused:
            await code_archives.put_part(store, CodeStorage(settings), begun.id, number, content)
        assert refused.value.remedy
    assert (await code_archives.get(store, begun.id)).missing == [0, 1, 2] and stored(settings) == []
    with pytest.raises(CodeNotFound):
        await code_archives.put_part(store, CodeStorage(settings), "0" * 64, 0, part(0))
    with pytest.raises(InvalidCode, match="are not 1 parts"):
        await code_archives.begin(
            store, CodeStorage(settings), manifest.model_copy(update={"parts": ["0" * 64]}), "tester"
        )


@POSTGRESQL_IN_FULL
@pytest.mark.parametrize("headers", [0, 1000])
async def test_an_archive_with_a_hostile_file_never_becomes_complete(
    store: Store, settings: Settings, headers: int
) -> None:
    """Also if it has more headers than Python nests calls."""
    long = tarfile.TarInfo("header")
    long.type, long.size = tarfile.GNUTYPE_LONGNAME, 512
    name = "../outside"
    one = archive(10, name, (long.tobuf(tarfile.GNU_FORMAT) + name.encode().ljust(512, b"\0")) * headers)
    begun = await code_archives.begin(store, CodeStorage(settings), one[0], "tester")
    with pytest.raises(InvalidCode, match="not a path inside"):
        await uploaded(store, settings, one)
    assert stored(settings) == []
    with pytest.raises(CodeNotFound):
        await code_archives.get(store, begun.id)


@POSTGRESQL_IN_FULL
async def test_an_archive_that_is_discarded_while_it_is_begun(store: Store, settings: Settings) -> None:
    """Another client's upload of the same content ends meanwhile, and is refused: the upload begins again, with all parts."""
    manifest, part = archive(name="../outside")
    begun = await code_archives.begin(store, CodeStorage(settings), manifest, "another user")
    for number in (0, 1):
        await code_archives.put_part(store, CodeStorage(settings), begun.id, number, part(number))
    others = [2]

    class Slow(CodeStorage):
        """The other client's last part arrives before the first look at the files."""

        async def do(self, work: Callable[[], T]) -> T:
            while others:
                number = others.pop()
                with pytest.raises(InvalidCode, match="not a path inside"):
                    await code_archives.put_part(store, CodeStorage(settings), begun.id, number, part(number))
            return await super().do(work)

    again = await code_archives.begin(store, Slow(settings), manifest, "tester")
    assert others == []
    assert (again.id, again.actor, again.missing) == (begun.id, "tester", [0, 1, 2])


async def test_a_part_that_has_grown_in_storage_is_not_read(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs can write there, and all parts of all uploads are read in the API's memory."""
    manifest, part = archive()
    begun = await code_archives.begin(store, CodeStorage(settings), manifest, "tester")
    for number in (0, 1):
        await code_archives.put_part(store, CodeStorage(settings), begun.id, number, part(number))
    grow(settings, part_name(0))

    def reads(*_: object) -> None:
        raise OSError("it is read")

    for method in ("read", "read_into"):
        monkeypatch.setattr(LocalFolder, method, reads)
    with pytest.raises(InvalidCode, match="part 0 in storage has 1,073,741,824 bytes"):
        await code_archives.put_part(store, CodeStorage(settings), begun.id, 2, part(2))
    assert stored(settings) == []


async def test_a_job_names_a_complete_archive(store: Store, settings: Settings) -> None:
    manifest, part = archive()
    begun = await code_archives.begin(store, CodeStorage(settings), manifest, "tester")
    for digest, kind in ((None, InvalidSpec), ("0" * 64, UnknownCode), (begun.id, UnknownCode)):
        with pytest.raises(kind) as refused:
            await submit(store, settings, digest)
        assert (refused.value.field, bool(refused.value.remedy)) == ("code.archive", True)  # type: ignore[attr-defined]
    assert (await jobs.list_jobs(store)).items == []
    done = await uploaded(store, settings, (manifest, part))
    job = await submit(store, settings, done.id)
    assert job.spec["code"]["archive"] == done.id


async def test_what_no_job_names_is_removed_after_a_while(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also uploads that never ended. What a job names stays, and what is uploaded again after a removal is new."""
    used, unused, broken = archive(10), archive(20), archive()
    kept = await uploaded(store, settings, used)
    await submit(store, settings, kept.id)
    gone = await uploaded(store, settings, unused)
    half = await code_archives.begin(store, CodeStorage(settings), broken[0], "tester")
    await code_archives.put_part(store, CodeStorage(settings), half.id, 0, broken[1](0))
    await code_archives.remove_unused(store, CodeStorage(settings))
    assert len(stored(settings)) == 5
    monkeypatch.setattr(code_archives, "UNUSED_S", -1.0)
    await asyncio.gather(*(code_archives.remove_unused(store, CodeStorage(settings)) for _ in range(3)))
    assert stored(settings) == [MANIFEST, "part-0000"]
    assert (await code_archives.get(store, kept.id)).complete
    for one in (gone, half):
        with pytest.raises(CodeNotFound):
            await code_archives.get(store, one.id)
    assert (await uploaded(store, settings, unused)).complete


async def test_the_code_of_an_open_sweep_stays_until_it_ends(store: Store, settings: Settings) -> None:
    """Its trials are submitted one after the other, perhaps days later. What only one of them names stays, too."""
    first, second, other, _ = [(await uploaded(store, settings, archive(size))).id for size in (10, 20, 30, 40)]
    part = {"parameters": {"code.archive": [first, second]}, "search": "grid", "metric": "loss"}
    program: dict[str, Any] = {"command": ["python", "train.py"], "code": {"dir": "/code"}}
    open_sweeps = [
        await submit_sweep(store, settings, part, **program),
        await submit_sweep(
            store,
            settings,
            {"parameters": {"labels.a": ["1", "2"]}, "search": "grid", "metric": "loss"},
            **program | {"code": {"dir": "/code", "archive": other}},
        ),
    ]
    for left in ({first, second, other}, set()):
        async with store.write() as tx:
            await tx.execute(update(archives).values(used_at=archives.c.used_at - 2 * code_archives.UNUSED_S))
        await code_archives.remove_unused(store, CodeStorage(settings))
        async with store.read() as tx:
            assert set((await tx.execute(select(archives.c.digest))).scalars()) == left
        for sweep in open_sweeps:
            await cancel(store, sweep.id)
            while (await get_sweep(store, sweep.id)).finished_at is None:
                await advance(store, settings, sweep)


async def test_a_sweep_names_archives_that_are_complete(store: Store, settings: Settings) -> None:
    there = (await uploaded(store, settings, archive(10))).id
    part = {"parameters": {"code.archive": [there, "0" * 64]}, "search": "grid", "metric": "loss"}
    with pytest.raises(UnknownCode, match="No archive 0000") as refused:
        await submit_sweep(store, settings, part, command=["python", "train.py"], code={"dir": "/code"})
    assert (refused.value.field, bool(refused.value.remedy)) == ("sweep.parameters.code.archive", True)


async def test_a_removal_that_was_cut_off_is_finished_by_the_next(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload of the same content meanwhile is not touched by it."""
    one = archive(10)
    await uploaded(store, settings, one)
    monkeypatch.setattr(code_archives, "UNUSED_S", -1.0)
    with monkeypatch.context() as broken:

        def fails(folder: object) -> None:
            raise OSError(5, "Input/output error")

        broken.setattr(code_archives, "_removed", fails)
        await code_archives.remove_unused(store, CodeStorage(settings))
    again = await uploaded(store, settings, one)
    await submit(store, settings, again.id)
    assert len(stored(settings)) == 4
    await code_archives.remove_unused(store, CodeStorage(settings))
    assert stored(settings) == [MANIFEST, "part-0000"] and (await code_archives.get(store, again.id)).complete


@pytest.mark.parametrize("kept", [(), ("part-0000", "part-0002"), ("part-0000", "part-0001", "part-0002")])
async def test_an_archive_whose_files_are_lost_is_uploaded_again(
    store: Store, settings: Settings, kept: tuple[str, ...]
) -> None:
    """Also if only some of its files are. It keeps its id, so that older jobs find it as well."""
    one = archive()
    digest = (await uploaded(store, settings, one)).id
    await submit(store, settings, digest)
    files = lose(settings, *kept)
    begun = await code_archives.begin(store, CodeStorage(settings), one[0], "tester")
    lost = [number for number in range(3) if part_name(number) not in kept]
    assert (begun.id, begun.missing, begun.complete) == (digest, lost, not lost)
    assert (await uploaded(store, settings, one)).complete
    assert all(path.is_file() for path in files), "the folder is the one that older jobs name"
    await submit(store, settings, digest)


async def test_lost_parts_of_an_upload_are_missing_again(store: Store, settings: Settings) -> None:
    manifest, part = archive()
    begun = await code_archives.begin(store, CodeStorage(settings), manifest, "tester")
    for number in (0, 1):
        await code_archives.put_part(store, CodeStorage(settings), begun.id, number, part(number))
    lose(settings, part_name(1))
    assert (await code_archives.begin(store, CodeStorage(settings), manifest, "tester")).missing == [0, 2]
    assert (await uploaded(store, settings, (manifest, part))).complete


async def test_storage_that_fails_loses_no_files(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says nothing of what is there, and neither does storage that does not answer."""
    one, answered = archive(), threading.Event()
    await uploaded(store, settings, one)

    def fails(_: LocalFolder) -> None:
        raise StorageUnreachable(5, "Input/output error")

    def hangs(_: LocalFolder) -> None:
        answered.wait()

    monkeypatch.setattr(code_archives, "LOOK_S", 0.05)
    try:
        for files in (fails, hangs):
            monkeypatch.setattr(LocalFolder, "files", files)
            assert (await code_archives.begin(store, CodeStorage(settings), one[0], "tester")).complete
    finally:
        answered.set()


async def test_an_archive_that_another_client_has_reopened_is_not_emptied(store: Store, settings: Settings) -> None:
    """Both found it complete and its files lost. The second one's look is older than the parts that the first one has sent since."""
    manifest, part = archive()
    digest = (await uploaded(store, settings, (manifest, part))).id
    async with store.read() as tx:
        row = await rows.kept(tx, digest)
    assert row is not None
    lose(settings)
    await code_archives.begin(store, CodeStorage(settings), manifest, "tester")
    await code_archives.put_part(store, CodeStorage(settings), digest, 0, part(0))
    async with store.write() as tx:
        assert await rows.reopen(tx, row["id"], row["state"], [0, 1, 2]) is None
    assert (await code_archives.get(store, digest)).missing == [1, 2]


@POSTGRESQL_IN_FULL
async def test_storage_that_cannot_be_written_is_said(store: Store, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    elsewhere = settings.model_copy(update={"storage": str(tmp_path / "file")})
    manifest, part = archive()
    begun = await code_archives.begin(store, CodeStorage(elsewhere), manifest, "tester")
    with pytest.raises(CodeStorageFailed, match="Not a directory") as refused:
        await code_archives.put_part(store, CodeStorage(elsewhere), begun.id, 0, part(0))
    assert "SHARDYARD_STORAGE" in (refused.value.remedy or "")
    assert (await code_archives.get(store, begun.id)).missing == [0, 1, 2]


async def test_storage_that_does_not_answer_fails_the_upload_and_takes_no_threads_of_others(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    manifest, part = archive()
    storage = CodeStorage(settings, limit_s=0.2)
    begun = await code_archives.begin(store, storage, manifest, "tester")
    monkeypatch.setattr(LocalFolder, "publish", lambda *_, **__: answered.wait())
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    try:
        puts = (code_archives.put_part(store, storage, begun.id, number, part(number)) for number in range(3))
        failed = await asyncio.gather(*puts, return_exceptions=True)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), PATIENCE_S) == 1
    finally:
        answered.set()
    assert {type(error) for error in failed} == {CodeStorageFailed} and "No answer within 0.2 s" in str(failed[0])
    assert (await code_archives.get(store, begun.id)).missing == [0, 1, 2]


async def test_all_parts_in_a_bucket_take_one_client(
    store: Store, settings: Settings, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each costs half a second of CPU, and an upload may have 512 parts."""
    made, usual = list[str](), s3_bucket.open_bucket

    def open_bucket(name: str) -> Any:
        made.append(name)
        return usual(name)

    monkeypatch.setattr(s3_folder, "open_bucket", open_bucket)
    in_bucket = settings.model_copy(update={"storage": prefix})
    assert (await uploaded(store, in_bucket, archive())).complete
    await code_archives.remove_unused(store, CodeStorage(in_bucket))
    assert len(made) <= 1, "another test may have made it"


async def test_a_client_that_repeats_the_last_part_begins_no_second_check(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks, go_on = list[int](), threading.Event()

    def check(*_: Any) -> None:
        checks.append(1)
        assert go_on.wait(PATIENCE_S)

    monkeypatch.setattr(code_archives.code_archive, "check_members", check)
    (manifest, part), storage = archive(), CodeStorage(settings)
    begun = await code_archives.begin(store, storage, manifest, "tester")
    for number in (0, 1):
        await code_archives.put_part(store, storage, begun.id, number, part(number))
    left = asyncio.create_task(code_archives.put_part(store, storage, begun.id, 2, part(2)))
    while not checks:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    left.cancel()  # its client waits no longer
    again = [asyncio.create_task(code_archives.put_part(store, storage, begun.id, 2, part(2))) for _ in range(2)]
    again.append(asyncio.create_task(code_archives.begin(store, storage, manifest, "tester")))
    await asyncio.sleep(0.1)
    go_on.set()
    assert [one.complete for one in await asyncio.gather(*again)] == [True] * 3 and len(checks) == 1
