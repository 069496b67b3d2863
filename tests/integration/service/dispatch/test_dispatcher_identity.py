"""Two dispatchers in two PID namespaces under one host name, as in containers on a host's network: neither takes the other for dead."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S
from sqlalchemy import text

from shardyard.service.jobs import submit as submitting
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.store.engine import Store

UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def _possible() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not _possible(), reason="no rights to make PID namespaces")


@contextlib.contextmanager
def dispatcher(url: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """In a PID namespace of its own."""
    command = [*UNSHARE, sys.executable, str(Path(__file__).with_name("a_dispatcher.py")), url, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def leases(store: Store) -> dict[str, str]:
    async with store.read() as tx:
        rows = (await tx.execute(text("SELECT id, lease_token FROM jobs WHERE lease_token IS NOT NULL"))).all()
    return {row.id: row.lease_token for row in rows}


@pytest.mark.parametrize(
    "seconds", [pytest.param(0, id="at its start"), pytest.param(60, id="for a minute", marks=pytest.mark.full)]
)
async def test_no_lease_changes_hands(store: Store, database_url: str, tmp_path: Path, seconds: int) -> None:
    spec = {"name": "try", "train": {"steps": 1000, "global_batch": 4, "layout": {"data": 4}}}
    await submitting.submit(store, Settings(data_dir=tmp_path), JobSpec.model_validate(spec), None, "", "tester")
    with dispatcher(database_url, tmp_path):
        async with asyncio.timeout(PATIENCE_S):
            while not (held := await leases(store)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        with dispatcher(database_url, tmp_path) as second:
            assert second.stdout is not None
            assert await asyncio.wait_for(asyncio.to_thread(second.stdout.readline), PATIENCE_S) == "looked\n"
            assert await leases(store) == held
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                await asyncio.sleep(0.5)
                assert await leases(store) == held
