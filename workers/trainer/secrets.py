"""Puts a job's secrets where its code finds them: into variables, or files in memory, which no disk ever has."""

import ctypes
import fcntl
import os
from collections.abc import Iterable
from typing import Final

from ..messages.secret import Secret

_PR_SET_DUMPABLE: Final = 4
_SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def place(secrets: Iterable[Secret]) -> None:
    """Set the variables of this process, which the programs that it starts inherit."""
    for secret in secrets:
        os.environ[secret.variable] = file_of(secret.value) if secret.file else secret.value


def file_of(value: str) -> str:
    """Path of a file with a secret's value. Processes of this user on this node can read it until this process ends; then it is gone."""
    file = os.memfd_create("secret", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.fchmod(file, 0o400)
    with os.fdopen(os.dup(file), "w", encoding="utf-8", newline="") as writer:
        writer.write(value)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    return f"/proc/{os.getpid()}/fd/{file}"


def leave_no_dump() -> None:
    """prctl(PR_SET_DUMPABLE): a signal that ends this process leaves no core dump, which would have the secrets."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
