"""Checks `env`: the Python environment of a job's program. Whether a file in the code is there is only known on the nodes."""

import contextlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement

from ..errors import InvalidSpec, MissingFile
from ..program_spec import Environment, has_credentials

_FIELD: Final = "env.python"
_NAMES: Final = ("pyproject.toml", "uv.lock")


def check(env: Environment, *, in_code: bool) -> None:
    """Raise InvalidSpec for what no node could build. `in_code`: the job has a folder of code."""
    if isinstance(env.python, str):
        _check_file(PurePosixPath(env.python), in_code=in_code)
    else:
        _check_requirements(env.python)


def check_there(file: str, _: float) -> None:
    """Raise MissingFile if this machine, which sees the nodes' files, has no such file."""
    with contextlib.suppress(OSError):  # a name too long
        if Path(file).is_file():
            return
    raise MissingFile(f"{file[:200]} is no file.", field=_FIELD, remedy="Name a file that all nodes have.")


def _check_file(file: PurePosixPath, *, in_code: bool) -> None:
    if file.name not in _NAMES and file.suffix != ".txt":
        raise InvalidSpec(
            f"{str(file)[:200]!r} is no file that uv reads.",
            field=_FIELD,
            remedy=f"Name a .txt file of requirements, {' or '.join(_NAMES)}. A single requirement is a list: [{file.name[:50]}].",
        )
    if ".." in file.parts:
        raise InvalidSpec(
            f"{str(file)[:200]!r} leaves its folder.",
            field=_FIELD,
            remedy="Name a file inside the folder of code, or write an absolute path without '..'.",
        )
    if not file.is_absolute() and not in_code:
        raise InvalidSpec(
            f"{str(file)[:200]!r} is a relative path, and the job has no code.",
            field=_FIELD,
            remedy="Upload the folder that it is in with code: {dir: .}, or write a path that every node sees.",
        )


def _check_requirements(requirements: Sequence[str]) -> None:
    for number, text in enumerate(requirements):
        why = _wrong(text)
        if why is not None:
            raise InvalidSpec(
                f"{text[:200]!r} {why}.",
                field=f"{_FIELD}[{number}]",
                remedy="Write a requirement such as einops==0.8. Options belong into a file of requirements, or into uv's variables in "
                "resources.env, such as UV_INDEX_URL.",
            )


def _wrong(text: str) -> str | None:
    """What is wrong with a requirement."""
    try:
        url = Requirement(text).url
    except InvalidRequirement as error:
        return (
            "is an option" if text.startswith("-") else f"is no requirement: {str(error).splitlines()[0].rstrip('.')}"
        )
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme.removeprefix("git+") not in ("https", "http", "ssh"):
        return "names a file or an unknown kind of address"
    return "has a user or a password, and every user can read the specs of all jobs" if has_credentials(url) else None
