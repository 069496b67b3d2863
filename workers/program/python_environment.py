"""The environment of a program's Python on this node: built by uv for the first rank that needs it, and shared by all jobs that ask for it.

Environments are below `cache/environments/`, under the digest of all that determines them (`shared_folder.py`). One is built at its place,
because scripts in it have its path, and counts when its mark is written. uv's cache is below `cache/uv/`; files in an environment are
links to those. An environment that no rank uses is removed 7 days after its last use, or when another one needs its room; what uv
keeps goes with it.
"""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from . import inherited_packages
from .program import PythonEnvironment
from .requirement_files import LOCK, PROJECT, Requirements, names_of, read_requirements
from .shared_folder import remove_unused, shared_folder
from .uv_process import EnvironmentNotBuilt, Uv

#: Seconds after its last use for which an environment is kept.
KEPT_S: Final = 7 * 86_400.0
#: Seconds for a build.
BUILD_S: Final = 1800.0
#: Seconds to wait for another process that builds.
WAIT_S: Final = BUILD_S + 60.0
#: Free bytes that the file system is to have before a build: torch for GPUs takes about 7 GB.
_SPARE_BYTES: Final = 8 << 30
#: The file in an environment that is complete.
_MARK: Final = ".complete"
#: The folder of packages in an environment with the version of this interpreter.
_PACKAGES: Final = f"lib/python{sysconfig.get_python_version()}/site-packages"
#: Variables that would make uv, or the Python that it asks, look elsewhere.
_MISLEADING: Final = (
    *("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME"),
    *("UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_PROJECT", "UV_WORKING_DIR"),
)


@contextmanager
def python_environment(
    wanted: PythonEnvironment, code: Path, cache: Path, is_to_stop: Callable[[], bool]
) -> Iterator[Path]:
    """The environment, which stays until the block ends. `code`: the folder that a relative file is in.

    Raises EnvironmentNotBuilt, FolderUnavailable, EndRequested.
    """
    file = None if wanted.file is None else code / wanted.file
    read = Requirements((), names_of(wanted.requirements)) if file is None else read_requirements(file)
    inherited = inherited_packages.installed() if wanted.inherit else {}
    place = cache / "environments" / _digest(wanted, file, read, inherited)
    build = _Build(wanted, file, place, cache, {name: inherited[name] for name in inherited.keys() - read.names})
    said = False

    def ends() -> bool:
        nonlocal said
        if not said:
            said = True
            _say("waiting for another process on this node that builds the environment")
        return is_to_stop()

    with shared_folder(place, lambda lock: build.run(lock, is_to_stop), (place / _MARK).is_file, ends, WAIT_S):
        yield place


def _digest(wanted: PythonEnvironment, file: Path | None, read: Requirements, inherited: Mapping[str, str]) -> str:
    """The name of the environment: equal for all that would be built alike."""
    facts: list[Any] = [
        [wanted.requirements, wanted.version, wanted.inherit, file is not None and file.name == LOCK],
        [hashlib.sha256(content).hexdigest() for content in read.contents],
        [os.path.realpath(sys.executable), sys.version, sysconfig.get_platform(), platform.libc_ver()],
        [sys.prefix, sorted(inherited.items())] if wanted.inherit else [],
        sorted((name, value) for name, value in os.environ.items() if name.startswith("UV_")),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class _Build:
    """An environment to build at `place`."""

    wanted: PythonEnvironment
    file: Path | None
    place: Path
    cache: Path
    inherited: dict[str, str]  # packages that need not be installed, with their versions

    @property
    def _python(self) -> Path:
        return self.place / "bin" / "python"

    def run(self, lock: int, is_to_stop: Callable[[], bool]) -> None:
        """Raises EnvironmentNotBuilt, EndRequested. Of a failed build nothing stays."""
        shutil.rmtree(self.place, ignore_errors=True)  # of a process that died
        removed = remove_unused(self.place.parent, KEPT_S, _SPARE_BYTES)
        tight = removed or shutil.disk_usage(self.place.parent).free < _SPARE_BYTES
        if tight and "UV_CACHE_DIR" not in os.environ:  # our own cache has the same files
            with contextlib.suppress(EnvironmentNotBuilt):  # another process uses it
                self._uv(lock, is_to_stop, UV_LOCK_TIMEOUT="1").run("cache", "clean")
        try:
            self._build(self._uv(lock, is_to_stop))
            (self.place / _MARK).touch()
        except BaseException:
            shutil.rmtree(self.place, ignore_errors=True)
            raise

    def _build(self, uv: Uv) -> None:
        python = self.wanted.version or sys.executable
        uv.run("venv", "--quiet", "--no-project", "--python", python, str(self.place))
        packages = self.place / _PACKAGES
        if self.wanted.inherit and not packages.is_dir():
            raise EnvironmentNotBuilt(
                f"inherit needs the Python of this node, {platform.python_version()}, and version is {self.wanted.version}"
            )
        if self.file is not None and self.file.name == LOCK:
            arguments = ["--frozen", "--no-default-groups", "--no-install-local", "--project", str(self.file.parent)]
            uv.run("sync", *arguments, "--python", str(self._python))
        else:
            self._install(uv, packages)
        if self.wanted.inherit:
            inherited_packages.inherit(self.place, packages)

    def _install(self, uv: Uv, packages: Path) -> None:
        """Install the requirements and what they need. What is inherited is installed only where its version does not suit."""
        what = ["--", *self.wanted.requirements] if self.file is None else ["--requirements", str(self.file)]
        inherited, excluded = self.inherited, self.place / "inherited.txt"
        while True:
            excluded.write_text("".join(f"{name}\n" for name in inherited))
            options = ["--excludes", str(excluded)] if inherited else []
            uv.run("pip", "install", "--python", str(self._python), *options, *what)
            own = inherited_packages.unfit(packages, inherited)
            if not own:
                return
            inherited = {name: version for name, version in inherited.items() if name not in own}

    def _uv(self, lock: int, is_to_stop: Callable[[], bool], **more: str) -> Uv:
        """uv with the variables of this process, so that its own ones, such as UV_INDEX_URL, count."""
        own = {
            "UV_CACHE_DIR": str(self.cache / "uv"),
            "UV_PYTHON_INSTALL_DIR": str(self.cache / "uv-python"),
            "UV_NO_PROGRESS": "1",
            "NO_COLOR": "1",
        }
        mine = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
        variables = own | mine | {"UV_PROJECT_ENVIRONMENT": str(self.place)} | more
        cwd = self.file.parent if self.file is not None and self.file.name in (LOCK, PROJECT) else self.place.parent
        return Uv(variables, cwd, lock, BUILD_S, is_to_stop)


def _say(text: str) -> None:
    sys.stderr.write(f"shardyard: {text}\n")
    sys.stderr.flush()
