"""A real memory cgroup with a limit, of version 1 or 2, below that of this process; where none can be made, the test is skipped."""

import contextlib
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from .patience import PATIENCE_S


@contextlib.contextmanager
def memory_cgroup(limit: int) -> Iterator[Path]:
    """Its folder. A process joins it by writing its number into `cgroup.procs`."""
    made = next((folder for folder in map(_made, _parents()) if folder is not None), None)
    if made is None:
        pytest.skip("no memory cgroup can be made here")
    try:
        name = "memory.max" if (made / "memory.max").exists() else "memory.limit_in_bytes"
        (made / name).write_text(str(limit))
        yield made
    finally:
        made.rmdir()


def run_within(limit: int, script: str, where: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script of Python, which joins a cgroup by its second argument, the path of `cgroup.procs`, between `where` and `folder`."""
    with memory_cgroup(limit) as cgroup:
        program = [sys.executable, "-c", script, where, str(cgroup / "cgroup.procs"), str(folder)]
        return subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def _parents() -> Iterator[Path]:
    """The folders of this process's cgroups, as most machines mount them."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            top = Path("/sys/fs/cgroup", controllers)
            yield from {top / path.lstrip("/"), top}


def _made(parent: Path) -> Path | None:
    folder = parent / f"shardyard-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError:
        return None
    if (folder / "memory.max").exists() or (folder / "memory.limit_in_bytes").exists():
        return folder
    folder.rmdir()
    return None
