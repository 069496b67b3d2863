"""What the API process does before it listens, and how much work a stopped control plane leaves."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.databases import migrated_sqlite
from harness.patience import PATIENCE_S

from shardyard.api.daemon import control_plane
from shardyard.service.ids import new_job_id
from shardyard.service.jobs import submit
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.tables import jobs


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    ("more", "closed"),
    [
        ({"host": "0.0.0.0"}, True),
        ({"host": "0.0.0.0", "insecure_allow_remote": True}, False),
        ({"host": "127.0.0.1", "insecure_allow_remote": True}, True),
        ({"host": "0.0.0.0", "token": "x" * 40}, False),
    ],
    ids=["token-made", "no-token", "loopback", "token-given"],
)
def test_the_data_folder_is_closed_where_a_token_is_made_in_it(
    more: dict[str, Any], closed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod it is a volume of another user, which cannot be closed: an API without tokens keeps nothing there."""

    async def serve(*_: object) -> int:
        return 0

    monkeypatch.setattr(control_plane, "_api", serve)
    monkeypatch.setattr(control_plane, "_log_to_stderr", lambda: None)
    tmp_path.chmod(0o755)
    settings = Settings(data_dir=tmp_path, database_url="postgresql+psycopg://u:p@127.0.0.1:1/x", **more)
    assert control_plane.run_api(settings, None, lambda _: None) == 0
    assert (stat.S_IMODE(tmp_path.stat().st_mode) == 0o700) is closed


async def _fill(settings: Settings, states: list[str]) -> None:
    """Store a job in each of these states, and one that is deleted."""
    store = Store(settings.database)
    spec = JobSpec.model_validate({"name": "a", "train": {"steps": 1, "global_batch": 1}})
    job, _ = await submit.submit(store, settings, spec, None, "", "ada")
    async with store.write() as tx:
        row = await job_rows.by_id(tx, job.id)
        assert row is not None
        made = [{**row, "id": new_job_id(1.0 + at), "state": state} for at, state in enumerate(states)]
        await tx.execute(jobs.insert(), made)
        await job_rows.set_columns(tx, job.id, {"deleted_at": 1.0})
    await store.close()


def test_all_jobs_are_counted_not_those_of_a_page(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, database_url=f"sqlite+aiosqlite:///{tmp_path}/shardyard.db")
    migrated_sqlite(settings.database)
    asyncio.run(_fill(settings, 450 * ["running"] + 2 * ["placing"] + 230 * ["queued"] + ["paused", "failed"]))
    assert (control_plane.active_jobs(settings), control_plane.open_work(settings)) == (452, 682)


#: A control plane's end. It owns the terminal, says when it is ready, and writes a file after it has printed something once more.
ENDING = """
import asyncio, fcntl, pathlib, sys, termios
from shardyard.api.daemon import control_plane
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
async def main():
    stop = control_plane._signals()
    print("ready", flush=True)
    await stop
    print("Stopped, and Ray with it.", flush=True)
    pathlib.Path(sys.argv[1]).touch()
asyncio.run(main())
"""


@pytest.mark.parametrize("ignored", [False, True], ids=["", "nohup"])
def test_a_closed_terminal_ends_a_control_plane_as_sigterm_does(ignored: bool, tmp_path: Path) -> None:
    """Otherwise its Ray would stay. Below nohup it goes on."""
    master, slave = os.openpty()
    signals = "--ignore-signal=HUP" if ignored else "--default-signal=HUP"
    command = ["env", signals, sys.executable, "-c", ENDING, str(tmp_path / "ended")]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True) as process:
        try:
            os.close(slave)
            shown = b""
            while not shown.endswith(b"ready\r\n"):
                shown += os.read(master, 1000)
            os.close(master)
            if ignored:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.5)
            else:
                assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
    assert (tmp_path / "ended").exists() is not ignored
