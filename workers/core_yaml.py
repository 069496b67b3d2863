"""Reads YAML by the core schema of YAML 1.2 (`on` is text, `1e-3` is a number, a date is text), so that a spec means the same in JSON."""

import re
from typing import Any, Final

import yaml

#: PyYAML's own safe loader, of libyaml where it has that.
SAFE_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(r"^(?:[-+]?[0-9]{1,40}|0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40})$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)


class NotPlain(yaml.MarkedYAMLError):
    """A value is none of plain mappings with text keys, lists, text, numbers, booleans and null. `line` and `column` begin with 1."""

    def __init__(self, node: yaml.Node, problem: str) -> None:
        super().__init__(problem=problem, problem_mark=node.start_mark)
        self.line, self.column = node.start_mark.line + 1, node.start_mark.column + 1


class RepeatedKey(NotPlain):
    """`key` occurs twice in one mapping."""

    def __init__(self, node: yaml.ScalarNode) -> None:
        super().__init__(node, f"the key {node.value!r} occurs twice")
        self.key: str = node.value


def load(text: str) -> Any:
    """Plain data. Raises yaml.YAMLError; RepeatedKey and NotPlain are such errors."""
    return yaml.load(text, Loader=_CoreLoader)  # noqa: S506  a subclass of the safe loader, with less in it


class _CoreLoader(SAFE_LOADER):  # type: ignore[misc]
    """Safe loading of the YAML 1.2 core schema: mappings with text keys, lists, text, numbers, booleans and null."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  PyYAML's own shape
    yaml_constructors: dict[str | None, Any] = {}  # noqa: RUF012


def _construct_null(loader: Any, node: yaml.ScalarNode) -> None:
    text = loader.construct_scalar(node)
    if not _NULL.match(text):
        raise NotPlain(node, f"{text[:40]!r} is not null")


def _construct_int(loader: Any, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    if not _INT.match(text):
        raise NotPlain(node, f"{text[:40]!r} is not a whole number")
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    return int(text, base)


def _construct_float(loader: Any, node: yaml.ScalarNode) -> float:
    text = loader.construct_scalar(node)
    if not (_FLOAT.match(text) or _INT.match(text)):
        raise NotPlain(node, f"{text[:40]!r} is not a number")
    bare = text.lower().replace(".inf", "inf").replace(".nan", "nan")
    return float(bare)


def _construct_bool(loader: Any, node: yaml.ScalarNode) -> bool:
    text = loader.construct_scalar(node)
    if not _BOOL.match(text):
        raise NotPlain(node, f"{text[:40]!r} is neither true nor false")
    return bool(text.lower() == "true")


def _construct_mapping(loader: Any, node: yaml.Node) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise NotPlain(node, f"the tag {node.tag!r} needs a mapping")
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
            raise NotPlain(key_node, "a key is not text; put it in quotes")
        key = key_node.value
        if key in found:
            raise RepeatedKey(key_node)
        found[key] = loader.construct_object(value_node, deep=True)
    return found


def _construct_list(loader: Any, node: yaml.Node) -> list[Any]:
    if not isinstance(node, yaml.SequenceNode):
        raise NotPlain(node, f"the tag {node.tag!r} needs a list")
    return [loader.construct_object(inner, deep=True) for inner in node.value]


def _refuse_tag(_loader: Any, node: yaml.Node) -> Any:
    raise NotPlain(node, f"the tag {node.tag!r} is not accepted")


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
