"""The lock of all `run`s of a data folder: shared while they run, held alone by the one that stops a control plane."""

import stat
import subprocess
import sys
from pathlib import Path

from shardyard.api.cli.run_lock import RunLock


def test_it_is_held_alone_only_without_others(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first, second, third = (RunLock(folder) for _ in range(3))
    assert first.share(wait=False) and second.share(wait=True)
    assert not first.alone()
    assert second.alone(), "the first one has given up its share"
    assert not third.share(wait=False)
    second.release()
    assert third.share(wait=False)
    for lock in (first, third):
        lock.release()
    assert stat.S_IMODE((folder / "run.lock").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_it_ends_with_its_holder(tmp_path: Path) -> None:
    hold = (
        "import time; from pathlib import Path; from shardyard.api.cli.run_lock import RunLock\n"
        f"lock = RunLock(Path({str(tmp_path)!r})); print(lock.share(wait=False), flush=True); time.sleep(300)"
    )
    mine = RunLock(tmp_path)
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "True\n"
            assert not mine.alone()
        finally:
            holder.kill()
    assert mine.alone()
    mine.release()
