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
#: A line that continues in the next one, and the options behind a requirement.
_CONTINUED: Final = re.compile(r"\\\r?\n")
_OPTIONS: Final = re.compile(r"\s+--")
#: Settings of uv that name folders or addresses.
_PLACES: Final = ("find-links", "extra-index-url", "index-url", "index", "default-index")
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
    """The contents of all files, and the packages that they name themselves, not as what another one needs.

    `nameless`: requirements that are an address alone. `project`: the files of a `pyproject.toml` that needs no other file.
    """

    contents: tuple[bytes, ...]
    names: frozenset[str]
    nameless: tuple[str, ...] = ()
    project: dict[str, bytes] | None = None


def read_requirements(path: Path) -> Requirements:
    """Raises EnvironmentNotBuilt."""
    if path.name in (LOCK, PROJECT):
        settings = path.with_name("uv.toml")
        paths = (path, path.with_name(PROJECT), *([settings] if settings.exists() else []))
        files = {one.name: content_of(one) for one in dict.fromkeys(paths)}
        if path.name == LOCK:
            return Requirements(tuple(files.values()), frozenset())
        document = _document(path, files[PROJECT])
        _refuse_folders(path, document.get("tool", {}).get("uv", {}))
        if settings.exists():
            _refuse_folders(settings, _document(settings, files[settings.name]))
        names, nameless = named(_of_project(path, document))
        return Requirements(tuple(files.values()), names, nameless, files if "project" in document else None)
    contents: dict[Path, bytes] = {}
    names, nameless = named(_lines(path, contents))
    return Requirements(tuple(contents.values()), names, nameless)


def requirements(texts: Iterable[str]) -> Iterator[Requirement]:
    """The requirements that have a name."""
    for text in texts:
        with contextlib.suppress(InvalidRequirement):
            yield Requirement(_OPTIONS.split(text)[0])


def named(texts: Iterable[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """The packages that these requirements name, and those requirements that name none, such as an address."""
    names: set[str] = set()
    nameless: list[str] = []
    for text in texts:
        found = list(requirements([text]))
        names.update(str(canonicalize_name(one.name)) for one in found)
        nameless += [] if found else [text]
    return frozenset(names), tuple(nameless)


def _lines(path: Path, files: dict[Path, bytes]) -> Iterator[str]:
    """The requirements in a list and in those that it names. `files` gets the contents, also those of constraints."""
    files[path] = content_of(path)
    if len(files) > _MOST_FILES:
        raise EnvironmentNotBuilt(f"{path.name} names more than {_MOST_FILES} files")
    for line in _CONTINUED.sub(" ", files[path].decode(errors="replace")).splitlines():
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


def _document(path: Path, content: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode())
    except ValueError as error:
        raise EnvironmentNotBuilt(f"{path.name} cannot be read: {error}") from None


def _of_project(path: Path, document: dict[str, Any]) -> list[str]:
    """The dependencies of a project that are not optional. Raises EnvironmentNotBuilt, also where they are in other files."""
    try:
        for name, source in document.get("tool", {}).get("uv", {}).get("sources", {}).items():
            if any(map(_is_local, source if isinstance(source, list) else [source])):
                raise EnvironmentNotBuilt(
                    f"{path.name} names a local path for {name} in tool.uv.sources, and {_REMEDY}"
                )
        if "dependencies" in document.get("project", {}).get("dynamic", []) or not (
            "project" in document or "poetry" in document.get("tool", {})
        ):
            why = f"the dependencies of {path.name} are in other files of the code, and jobs share environments"
            raise EnvironmentNotBuilt(f"{why}: name the file that has them in env.python, or use uv.lock")
        dependencies = [str(one).strip() for one in document.get("project", {}).get("dependencies", [])]
    except (AttributeError, TypeError) as error:
        raise EnvironmentNotBuilt(f"{path.name} cannot be read: {error}") from None
    for one in dependencies:
        refuse_local(path, one)
    return dependencies


def _is_local(source: dict[str, Any]) -> bool:
    """Whether a package's source in `tool.uv.sources` is on this machine."""
    addresses = [source.get(kind, "") for kind in ("url", "git")]
    return bool({"path", "workspace"} & source.keys()) or any(one.startswith("file:") for one in addresses)


def _refuse_folders(path: Path, settings: Any) -> None:
    """Raise EnvironmentNotBuilt for uv's settings that name a folder beside `path`."""
    for name in _PLACES:
        found = settings.get(name, []) if isinstance(settings, dict) else []
        for one in found if isinstance(found, list) else [found]:
            place = one.get("url", "") if isinstance(one, dict) else one
            if isinstance(place, str) and not re.match(r"(\w[\w+.-]*://|/)", place):
                raise EnvironmentNotBuilt(f"{path.name} names {place[:200]!r} in uv's {name}, and {_REMEDY}")


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
