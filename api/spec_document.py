"""Parses a body into plain JSON data or refuses it: bounded, UTF-8, no duplicate keys, no aliases, no YAML 1.1 surprises.

The same rules apply to YAML and JSON, on the server and in the client.
"""

import json
from collections.abc import Iterator
from typing import Any, Literal

import yaml

from ..service.spec_text import SpecText
from ..workers.core_yaml import SAFE_LOADER, NotPlain, RepeatedKey, load
from ..workers.spec import MAX_SPEC_BYTES
from .errors import InvalidEncoding, InvalidSyntax, SpecTooLarge

Format = Literal["json", "yaml"]
Path = tuple[str | int, ...]

MAX_DEPTH = 32
MAX_NODES = 50_000
_INT_LIMIT = 2**63


def parse(body: bytes, form: Format) -> Any:
    """Plain data (dict, list, str, int, float, bool, None). Raises `SpecTooLarge`, `InvalidEncoding`, `InvalidSyntax`.

    Not-a-number and infinities are accepted here: the spec's own check refuses them by field.
    """
    if len(body) > MAX_SPEC_BYTES:
        raise SpecTooLarge()
    text = _decode(body)
    try:
        data = _from_json(text) if form == "json" else _from_yaml(text)
    except RecursionError:
        raise _too_deep(()) from None
    for count, (path, value) in enumerate(walk(data)):
        if count >= MAX_NODES:
            raise _too_many()
        _check_value(path, value)
    return data


def read_text(given: SpecText) -> Any:
    """As `parse`, of a text."""
    return parse(given.text.encode(), given.format)


def walk(data: Any) -> Iterator[tuple[Path, Any]]:
    """Every value of plain data with its path, parents first. Does not recurse."""
    stack: list[tuple[Path, Any]] = [((), data)]
    while stack:
        path, value = stack.pop()
        yield path, value
        if isinstance(value, dict):
            stack.extend(((*path, key), inner) for key, inner in value.items())
        elif isinstance(value, list):
            stack.extend(((*path, index), inner) for index, inner in enumerate(value))


def dotted(path: Path) -> str:
    """`("train", "data", "files", 0)` → `train.data.files[0]`; the path of the whole body is the empty text."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _decode(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidEncoding(
            f"The body is not UTF-8: byte {error.start} is 0x{body[error.start]:02x}.",
            remedy="Save the spec as UTF-8 and send it again.",
        ) from None


def _check_value(path: Path, value: Any) -> None:
    if len(path) > MAX_DEPTH:
        raise _too_deep(path[:4])
    if path and isinstance(path[-1], str):
        _check_text(path[:-1], path[-1])
    if isinstance(value, str):
        _check_text(path, value)
    elif isinstance(value, int) and not -_INT_LIMIT <= value < 2 * _INT_LIMIT:
        raise InvalidSyntax("The number does not fit 64 bits.", field=dotted(path), remedy="Use a smaller number.")


def _check_text(path: Path, text: str) -> None:
    if "\0" in text or not _encodable(text):
        raise InvalidSyntax(
            "Text holds a NUL character or half of a surrogate pair.",
            field=dotted(path),
            remedy="Remove the \\u0000 or \\udXXX escape.",
        )


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_deep(path: Path) -> InvalidSyntax:
    return InvalidSyntax(
        f"The body is nested more than {MAX_DEPTH} levels deep.",
        field=dotted(path) or None,
        remedy="A spec needs no more than a few levels; see GET /v1/schema/job.",
    )


def _too_many() -> InvalidSyntax:
    return InvalidSyntax(f"The body holds more than {MAX_NODES} values.", remedy="Name many files by a glob.")


def _duplicate(key: str, where: str) -> InvalidSyntax:
    field = key if _encodable(key) else None
    return InvalidSyntax(f"The key {key!r} occurs twice{where}.", field=field, remedy=f"Keep one {key!r}.")


# JSON


def _from_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise InvalidSyntax(
            f"Not JSON: {error.msg} at line {error.lineno}, column {error.colno}.",
            remedy="Correct that line, or send YAML with Content-Type: application/yaml.",
        ) from None
    except ValueError:  # an integer of more digits than Python converts
        raise InvalidSyntax("A number has thousands of digits.", remedy="Use a smaller number.") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _duplicate(key, " in one object")
        found[key] = value
    return found


# YAML


def _from_yaml(text: str) -> Any:
    try:
        _check_events(text)
        return load(text)
    except RepeatedKey as error:
        raise _duplicate(error.key, f": again at line {error.line}") from None
    except NotPlain as error:
        raise InvalidSyntax(
            f"Not a spec's YAML: {error.problem} (line {error.line}, column {error.column}).",
            remedy="Write plain mappings, lists, text and numbers.",
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InvalidSyntax(
            f"Not YAML: {error.problem or error.context}{where}.", remedy="Correct that line."
        ) from None
    except yaml.YAMLError as error:
        raise InvalidSyntax(f"Not YAML: {error}.", remedy="Remove control characters and save as UTF-8.") from None


def _line(mark: Any) -> str:
    return f" at line {mark.line + 1}" if mark else ""


def _check_events(text: str) -> None:
    """Refuse aliases and excessive depth before anything is built, so that a small text cannot become a huge value."""
    depth = documents = 0
    for count, event in enumerate(yaml.parse(text, Loader=SAFE_LOADER)):
        if count > MAX_NODES:
            raise _too_many()
        if isinstance(event, yaml.AliasEvent):
            raise InvalidSyntax(
                f"The alias *{event.anchor}{_line(event.start_mark)} is not accepted.",
                remedy="Write the value out in both places.",
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(())
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise InvalidSyntax("The body holds more than one YAML document.", remedy="Send one job per request.")
