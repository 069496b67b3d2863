"""Parses a body into plain JSON data or refuses it: bounded, UTF-8, no duplicate keys, no aliases, no YAML 1.1 surprises.

The same rules apply to YAML and JSON, on the server and in the client. YAML is read by the core schema of YAML 1.2 (`on` is text,
`1e-3` is a number, a date is text), so that both notations of one spec mean the same.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

import yaml

from ..service.spec_text import SpecText
from ..workers.spec import MAX_SPEC_BYTES
from .errors import InvalidEncoding, InvalidSyntax, SpecTooLarge

Format = Literal["json", "yaml"]
Path = tuple[str | int, ...]

MAX_DEPTH = 32
MAX_NODES = 50_000
_INT_LIMIT = 2**63

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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
    return InvalidSyntax(f"The key {key!r} occurs twice{where}.", field=key, remedy=f"Keep one {key!r}.")


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

_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(r"^(?:[-+]?[0-9]{1,40}|0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40})$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)


class _CoreLoader(_Loader):  # type: ignore[misc]
    """Safe loading of the YAML 1.2 core schema: mappings with text keys, lists, text, numbers, booleans and null."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  PyYAML's own shape
    yaml_constructors: dict[str | None, Any] = {}  # noqa: RUF012


def _construct_null(loader: Any, node: yaml.ScalarNode) -> None:
    text = loader.construct_scalar(node)
    if not _NULL.match(text):
        raise _at(node, f"{text[:40]!r} is not null")


def _construct_int(loader: Any, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    if not _INT.match(text):
        raise _at(node, f"{text[:40]!r} is not a whole number")
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    return int(text, base)


def _construct_float(loader: Any, node: yaml.ScalarNode) -> float:
    text = loader.construct_scalar(node)
    if not (_FLOAT.match(text) or _INT.match(text)):
        raise _at(node, f"{text[:40]!r} is not a number")
    bare = text.lower().replace(".inf", "inf").replace(".nan", "nan")
    return float(bare)


def _construct_bool(loader: Any, node: yaml.ScalarNode) -> bool:
    text = loader.construct_scalar(node)
    if not _BOOL.match(text):
        raise _at(node, f"{text[:40]!r} is neither true nor false")
    return bool(text.lower() == "true")


def _construct_mapping(loader: Any, node: yaml.Node) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise _at(node, f"the tag {node.tag!r} needs a mapping")
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
            raise _at(key_node, "a key is not text; put it in quotes")
        key = key_node.value
        if key in found:
            raise _duplicate(key, f": again at line {key_node.start_mark.line + 1}")
        found[key] = loader.construct_object(value_node, deep=True)
    return found


def _construct_list(loader: Any, node: yaml.Node) -> list[Any]:
    if not isinstance(node, yaml.SequenceNode):
        raise _at(node, f"the tag {node.tag!r} needs a list")
    return [loader.construct_object(inner, deep=True) for inner in node.value]


def _refuse_tag(_loader: Any, node: yaml.Node) -> Any:
    raise _at(node, f"the tag {node.tag!r} is not accepted")


def _at(node: yaml.Node, problem: str) -> InvalidSyntax:
    return InvalidSyntax(
        f"Not a spec's YAML: {problem} (line {node.start_mark.line + 1}, column {node.start_mark.column + 1}).",
        remedy="Write plain mappings, lists, text and numbers.",
    )


for _tag, _pattern, _first in (
    ("null", _NULL, ["~", "n", "N", ""]),
    ("bool", _BOOL, list("tTfF")),
    ("int", _INT, list("-+0123456789")),
    ("float", _FLOAT, list("-+0123456789.")),
):
    _CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, _first)
for _tag, _construct in (
    ("null", _construct_null),
    ("bool", _construct_bool),
    ("int", _construct_int),
    ("float", _construct_float),
    ("str", lambda loader, node: loader.construct_scalar(node)),
    ("seq", _construct_list),
    ("map", _construct_mapping),
):
    _CoreLoader.add_constructor(f"tag:yaml.org,2002:{_tag}", _construct)
_CoreLoader.add_constructor(None, _refuse_tag)


def _from_yaml(text: str) -> Any:
    try:
        _check_events(text)
        return yaml.load(text, Loader=_CoreLoader)  # noqa: S506  a subclass of the safe loader, with less in it
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
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
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
