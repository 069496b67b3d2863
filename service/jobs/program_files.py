"""Checks `files`: where a job's program finds files, and their sources. Whether a bucket or the Hub has them is known on the nodes."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from ...strategies.layout import Refusal
from ...workers.program.files.source import parse
from ..errors import InvalidSpec, MissingFile

_PATHS = "The program finds it in the folder of code, and in the folder that the variable SHARDYARD_FILES names."


def check(files: Mapping[str, str]) -> dict[str, str]:
    """Raise InvalidSpec for targets and sources that no node could have. Returns those that are paths, by target."""
    paths = {}
    for target, text in files.items():
        _check_target(target, files)
        try:
            source = parse(text)
        except Refusal as error:
            raise InvalidSpec(error.message, field=_field(target), remedy=error.remedy) from None
        if source.kind == "path":
            paths[target] = source.where
    return paths


def check_there(paths: Mapping[str, str], _: float) -> None:
    """Raise MissingFile if this machine, which sees the nodes' files, lacks one of the paths."""
    for target, path in paths.items():
        with contextlib.suppress(OSError):  # a name too long
            if Path(path).exists():
                continue
        raise MissingFile(
            f"{path[:200]} does not exist.", field=_field(target), remedy="Name a path that all nodes see."
        )


def _check_target(target: str, files: Mapping[str, str]) -> None:
    parts = target.split("/")
    if target.startswith(("/", "~")):
        remedy = f"Write a relative path, such as {target.strip('/~').rpartition('/')[2] or 'data'}. {_PATHS}"
        raise InvalidSpec(
            f"{target[:200]!r} is an absolute path, and a job may not write there.", field=_field(target), remedy=remedy
        )
    if any(part in ("", ".", "..") or len(part.encode()) > 255 for part in parts):
        remedy = "Write a plain relative path, such as data/train, without '.', '..' and empty parts."
        raise InvalidSpec(f"{target[:200]!r} is no plain path.", field=_field(target), remedy=remedy)
    for number in range(1, len(parts)):
        if (above := "/".join(parts[:number])) in files:
            raise InvalidSpec(
                f"{target[:200]!r} is inside {above[:200]!r}, which has files of its own.",
                field=_field(target),
                remedy="Choose targets of which none contains another.",
            )


def _field(target: str) -> str:
    return f"files.{target[:200]}"
