"""Converts a spec file into the document that is sent: parsed, with its relative paths made absolute.

Relative paths are relative to the spec file's folder, so that a job means the same wherever it is submitted. Those of a temporary file are
relative to the folder in which its user works.
"""

import glob
import json
import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..service.schemas.model import Reference
from ..service.spec import CommandSpec, JobSpec
from ..service.spec_text import MOST_BYTES, SpecText, changed
from .errors import SpecFileMissing
from .given_path import given_path
from .spec_document import parse, read_text


@dataclass(frozen=True)
class GivenSpec:
    """A spec that was read once: a pipe is empty when it is read again, and a file may be another one by then."""

    document: Any
    """With absolute paths."""
    text: str | None = None
    """Of a file in YAML."""


def read(
    spec: GivenSpec | JobSpec | CommandSpec | Mapping[str, Any] | str | Path, folder: Path | None = None
) -> GivenSpec:
    """A path is read (YAML, or JSON by its suffix); in a mapping, paths are relative to the working folder.

    `folder`: to which those in a file are relative; None: to its own.
    """
    if isinstance(spec, GivenSpec):
        return spec
    if isinstance(spec, JobSpec | CommandSpec):
        return GivenSpec(absolute(spec.model_dump(mode="json", by_alias=True, exclude_unset=True), Path.cwd()))
    if isinstance(spec, Mapping):
        return GivenSpec(absolute(dict(spec), Path.cwd()))
    path = given_path(spec)
    content, is_json = _read(path), path.suffix == ".json"
    # A pipe, such as /dev/stdin, is in no folder of its user's.
    folder = folder or (path.resolve().parent if path.is_file() else Path.cwd())
    document = absolute(parse(content, "json" if is_json else "yaml"), folder)
    return GivenSpec(document, None if is_json else content.decode("utf-8-sig"))


def load(spec: GivenSpec | JobSpec | CommandSpec | Mapping[str, Any] | str | Path) -> Any:
    """The document to send, as `read`."""
    return read(spec).document


def text_of(given: GivenSpec, document: Any) -> str | None:
    """The text of a file in YAML, with the values of `document` in it. None: another file, or it cannot be changed in place."""
    found = None if given.text is None else changed(SpecText("yaml", given.text), document, read_text)
    return None if found is None else found.text


def sent_text(given: GivenSpec, document: Any) -> SpecText:
    """What is submitted: the text of a file in YAML with the document's values, else the document as JSON.

    JSON has a line per value, as the service keeps it; one that is too long to be kept is not made longer.
    """
    if (text := text_of(given, document)) is not None:
        return SpecText("yaml", text)
    lines = json.dumps(document, indent=2)
    return SpecText("json", lines if len(lines) <= MOST_BYTES else json.dumps(document))


def absolute(document: Any, folder: Path) -> Any:
    """A copy with absolute file names. Values that do not have the shape of a spec are left for the server to refuse."""
    document = deepcopy(document)
    code = _mapping(document, "code")
    if code.get("dir"):
        code["dir"] = _join(folder, code["dir"])
    elif isinstance(code.get("git"), str):
        if ":" not in code["git"]:  # neither a URL nor `host:path`
            code["git"] = _join(folder, code["git"])
    else:  # beside `code` these are relative to that folder
        environment = _mapping(document, "env")
        for owner, field in ((document, "cwd"), (environment, "python"), (environment, "conda")):
            if isinstance(owner, dict) and owner.get(field):
                owner[field] = _join(folder, owner[field])
    files = _mapping(document, "files")
    for target, source in files.items():
        if isinstance(source, str) and "://" not in source:
            files[target] = _join(folder, source)
    train = _mapping(document, "train")
    data, model = _mapping(train, "data"), _mapping(train, "model")
    if isinstance(data.get("files"), list):
        data["files"] = [_join_pattern(folder, name) for name in data["files"]]
    if data.get("tokenizer", "bytes") != "bytes":
        data["tokenizer"] = _join(folder, data["tokenizer"])
    for field in ("code", "from"):
        if model.get(field):
            model[field] = _join(folder, model[field])
    for owner in (train, document):  # a training job, or one that runs a command
        _join_storage(folder, owner)
    return document


def _join_storage(folder: Path, owner: Any) -> None:
    checkpoint = _mapping(owner, "checkpoint")
    if isinstance(checkpoint.get("uri"), str) and "://" not in checkpoint["uri"]:
        checkpoint["uri"] = _join(folder, checkpoint["uri"])
    source = owner.get("resume_from") if isinstance(owner, dict) else None
    if isinstance(source, str) and Reference.parse(source) is None and ("/" in source or source.startswith(("~", "."))):
        owner["resume_from"] = _join(folder, source)


def _mapping(owner: Any, key: str) -> dict[str, Any]:
    found = owner.get(key) if isinstance(owner, dict) else None
    return found if isinstance(found, dict) else {}


def _join(folder: Path, name: Any) -> Any:
    if not isinstance(name, str) or not name or "://" in name:  # an address is the server's to refuse
        return name
    try:
        return str(folder / Path(name).expanduser())
    except RuntimeError:  # `~user` for a user that this machine does not have
        return name


def _join_pattern(folder: Path, name: Any) -> Any:
    """A file's name, or a glob, in which every character of the folder stands for itself. What is there by its name is no glob."""
    joined = _join(folder, name)
    if joined == name or not glob.has_magic(name) or os.path.exists(joined):  # noqa: PTH110  (a name may be too long)
        return joined
    return _join(Path(glob.escape(str(folder))), name)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or "cannot be read"
        raise SpecFileMissing(f"{path}: {reason}.", remedy="Give the path of a YAML or JSON job spec.") from None
