"""Values that are set in a spec, each at the path of a key. Those of a command line, as `train.steps=20`, are read as YAML.

An archive holds one version of the code: a spec that gets its code from another place loses it, and the client uploads the new code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ..service.errors import ShardyardError
from ..service.sweep_spec import takes_text, with_values
from ..strategies.layout import Refusal
from . import spec_file
from .errors import InvalidParameter
from .spec_document import parse
from .spec_file import GivenSpec

#: Keys of `code` that name its place.
_PLACE: Final = ("dir", "git", "ref")


def with_overrides(given: GivenSpec, overrides: Sequence[str]) -> GivenSpec:
    """The spec with these values. Relative paths in them are relative to the working folder. Raises as `overridden`."""
    if not overrides:
        return given
    return replace(given, document=spec_file.absolute(overridden(given.document, overrides), Path.cwd()))


def overridden(document: Any, overrides: Sequence[str]) -> Any:
    """A copy of a spec with these values. Raises InvalidParameter for one that is no `KEY=VALUE`, or has no place in the spec."""
    return placed(document, values_of(overrides))


def values_of(overrides: Sequence[str]) -> dict[str, Any]:
    """The values by their paths, in order; of two for one path the later. Raises InvalidParameter for one that is no `KEY=VALUE`.

    In an environment variable and in a command, which are text, a number, true and false stay as they are written.
    """
    values: dict[str, Any] = {}
    for text in overrides:
        path, given, value = text.partition("=")
        if not given or not path:
            raise InvalidParameter(
                f"{text[:200]!r} is no KEY=VALUE.", field="OVERRIDE", remedy="Write it as in: train.steps=20"
            )
        values.pop(path, None)
        values[path] = _read(path, value)
    return values


def _read(path: str, value: str) -> Any:
    try:
        read = parse(value.encode(), "yaml")
    except ShardyardError as error:
        remedy = "Put quotes around it, as YAML does."
        raise InvalidParameter(
            f"{value[:200]!r} is not YAML: {error.message}", field=path[:200], remedy=remedy
        ) from None
    # As numbers, 12.10 and 00714 would become 12.1 and 714.
    return value if isinstance(read, int | float) and takes_text(path) else read


def placed(document: Any, values: Mapping[str, Any]) -> Any:
    """A copy of a spec with these values at their paths, without the archive of its code if they name another place of the code.

    Raises InvalidParameter for a value that has no place in the spec.
    """
    for path, value in values.items():
        try:
            document = with_values(document, {path: value})
        except (Refusal, TypeError, ValueError):
            remedy = "Name a key by its path, as in train.data.seq_len=64 or command[2]=--fast."
            raise InvalidParameter(f"The spec has no place for {path[:200]!r}.", field=path, remedy=remedy) from None
    moved = any(f"code.{key}" in values for key in _PLACE) and values.keys().isdisjoint(("code", "code.archive"))
    return _without_archive(document) if moved else document


def without_old_archive(edited: GivenSpec, draft: GivenSpec) -> GivenSpec:
    """The spec that a user has made of a draft, without the archive of the draft's code if it names another place of the code."""
    before, after = _code(spec_file.absolute(draft.document, Path.cwd())), _code(edited.document)
    moved = after.get("archive") == before.get("archive") and any(before.get(key) != after.get(key) for key in _PLACE)
    return replace(edited, document=_without_archive(edited.document)) if moved else edited


def _without_archive(document: Any) -> Any:
    code = {key: value for key, value in _code(document).items() if key != "archive"}
    return {**document, "code": code} if code else document


def _code(document: Any) -> dict[str, Any]:
    code = document.get("code") if isinstance(document, dict) else None
    return code if isinstance(code, dict) else {}
