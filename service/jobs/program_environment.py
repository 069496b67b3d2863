"""Checks `env`: the Python environment of a job's program. Whether a file in the code is there is only known on the nodes."""

import contextlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement

from ..errors import InvalidSpec, MissingFile
from ..program_spec import Environment, has_credentials

_PYTHON: Final = "env.python"
_CONDA: Final = "env.conda"
_NAMES: Final = ("pyproject.toml", "uv.lock")
_OF_CONDA: Final = (".yml", ".yaml")


def check(env: Environment, *, in_code: bool) -> None:
    """Raise InvalidSpec for what no node could build. `in_code`: the job has a folder of code."""
    if env.conda is not None:
        _check_conda_file(PurePosixPath(env.conda), in_code=in_code)
    elif isinstance(env.python, str):
        _check_python_file(PurePosixPath(env.python), in_code=in_code)
    else:
        _check_requirements(env.python or ())


def check_there(env: Environment, _: float) -> None:
    """Raise MissingFile if this machine, which sees the nodes' files, lacks a file that has an absolute path."""
    for field, file in ((_PYTHON, env.python), (_CONDA, env.conda)):
        if isinstance(file, str) and file.startswith("/") and not _is_file(file):
            raise MissingFile(f"{file[:200]} is no file.", field=field, remedy="Name a file that all nodes have.")


def _is_file(file: str) -> bool:
    with contextlib.suppress(OSError):  # a name too long
        return Path(file).is_file()
    return False


def _check_python_file(file: PurePosixPath, *, in_code: bool) -> None:
    if file.suffix in _OF_CONDA:
        raise InvalidSpec(
            f"{str(file)[:200]!r} is no file that uv reads.",
            field=_PYTHON,
            remedy=f"A file of conda is named by env: {{conda: {file.name[:50]}}}; a .txt file of requirements by python.",
        )
    if file.name not in _NAMES and file.suffix != ".txt":
        raise InvalidSpec(
            f"{str(file)[:200]!r} is no file that uv reads.",
            field=_PYTHON,
            remedy=f"Name a .txt file of requirements, {' or '.join(_NAMES)}. A single requirement is a list: [{file.name[:50]}].",
        )
    _check_place(file, _PYTHON, in_code=in_code)


def _check_conda_file(file: PurePosixPath, *, in_code: bool) -> None:
    if file.suffix not in _OF_CONDA:
        raise InvalidSpec(
            f"{str(file)[:200]!r} is no file that conda reads.",
            field=_CONDA,
            remedy="Name a .yml or .yaml file, such as environment.yml. Requirements of pip are named by env.python.",
        )
    _check_place(file, _CONDA, in_code=in_code)


def _check_place(file: PurePosixPath, field: str, *, in_code: bool) -> None:
    if ".." in file.parts:
        raise InvalidSpec(
            f"{str(file)[:200]!r} leaves its folder.",
            field=field,
            remedy="Name a file inside the folder of code, or write an absolute path without '..'.",
        )
    if not file.is_absolute() and not in_code:
        raise InvalidSpec(
            f"{str(file)[:200]!r} is a relative path, and the job has no code.",
            field=field,
            remedy="Upload the folder that it is in with code: {dir: .}, or write a path that every node sees.",
        )


def _check_requirements(requirements: Sequence[str]) -> None:
    for number, text in enumerate(requirements):
        why = _wrong(text)
        if why is not None:
            raise InvalidSpec(
                f"{text[:200]!r} {why}.",
                field=f"{_PYTHON}[{number}]",
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
