"""The environment of a program's Python on this node, built by uv (`environment_folder.py` keeps it).

uv's cache is below `cache/uv/`; files in an environment are links to those.
"""

import hashlib
import os
import platform
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from . import environment_folder, inherited_packages
from .build_process import BuildProcess, EnvironmentNotBuilt
from .program import PythonEnvironment
from .requirement_files import LOCK, PROJECT, Requirements, named, read_requirements
from .uv_process import Uv

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
    read = Requirements((), *named(wanted.requirements)) if file is None else read_requirements(file)
    if wanted.inherit and read.nameless:
        why = f"with inherit {read.nameless[0][:200]!r} might be taken for what the nodes have"
        raise EnvironmentNotBuilt(f"{why}: write its name before the address, as in NAME @ https://…")
    inherited = inherited_packages.installed() if wanted.inherit else {}
    place = environment_folder.folder_of(cache, _facts(wanted, file, read, inherited))
    left = {name: inherited[name] for name in inherited.keys() - read.names}
    build = _Build(wanted, file, read.project, place, cache, left, is_to_stop)
    with environment_folder.kept(place, build, is_to_stop):
        yield place


def _facts(wanted: PythonEnvironment, file: Path | None, read: Requirements, inherited: Mapping[str, str]) -> list[Any]:
    """What determines the environment: equal for all that would be built alike."""
    return [
        [wanted.requirements, wanted.version, wanted.inherit, file is not None and file.name == LOCK],
        [hashlib.sha256(content).hexdigest() for content in read.contents],
        [os.path.realpath(sys.executable), sys.version, sysconfig.get_platform(), platform.libc_ver()],
        [sys.prefix, sorted(inherited.items())] if wanted.inherit else [],
        sorted((name, value) for name, value in os.environ.items() if name.startswith("UV_")),
    ]


@dataclass(frozen=True)
class _Build:
    """An environment to build at `place`."""

    wanted: PythonEnvironment
    file: Path | None
    project: dict[str, bytes] | None  # of a `pyproject.toml` the files, if it needs no others
    place: Path
    cache: Path
    inherited: dict[str, str]  # packages that need not be installed, with their versions
    is_to_stop: Callable[[], bool]

    @property
    def _python(self) -> Path:
        return self.place / "bin" / "python"

    def empty_cache(self, lock: int) -> None:
        """Raises EnvironmentNotBuilt, EndRequested."""
        if "UV_CACHE_DIR" not in os.environ:  # our own cache has the same files
            self._uv(lock, UV_LOCK_TIMEOUT="1").run("cache", "clean")

    def run(self, lock: int) -> None:
        """Raises EnvironmentNotBuilt, EndRequested."""
        uv = self._uv(lock)
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
        what = (
            ["--", *self.wanted.requirements] if self.file is None else ["--requirements", str(self._alone(self.file))]
        )
        at = [] if self.project is None else ["--directory", str(self._apart)]  # whose settings count
        inherited, excluded = self.inherited, self.place / "inherited.txt"
        while True:
            excluded.write_text("".join(f"{name}\n" for name in inherited))
            options = ["--excludes", str(excluded)] if inherited else []
            uv.run("pip", "install", *at, "--python", str(self._python), *options, *what)
            own = inherited_packages.unfit(packages, inherited)
            if not own:
                return
            inherited = {name: version for name, version in inherited.items() if name not in own}

    def _alone(self, file: Path) -> Path:
        """The file, or a copy of a project's apart from its code: uv would also read what is beside and above it, which is one job's."""
        if self.project is None:
            return file
        self._apart.mkdir(exist_ok=True)
        for name, content in self.project.items():
            (self._apart / name).write_bytes(content)
        return self._apart / file.name

    @property
    def _apart(self) -> Path:
        return self.place / "project"

    def _uv(self, lock: int, **more: str) -> Uv:
        """uv with the variables of this process, so that its own ones, such as UV_INDEX_URL, count."""
        own = {
            "UV_CACHE_DIR": str(self.cache / "uv"),
            "UV_PYTHON_INSTALL_DIR": str(self.cache / "uv-python"),
            "UV_NO_PROGRESS": "1",
            "NO_COLOR": "1",
        }
        mine = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
        variables = own | mine | {"UV_PROJECT_ENVIRONMENT": str(self.place)} | more
        beside = self.file is not None and self.file.name in (LOCK, PROJECT) and self.project is None
        cwd = self.file.parent if self.file is not None and beside else self.place.parent
        return Uv(BuildProcess(variables, cwd, lock, environment_folder.BUILD_S, self.is_to_stop))
