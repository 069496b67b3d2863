"""The text of a spec as it was submitted: a text that is kept always reads to the document that was checked.

It is kept for people, who find their comments and their layout in it. A change replaces and adds values in place, by the
positions that PyYAML's nodes have: to load and write the text again would give it another layout.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import yaml

from ..workers.core_yaml import SAFE_LOADER
from .errors import ShardyardError

#: Longer texts are not kept: they are written by programs, and every change reads the whole text.
MOST_BYTES: Final = 64 << 10

_LEFT_OUT: Final = "# (left out: it may hold a credential)"
_COMMENT: Final = re.compile(r"#[^\r\n\x85\u2028\u2029]*")
#: The head of a block of text, which has its comment inside of the block's token.
_HEAD: Final = re.compile(rf"[|>][-+\d]*[ \t]*({_COMMENT.pattern})")
#: Tokens by their shape, and passwords in addresses. A text of one long word is searched in one pass: no part is unbounded at each place.
_TOKEN: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]{0,15}://[^\s/@:]*:[^\s/@]+@[^\s\"']*|\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA)[\w-]{12,}"
)
#: A variable whose name says that its value is secret.
_ASSIGNED: Final = re.compile(r"(?i)(?:token|secret|password|passwd|api_?key|access_?key)[\"']?\s*[:=]\s*\S")
_KEY_FILE: Final = "PRIVATE KEY-----"
#: Text that needs no quotes, here and inside of brackets.
_PLAIN: Final = re.compile(r"(?:[A-Za-z_/]|\.(?!\d))[\w./@+=-]*")


@dataclass(frozen=True)
class SpecText:
    """A spec as text, and its notation."""

    format: Literal["yaml", "json"]
    text: str


#: Reads a text by the rules for specs. Raises ShardyardError.
Read = Callable[[SpecText], Any]


def kept(given: SpecText, read: Read) -> SpecText | None:
    """The text as it may be stored: without comments that may hold a credential. None if it is too long, or has one elsewhere.

    In its values is what the spec's own check lets pass, which is stored in the spec as well.
    """
    if len(given.text.encode()) > MOST_BYTES or _KEY_FILE in given.text:
        return None
    if given.format == "json" or not (_TOKEN.search(given.text) or _ASSIGNED.search(given.text)):
        return given
    document, text = read(given), given.text
    values = json.dumps(document, ensure_ascii=False)
    for start, end in reversed([*_comments(text)]):
        comment = text[start:end]
        if _TOKEN.search(comment) or _ASSIGNED.search(comment):
            text = text[:start] + _LEFT_OUT + text[end:]
    if any(found.group() not in values for found in _TOKEN.finditer(text)) or not _reads_to(document, text, read):
        return None
    return SpecText("yaml", text)


def changed(given: SpecText, after: Any, read: Read) -> SpecText | None:
    """The text with the values of the document `after` in the places of its own. None if it cannot be changed in place."""
    if given.format == "json":
        return SpecText("json", json.dumps(after, indent=2, ensure_ascii=False) + "\n")
    if len(given.text.encode()) > MOST_BYTES:
        return None
    try:
        before, root = read(given), yaml.compose(given.text, Loader=yaml.SafeLoader)
        edits = sorted(_edits(root, before, after, given.text), key=lambda edit: -edit.start)
    except (ShardyardError, yaml.YAMLError, _CannotChange, RecursionError):
        return None
    text = given.text
    for edit in edits:
        text = text[: edit.start] + edit.new + text[edit.end :]
    return SpecText("yaml", text) if _reads_to(after, text, read) else None


def _comments(text: str) -> Iterator[tuple[int, int]]:
    """Where comments are, in order. They are between PyYAML's tokens; a `#` in a value is none."""
    after = 0
    for token in yaml.scan(text, Loader=SAFE_LOADER):
        start, end = token.start_mark.index, token.end_mark.index
        yield from (found.span() for found in _COMMENT.finditer(text, after, max(after, start)))
        if isinstance(token, yaml.ScalarToken) and token.style in ("|", ">") and (head := _HEAD.match(text, start)):
            yield head.span(1)
        after = max(after, end)


def _reads_to(document: Any, text: str, read: Read) -> bool:
    try:
        return _same(read(SpecText("yaml", text)), document)
    except ShardyardError:
        return False


def _same(one: Any, other: Any) -> bool:
    """As JSON: 1 is neither true nor 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


class _CannotChange(Exception):
    """A key is missing in the new document, or the text has no values."""


@dataclass(frozen=True)
class _Edit:
    """What replaces the characters from `start` to `end`."""

    start: int
    end: int
    new: str


def _edits(node: Any, before: Any, after: Any, text: str) -> Iterator[_Edit]:
    """Of two that begin at one place, that of the outer node first: it is applied first, and so stands below the other."""
    if _same(before, after):
        return
    if node is None:
        raise _CannotChange
    if isinstance(node, yaml.MappingNode) and isinstance(before, dict) and isinstance(after, dict):
        if not before.keys() <= after.keys():
            raise _CannotChange
        if added := {key: value for key, value in after.items() if key not in before}:
            yield _insertion(node, added, text)
        for key, value in node.value:
            yield from _edits(value, before[key.value], after[key.value], text)
    elif isinstance(node, yaml.SequenceNode) and isinstance(after, list) and len(node.value) == len(after):
        for item, was, now in zip(node.value, before, after, strict=True):
            yield from _edits(item, was, now, text)
    else:
        start, end = node.start_mark.index, _end(node, text)
        yield _Edit(start, end, flow(after) if end > start else f" {flow(after)}")


def _insertion(node: Any, added: dict[str, Any], text: str) -> _Edit:
    """New keys, after the last one of a mapping."""
    items = [f"{flow(key)}: {flow(value)}" for key, value in added.items()]
    if not node.value:
        return _Edit(node.start_mark.index, _end(node, text), f"{{{', '.join(items)}}}")
    last = _end(node.value[-1][1], text)
    if node.flow_style:
        return _Edit(last, last, "".join(f", {item}" for item in items))
    line_end = text.find("\n", last)
    at = len(text) if line_end < 0 else line_end
    indent = " " * node.value[0][0].start_mark.column
    return _Edit(at, at, "".join(f"\n{indent}{item}" for item in items))


def _end(node: Any, text: str) -> int:
    """After the last character of a node. PyYAML's own mark of one in block style is where the next one begins."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return _end(node.value[-1][1], text)
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return _end(node.value[-1], text)
    start = int(node.start_mark.index)
    return start + len(text[start : node.end_mark.index].rstrip())


def flow(value: Any) -> str:
    """A value as YAML on one line, as it can stand anywhere. Text is quoted where YAML 1.1 or 1.2 would read another value."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{flow(key)}: {flow(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(flow, value))}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and isinstance(yaml.safe_load(value), str):
        return value
    return json.dumps(value, ensure_ascii=False)
