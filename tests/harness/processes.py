"""Who runs in a place and may get a fault: trainers, and actors by their class. A place is whatever knows its processes.

And processes of a test's own.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import psutil


@contextmanager
def started(script: str, *arguments: str, **variables: str) -> Iterator[int]:
    """A Python process in a session of its own, once it has printed a line; by its id. It is killed in the end."""
    command = [sys.executable, "-c", script, *arguments]
    env = {**os.environ, **variables}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


class ProcessHost(Protocol):
    """A control plane with its Ray, or a stage."""

    def processes(self) -> list[psutil.Process]: ...


def trainers(place: ProcessHost) -> list[psutil.Process]:
    """The fork servers' children: they have their command line."""
    servers = [p for p in place.processes() if "shardyard.workers.forkserver" in _command(p)]
    return [p for p in servers if _parent(p) in {server.pid for server in servers}]


def actors(place: ProcessHost, kind: str) -> list[psutil.Process]:
    """Actors of one class, by their title. It hides whose they are from a control plane, so raylets' children count too."""
    mine = place.processes()
    children = [child for p in mine if "raylet" in " ".join(_command(p)[:1]) for child in _children(p)]
    return [process for process in {*mine, *children} if " ".join(_command(process)).startswith(f"ray::{kind}")]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.Error:
        return 0


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.Error:
        return []
