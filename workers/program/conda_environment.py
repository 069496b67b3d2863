"""The environment of a program by conda, built by micromamba or conda, whichever the node has (`environment_folder.py` keeps it).

Packages that were downloaded are below `cache/conda/`; files in an environment are links to those. A build holds a shared lock on them,
because neither tool keeps one process from removing what another one installs.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from . import environment_folder
from .build_process import BuildProcess, EnvironmentNotBuilt, cause_of, shortened
from .conda_file import read_conda_file
from .shared_folder import TRY_S, EndRequested, locked

#: The tools, the first that is there counts, and the beginning of their commands that build an environment.
_TOOLS: Final = {"micromamba": ("create", "--yes"), "conda": ("env", "create")}
#: Variables of the environment in which Ray was started: they do not change what is built.
_ACTIVE: Final = re.compile(
    r"CONDA_(PREFIX(_\d+)?|DEFAULT_ENV|SHLVL|PROMPT_MODIFIER|EXE|PYTHON_EXE|ROOT)|MAMBA_(EXE|ROOT_PREFIX)"
)
#: Variables that would make the tool, or pip below it, look elsewhere.
_MISLEADING: Final = (
    *("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER"),
    *("CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_SHLVL"),
)
#: Where the first error begins in the output of conda, micromamba and pip.
_ERROR: Final = re.compile(r"^(?:\w+(?:Error|Exception|NotFound)\b|(?:error|critical)\b|ERROR: )", re.MULTILINE)
#: Signs of a channel that cannot be reached, in the words of conda and of curl.
_NETWORK: Final = re.compile(
    r"CONNECTION FAILED|Download error|ConnectionError|ProxyError|could(?: not|n't) resolve host|"
    r"connection (?:reset|refused|timed out)|timeout was reached|HTTP 5\d\d",
    re.IGNORECASE,
)


@contextmanager
def conda_environment(file: Path, cache: Path, is_to_stop: Callable[[], bool]) -> Iterator[Path]:
    """The environment, which stays until the block ends. Raises EnvironmentNotBuilt, FolderUnavailable, EndRequested."""
    packages = read_conda_file(file)
    place = environment_folder.folder_of(cache, _facts(packages))
    with environment_folder.kept(place, _Build(packages, place, cache, is_to_stop), is_to_stop):
        yield place


def _facts(packages: str) -> list[Any]:
    """What determines the environment: equal for all that would be built alike."""
    settings = sorted(
        (name, value)
        for name, value in os.environ.items()
        if name.startswith(("CONDA_", "MAMBA_", "PIP_")) and not _ACTIVE.fullmatch(name)
    )
    digest = hashlib.sha256(packages.encode()).hexdigest()
    return ["conda", digest, sysconfig.get_platform(), platform.libc_ver(), settings]


@dataclass(frozen=True)
class _Build:
    """An environment to build at `place`. `packages`: the text of a file of conda."""

    packages: str
    place: Path
    cache: Path
    is_to_stop: Callable[[], bool]

    def run(self, lock: int) -> None:
        """Raises EnvironmentNotBuilt, EndRequested."""
        tool = _tool()
        with self._using_packages(), tempfile.TemporaryDirectory(prefix="shardyard-conda-") as folder:
            file = Path(folder, "environment.yml")
            file.write_text(self.packages, encoding="utf-8")
            arguments = (*_TOOLS[tool.name], "--prefix", str(self.place), "--file", str(file))
            ended = self._process(lock).run(str(tool), *arguments)
        if ended.status != 0:
            error = first_error(ended.output)
            why = shortened(" ".join(error.split())) or ended.text(tool.name)
            raise EnvironmentNotBuilt(why, cause_of(ended.status, error, _NETWORK))
        if not (self.place / "bin" / "python").exists():
            raise EnvironmentNotBuilt(f"{tool.name} has built an environment without Python")

    def empty_cache(self, lock: int) -> None:
        """Raises EnvironmentNotBuilt, EndRequested."""
        if "CONDA_PKGS_DIRS" in os.environ:  # the operator's, which others may use
            return
        with locked(self._packages_lock, fcntl.LOCK_EX) as alone:
            if alone is not None:  # else another rank of this node installs from it
                self._process(lock).run(str(_tool()), "clean", "--all", "--yes")

    @property
    def _packages_lock(self) -> Path:
        folder = self.cache / "conda"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / "packages.lock"

    @contextmanager
    def _using_packages(self) -> Iterator[None]:
        """Keep the downloaded packages until the block ends. Raises EndRequested."""
        while True:
            with locked(self._packages_lock, fcntl.LOCK_SH) as shared:
                if shared is not None:
                    yield
                    return
            if self.is_to_stop():
                raise EndRequested
            time.sleep(TRY_S)

    def _process(self, lock: int) -> BuildProcess:
        """With the variables of this process, so that the tool's own ones, such as CONDA_CHANNELS, count."""
        own = {
            "CONDA_PKGS_DIRS": str(self.cache / "conda" / "packages"),
            "MAMBA_ROOT_PREFIX": str(self.cache / "conda" / "micromamba"),
            "CONDA_ALWAYS_YES": "true",
            "MAMBA_NO_BANNER": "1",
            "NO_COLOR": "1",
            "PIP_NO_INPUT": "1",
        }
        mine = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
        return BuildProcess(own | mine, self.place.parent, lock, environment_folder.BUILD_S, self.is_to_stop)


def _tool() -> Path:
    """The tool of this node. Raises EnvironmentNotBuilt."""
    for name in _TOOLS:
        if (found := shutil.which(name)) is not None:
            return Path(found)
    raise EnvironmentNotBuilt(
        "this node has neither micromamba nor conda on the PATH of its Ray workers: install one on all nodes, or in their image, or "
        "ask for the packages by env.python, which needs none"
    )


def first_error(output: str) -> str:
    """The first error in the output, and what follows it. Empty if there is none."""
    found = _ERROR.search(output)
    return "" if found is None else output[found.start() :]
