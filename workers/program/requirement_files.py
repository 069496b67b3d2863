"""The files that say what a program's environment has: lists of requirements, `pyproject.toml`, and `uv.lock` with the one beside it.

Jobs share environments, so nothing is installed from the folder of the code: it is one job's.
"""

import contextlib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..regular_files import UnfitFile, read
from .build_process import EnvironmentNotBuilt

LOCK: Final = "uv.lock"
PROJECT: Final = "pyproject.toml"
#: Maximum bytes of a file, and number of files that a list of requirements names.
_MOST_BYTES: Final = 16 << 20
_MOST_FILES: Final = 64
_REMEDY: Final = "nothing is installed from the folder of the code: leave it out, and name the folder in PYTHONPATH"
#: A line that names another file.
_INCLUDE: Final = re.compile(r"(-r|--requirement|-c|--constraint)(?:\s*=\s*|\s*)(\S+)")
#: A line that names something on this machine. What follows an @ is the address of a package.
_LOCAL: Final = re.compile(
    r"(-e|--editable)\b|\.|/|~|file:|(-f|--find-links)(?![\s=]+(\w+://|/))|[\w.-]+(/|\.(whl|zip|tar\.gz)\b)|"
    r"(-i|--(default-|extra-)?index(-url)?)(?=[\s=])(?![\s=]+(https?://|file:///|/))|(git\+)?file:|[\w.-]+\s*(\[[^\]]*\])?\s*@(?!\s*(git\+)?(https?|ssh)://)"
)
#: Of an address what may differ between jobs that share an environment: user and password, as variables.
_USER: Final = re.compile(r"://[^/@\s]*@")


@dataclass(frozen=True)
class Requirements:
    """The contents of all files, and the packages that they name themselves, not as what another one needs."""

    contents: tuple[bytes, ...]
    names: frozenset[str]


def read_requirements(path: Path) -> Requirements:
    """Raises EnvironmentNotBuilt."""
    if path.name in (LOCK, PROJECT):
        project = path.with_name(PROJECT)
        names = frozenset() if path.name == LOCK else names_of(_of_project(path, content_of(path)))
        settings = path.with_name("uv.toml")
        files = dict.fromkeys((path, project, settings) if settings.exists() else (path, project))
        return Requirements(tuple(content_of(one) for one in files), names)
    contents: dict[Path, bytes] = {}
    names = names_of(_lines(path, contents))
    return Requirements(tuple(contents.values()), names)


def requirements(texts: Iterable[str]) -> Iterator[Requirement]:
    """The requirements, without those that cannot be read: uv refuses them."""
    for text in texts:
        with contextlib.suppress(InvalidRequirement):
            yield Requirement(text.partition(" --")[0])


def names_of(texts: Iterable[str]) -> frozenset[str]:
    """The packages that these requirements name."""
    return frozenset(str(canonicalize_name(one.name)) for one in requirements(texts))


def _lines(path: Path, files: dict[Path, bytes]) -> Iterator[str]:
    """The requirements in a list and in those that it names. `files` gets the contents, also those of constraints."""
    files[path] = content_of(path)
    if len(files) > _MOST_FILES:
        raise EnvironmentNotBuilt(f"{path.name} names more than {_MOST_FILES} files")
    for line in files[path].decode(errors="replace").replace("\\\n", " ").splitlines():
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if included := _INCLUDE.match(text):
            other = Path(os.path.normpath(path.parent / included[2]))
            found = [] if "://" in included[2] or other in files else list(_lines(other, files))
            yield from found if included[1] in ("-r", "--requirement") else ()
            continue
        refuse_local(path, text)
        if text and not text.startswith("-"):
            yield text


def refuse_local(path: Path, text: str) -> None:
    """Raise EnvironmentNotBuilt for a line of `path` that installs from this machine, or that variables may make another one."""
    if "${" in _USER.sub("://", text):
        raise EnvironmentNotBuilt(
            f"{path.name} has the line {text[:200]!r}: variables are only for users and passwords"
        )
    if _LOCAL.match(text):
        raise EnvironmentNotBuilt(f"{path.name} has the line {text[:200]!r}, and {_REMEDY}")


def _of_project(path: Path, content: bytes) -> Iterator[str]:
    """The dependencies of a project that are not optional."""
    try:
        document: dict[str, Any] = tomllib.loads(content.decode())
        sources = document.get("tool", {}).get("uv", {}).get("sources", {})
        for name, source in sources.items():
            if any({"path", "workspace"} & one.keys() for one in (source if isinstance(source, list) else [source])):
                raise EnvironmentNotBuilt(f"{path.name} names a folder for {name} in tool.uv.sources, and {_REMEDY}")
        yield from (str(one) for one in document.get("project", {}).get("dependencies", []))
    except (ValueError, AttributeError, TypeError) as error:
        raise EnvironmentNotBuilt(f"{path.name} cannot be read: {error}") from None


def content_of(path: Path) -> bytes:
    """The content of a file that a job names. Raises EnvironmentNotBuilt."""
    try:
        return read(path, _MOST_BYTES)
    except FileNotFoundError:
        raise EnvironmentNotBuilt(
            f"{path} does not exist on this node; files that git or code.ignore exclude are not uploaded"
        ) from None
    except UnfitFile as error:
        raise EnvironmentNotBuilt(error.message.rstrip(".")) from None
    except OSError as error:
        raise EnvironmentNotBuilt(f"{path} cannot be read: {error.strerror}") from None
