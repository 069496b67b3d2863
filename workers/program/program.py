"""`Program`: what a rank of a `command` job runs. Plain data from the service to the trainer process. Imports no torch."""

import json
from dataclasses import dataclass
from typing import Any, Final, Self

from ..messages import json_codec

#: `GangSpec.entry` of a gang that runs programs.
ENTRY: Final = f"{__package__}.launch:run_program"
#: A program of sh, which is replaced by the shell that runs its first argument.
_SHELL: Final = 'exec "$(command -v bash || echo /bin/sh)" -c "$0"'


@dataclass(frozen=True)
class Code:
    """An archive of code: the address of its folder, and its digest."""

    archive: str
    digest: str


@dataclass(frozen=True)
class PythonEnvironment:
    """What the environment of a program's Python has: a file of requirements, or a list of them."""

    file: str | None = None  # may be relative to the code's folder
    requirements: tuple[str, ...] = ()
    version: str | None = None  # of Python; None: that of this package's interpreter
    inherit: bool = False  # what is not in it may be imported from this package's own environment


@dataclass(frozen=True)
class RayShare:
    """What a private Ray cluster has of its gang."""

    object_store: int  # bytes on each node
    cpus: float = 0.0  # of each rank; at least 1 counts
    storage: str | None = None  # the job's folder in the storage


@dataclass(frozen=True)
class ArtifactStorage:
    """Where files that a program logs are stored, and how many."""

    address: str
    spool: str  # folder of the node for files that wait to be stored
    file_bytes: int  # of the largest file
    bytes: int  # of all files of the job
    files: int


@dataclass(frozen=True)
class Mount:
    """Files that the program finds at a path, and their source."""

    target: str  # relative to the code's folder, and to that of all links
    source: str


@dataclass(frozen=True)
class FilesCache:
    """Where it is noted what the job's sources had, and how much of all jobs' files a node keeps."""

    record: str  # address of a folder in the storage
    most_bytes: int


@dataclass(frozen=True)
class Program:
    """The command, where it runs, and the number of its job's attempt."""

    job: str
    command: tuple[str, ...]
    attempt: int = 1
    cwd: str | None = (
        None  # may be relative to the code's folder; None: that folder, without code the user's home folder
    )
    max_restarts: int = 0  # starts again in this attempt, at most
    per_node: bool = False  # the first rank of each node runs the command, which starts the others' processes
    tensorboard: str | None = None  # folder of event files that are followed; may be relative to `cwd`
    code: Code | None = None
    python: PythonEnvironment | None = None  # None: this package's own
    checkpoints: str = ""  # address of the folder of the job's checkpoints; empty: it cannot save any
    keep: int = 2  # checkpoints
    resume: str | None = None  # another job's checkpoint; the job's own newest wins over it
    ray: RayShare | None = None  # the first rank of each node starts a Ray node, and that of the job the command
    artifacts: ArtifactStorage | None = None  # None: the program cannot log files
    mounts: tuple[Mount, ...] = ()
    files: FilesCache | None = None  # None: there are no mounts
    conda: str | None = None  # a file of conda, in the place of `python`; may be relative to the code's folder
    cache: str = ""  # folder of the node below which the code is unpacked and environments are built

    @property
    def needs_preparation(self) -> bool:
        """Whether a node builds or fetches something before the program starts, which may take long."""
        return self.python is not None or self.conda is not None or self.files is not None

    def to_json(self) -> dict[str, Any]:
        """Plain data, without the fields that have their default."""
        data: dict[str, Any] = json.loads(json_codec.dumps(self))
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Raises ValueError for unknown or missing fields, or values of another type."""
        program: Self = json_codec.read(cls, data)
        return program


def python_of(env: dict[str, Any] | None) -> PythonEnvironment | None:
    """What a spec's `env` asks for of Python packages; None: nothing."""
    python = None if env is None else env.get("python")
    if env is None or python is None:
        return None
    file = python if isinstance(python, str) else None
    requirements = () if file is not None else tuple(python)
    return PythonEnvironment(file, requirements, env.get("version"), env.get("inherit", False))


def argv(command: str | list[str]) -> tuple[str, ...]:
    """The arguments by which a node runs a spec's `command`: text is run by bash, or by sh where the node has no bash."""
    return ("/bin/sh", "-c", _SHELL, command) if isinstance(command, str) else tuple(command)


def shown(command: str | list[str]) -> tuple[str, ...]:
    """The same as people read it."""
    return ("bash", "-c", command) if isinstance(command, str) else tuple(command)
