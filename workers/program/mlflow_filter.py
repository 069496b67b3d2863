"""MLflow's language of searches: comparisons that AND joins, and orders. Its texts are read here, and evaluated in `mlflow_search.py`.

    metrics.loss < 0.1 AND params.`learning rate` = '0.01' AND tags.team IS NOT NULL AND run_id IN ('a', 'b')

As in MLflow (https://mlflow.org/docs/latest/ml/search/search-runs/) there is no OR, and names with other characters stand in backticks
or double quotes. Any text may be compared with a list, not only `run_id`. Two single quotes in a text are one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from .mlflow_fields import MlflowError, invalid

#: Maximum characters of a filter and of an order.
MOST_FILTER: Final = 10_000
_NUMBERS: Final = ("=", "!=", ">", ">=", "<", "<=")
_TEXTS: Final = ("=", "!=", "LIKE", "ILIKE", "IN", "NOT IN")
_NULLS: Final = ("IS NULL", "IS NOT NULL")
#: Possessive, so that a text of any kind is split in one pass.
_TOKEN: Final = re.compile(
    r"""(?P<number>[-+]?(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?\d++)?+(?![\w.]))
    | (?P<text>'(?:[^']|'')*')
    | (?P<name>(?:[^\W\d][\w./-]*|`[^`]*`|"[^"]*"|\.(?=[\w`"]))++)
    | (?P<sign>[<>!=]+|[(),])""",
    re.VERBOSE,
)
_SPACE: Final = re.compile(r"\s*")
_QUOTED: Final = re.compile(r'[^`"]+|`([^`]+)`|"([^"]+)"')

Kind = Literal["attribute", "metric", "parameter", "tag"]
_KINDS: Final[Mapping[str, Kind]] = {
    "attribute": "attribute",
    "attributes": "attribute",
    "attr": "attribute",
    "run": "attribute",
    "metric": "metric",
    "metrics": "metric",
    "parameter": "parameter",
    "parameters": "parameter",
    "param": "parameter",
    "params": "parameter",
    "tag": "tag",
    "tags": "tag",
}


@dataclass(frozen=True)
class Attributes:
    """What a search may compare beside metrics, parameters and tags: every name and alias, with the attribute that it stands for."""

    numbers: Mapping[str, str]
    texts: Mapping[str, str]


@dataclass(frozen=True)
class Field:
    """What is compared or ordered by."""

    kind: Kind
    key: str
    is_number: bool


@dataclass(frozen=True)
class Comparison:
    """A field, an operator, and what it is compared with: None for IS NULL and IS NOT NULL."""

    field: Field
    operator: str
    value: float | str | tuple[str, ...] | None


@dataclass(frozen=True)
class Order:
    """A field, and whether the largest is first."""

    field: Field
    is_descending: bool


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


def read_filter(text: str, attributes: Attributes) -> list[Comparison]:
    """The comparisons of a filter, which may be empty. Raises MlflowError, which says where."""
    reader = _Reader("filter", text, attributes)
    found: list[Comparison] = []
    while not reader.is_done():
        if found and not reader.takes_word("AND"):
            raise reader.unexpected("join comparisons with AND; OR and parentheses are not supported")
        found.append(reader.comparison())
    return found


def read_order(text: str, attributes: Attributes) -> Order:
    """An order, such as `metrics.loss DESC`. Raises MlflowError, which says where."""
    reader = _Reader("order_by", text, attributes)
    field = reader.field()
    is_descending = reader.takes_word("DESC")
    if not is_descending:
        reader.takes_word("ASC")
    if not reader.is_done():
        raise reader.unexpected("an order is a field, and ASC or DESC")
    return Order(field, is_descending)


class _Reader:
    """The tokens of a text. `name`: of the request's field, for messages."""

    def __init__(self, name: str, text: str, attributes: Attributes) -> None:
        if len(text) > MOST_FILTER:
            raise invalid(f"{name} has {len(text):,} characters: send at most {MOST_FILTER:,}")
        self._name, self._text, self._attributes = name, text, attributes
        self._tokens = list(self._split())
        self._next = 0

    def _split(self) -> list[_Token]:
        found: list[_Token] = []
        at = self._skip(0)
        while at < len(self._text):
            match = _TOKEN.match(self._text, at)
            if match is None or match.lastgroup is None:
                raise self._error(at, "this is no name, number or text in single quotes")
            found.append(_Token(match.lastgroup, match.group(), at))
            at = self._skip(match.end())
        return found

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return at if found is None else found.end()

    def is_done(self) -> bool:
        return self._next >= len(self._tokens)

    def unexpected(self, why: str) -> MlflowError:
        """The error of the next token."""
        return self._error(len(self._text) if self.is_done() else self._tokens[self._next].at, why)

    def _error(self, at: int, why: str) -> MlflowError:
        where = f"at {self._text[at : at + 40]!r}" if at < len(self._text) else "at its end"
        return invalid(f"{self._name} {self._text[:200]!r}, {where}: {why}")

    def takes_word(self, word: str) -> bool:
        """Whether this keyword is next. Then it is read."""
        found = not self.is_done() and self._tokens[self._next].text.upper() == word
        self._next += found
        return found

    def _take(self, kind: str, why: str) -> str:
        if self.is_done() or self._tokens[self._next].kind != kind:
            raise self.unexpected(why)
        self._next += 1
        return self._tokens[self._next - 1].text

    def comparison(self) -> Comparison:
        field = self.field()
        operator = self._operator()
        allowed: tuple[str, ...] = _NUMBERS if field.is_number else _TEXTS
        if field.kind in ("parameter", "tag"):
            allowed += _NULLS
        if operator not in allowed:
            self._next -= 1
            raise self.unexpected(f"compare {field.kind} {field.key!r} with one of {', '.join(allowed)}")
        if operator in _NULLS:
            return Comparison(field, operator, None)
        if field.is_number:
            value = self._take("number", f"compare {field.kind} {field.key!r} with a number")
            return Comparison(field, operator, float(value))
        return Comparison(field, operator, self._list() if operator.endswith("IN") else self._literal())

    def field(self) -> Field:
        at = self._next
        name = self._take("name", "name a field, such as metrics.loss, params.lr, tags.team or attributes.status")
        kind, key = "attribute", name
        if "." in name:
            kind, key = name.split(".", 1)
            kind = kind.strip("`")
        quoted = _QUOTED.fullmatch(key)
        found = _KINDS.get(kind)
        if found is None or quoted is None:
            self._next = at
            raise self.unexpected(
                "a field is metrics.NAME, params.NAME, tags.NAME or attributes.NAME, and a name with other characters than letters, "
                "digits, '_', '.', '/' and '-' stands in `backticks`"
            )
        key = quoted[1] or quoted[2] or key
        if found != "attribute":
            return Field(found, key, is_number=found == "metric")
        known = {**self._attributes.numbers, **self._attributes.texts}
        if key not in known:
            self._next = at
            names = ", ".join(dict.fromkeys(known.values()))
            raise self.unexpected(
                f"there is no attribute {key[:80]!r}: use one of {names}, or metrics., params. or tags. before a name"
            )
        return Field("attribute", known[key], is_number=key in self._attributes.numbers)

    def _operator(self) -> str:
        if not self.is_done() and self._tokens[self._next].kind == "sign":
            self._next += 1
            return self._tokens[self._next - 1].text
        words = [self._take("name", "compare the field, for example with = and a value").upper()]
        if words == ["NOT"]:
            words.append(self._take("name", "NOT is followed by IN").upper())
        elif words == ["IS"]:
            words += ["NOT"] if self.takes_word("NOT") else []
            words.append(self._take("name", "IS is followed by NULL or NOT NULL").upper())
        return " ".join(words)

    def _literal(self) -> str:
        if not self.is_done() and self._tokens[self._next].kind == "name":
            text = self._tokens[self._next].text
            if len(text) >= 2 and text[0] == text[-1] == '"' and text.count('"') == 2:
                self._next += 1
                return text[1:-1]
        return self._take("text", "compare it with a text in single quotes")[1:-1].replace("''", "'")

    def _list(self) -> tuple[str, ...]:
        why = "IN is followed by a list of texts, such as ('a', 'b')"
        if not self.takes_word("("):
            raise self.unexpected(why)
        found = [self._literal()]
        while self.takes_word(","):
            found.append(self._literal())
        if not self.takes_word(")"):
            raise self.unexpected(why)
        return tuple(found)
