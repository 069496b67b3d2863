"""Generates the values table of the chart's README from values.yaml; a test compares the two.

`python deploy/chart/values_table.py` rewrites the part of README.md between its two marks.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHART = Path(__file__).resolve().parent / "shardyard"
BEGIN, END = "<!-- values: begin -->\n", "<!-- values: end -->\n"


class Value(NamedTuple):
    """One entry: its path with dots, its default, and the comment above it (empty if there is none)."""

    path: str
    default: Any
    comment: str


def comment_above(lines: list[str], line: int) -> str:
    """The comment lines directly above `line` (counted from 0), as one text."""
    first = line
    while first > 0 and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return " ".join(text.strip().removeprefix("#").strip() for text in lines[first:line])


def entries(text: str) -> Iterator[Value]:
    """The documented values of `text`: a mapping with a comment of its own is one value; of any other its entries are."""
    lines = text.splitlines()

    def walk(node: yaml.MappingNode, prefix: str, data: dict[str, Any]) -> Iterator[Value]:
        for key, value in node.value:
            comment = comment_above(lines, key.start_mark.line)
            path = f"{prefix}{key.value}"
            if isinstance(value, yaml.MappingNode) and value.value and not comment:
                yield from walk(value, f"{path}.", data[key.value])
            else:
                yield Value(path, data[key.value], comment)

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    yield from walk(root, "", yaml.safe_load(text))


def table(text: str) -> str:
    rows = [f"| `{path}` | `{json.dumps(default)}` | {comment} |" for path, default, comment in entries(text)]
    return "\n".join(["| Value | Default | Meaning |", "|---|---|---|", *rows]) + "\n"


def rewritten(readme: str, values: str) -> str:
    """`readme` with the table of `values` between its marks."""
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{table(values)}{END}{after}"


if __name__ == "__main__":
    page = CHART / "README.md"
    page.write_text(rewritten(page.read_text(), (CHART / "values.yaml").read_text()))
